"""Clients that work only while they are available."""

from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import performative as pf

PART_EXAMPLES = {
    "pf.participation.Trace": {
        "arguments": "begin=[[0.0]] * N, end=[[8.0]] * N, period=24.0",
        "inside": "pf.Asynchronous(2, latency={})",
    },
}

BEGIN = np.array([[0.0, 6.0], [2.0, 10.0], [0.0, 10.0]])
END = np.array([[4.0, 7.0], [3.0, 10.0], [10.0, 10.0]])


def slowly(client: int, start: float, work: float, tick: float = 1e-3) -> float:
    """Tick by tick."""
    t, left = start, work
    while left > 1e-9:
        phase = t % 10.0
        if any(b - 1e-9 <= phase < e - 1e-9 for b, e in zip(BEGIN[client], END[client], strict=True)):
            left -= tick
        t += tick
    return t


@pytest.mark.parametrize("client", [0, 1, 2])
def test_work_waits_for_the_next_window(client: int) -> None:
    trace = pf.participation.Trace(BEGIN, END, 10.0)
    rng = np.random.default_rng(client)
    start, work = rng.uniform(0, 25, 5).round(2), rng.uniform(0.5, 12, 5).round(2)
    ids = jnp.full(5, client)
    with jax.enable_x64(True):
        found = trace.finish(jax.random.key(0), ids, 3, jnp.asarray(start), jnp.asarray(work))
    np.testing.assert_allclose(found, [slowly(client, a, b) for a, b in zip(start, work, strict=True)], atol=5e-3)


@pytest.mark.slow
def test_a_run_by_a_file(tmp_path: Path) -> None:
    file = tmp_path / "phones.csv"
    file.write_text("client,start,end\n1,2,3\n0,6,7\n0,0,4\n2,0,10\n")
    trace = pf.participation.Trace.read(file)
    np.testing.assert_array_equal(trace.begin, BEGIN)
    np.testing.assert_array_equal(trace.end, END)
    problem = pf.Problem(pf.losses.squared, pf.populations.Gaussian(np.zeros(3), 0.3, 1.0))
    part = pf.Asynchronous(1, latency=trace)
    history = pf.run(
        problem, pf.p_fedavg(0.1, participation=part), rounds=6, dtype="float64", record=pf.Record(cohorts=True)
    )
    # By hand: each has 1 to do; 0 and 2 are done at 1, 2, 3, 4; 1 is done at 3.
    np.testing.assert_allclose(history["time"][0, 1:], [1, 1, 2, 2, 3, 3])


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("client,start\n0,1\n", "there is no end"),
        ("client,start,end\n0,0,4\n2,0,4\n", "client 1 has no window"),
        ("client,start,end\n", "there are no windows"),
        ("client,start,end\n0,0,x\n", "line 2"),
        ("client,start,end\n0,0,4\n0,3,5\n", "must not overlap"),
        ("client,start,end\n0,4,2\n0,3,5\n", "in order"),
        ("client,start,end\n0,0,nan\n", "finite"),
        ("client,start,end\n0,0,4\n1,4,4\n", "client 1 is never available"),
    ],
)
def test_a_trace_with_gaps_is_refused(tmp_path: Path, text: str, says: str) -> None:
    file = tmp_path / "phones.csv"
    file.write_text(text)
    with pytest.raises(ValueError, match=says):
        pf.participation.Trace.read(file)


def test_a_trace_needs_a_clock() -> None:
    problem = pf.Problem(pf.losses.squared, pf.populations.Gaussian(np.zeros(3), 0.3, 1.0))
    trace = pf.participation.Trace(BEGIN, END, 10.0)
    with pytest.raises(ValueError, match="Asynchronous"):
        pf.run(problem, pf.p_fedavg(0.1, participation=pf.FirstK(2, trace)), rounds=2)
    with pytest.raises(ValueError, match="3 clients, the problem 4"):
        wide = pf.Problem(pf.losses.squared, pf.populations.Gaussian(np.zeros(4), 0.3, 1.0))
        pf.run(wide, pf.p_fedavg(0.1, participation=pf.Asynchronous(2, latency=trace)), rounds=2)
