"""The engine compared with hand-written scans of the same work. Ratios within one run; nothing is asserted."""

import subprocess
import sys
import time

import jax
import jax.numpy as jnp
import numpy as np

import performative as pf
from benchmarks import references

# The references record only the model, so ours skips records that need a separate pass.
QUIET = {"callbacks": [pf.callbacks.Progress(False)]}
LEAN = {"record": pf.Record(risks=False, consensus=False), **QUIET}
LAST = pf.Record(risks=False, consensus=False, theta="last")


def alternate(functions: dict, rounds: int) -> dict[str, float]:
    """Best time of each function, called in turn so that load affects all of them equally. The first call warms up."""
    best = dict.fromkeys(functions, float("inf"))
    for turn in range(rounds + 1):
        for name, function in functions.items():
            began = time.perf_counter()
            jax.block_until_ready(function())
            if turn:
                best[name] = min(best[name], time.perf_counter() - began)
    return best


def _row(name: str, run, same, bulk, times: int, steps: float) -> dict:
    loop = []

    def ours():
        history = run(**LEAN)
        loop.append(history.meta["seconds"])
        return history.theta

    best = alternate({"ours": ours, "default": lambda: run(**QUIET).theta, "same": same, "bulk": bulk}, times)
    inside = min(loop[1:])
    return {
        "benchmark": name,
        "ours_s": best["ours"],
        "loop_s": inside,
        "reference_s": best["same"],
        "ratio": inside / best["same"],
        "call_ratio": best["ours"] / best["same"],
        "bulk_s": best["bulk"],
        "bulk_ratio": inside / best["bulk"],
        "default_s": best["default"],
        "default_ratio": best["default"] / inside,
        "client_steps_per_s": steps / inside,
        "note": "ratio, bulk: the loop of chunks, with records on the host; call: the whole pf.run; default: a whole "
        "pf.run with its default records, relative to the loop",
    }


def _gaussian(name: str, clients: int, steps: int, rounds: int, repeats: int, times: int) -> dict:
    random = np.random.default_rng(0)
    mean, sensitivity = random.uniform(5, 15, clients), random.uniform(0.5, 0.9, clients)
    problem = pf.Problem(pf.losses.squared, pf.populations.Gaussian(mean, sensitivity, 1.0))
    algorithm = pf.p_fedavg(rate=pf.schedules.harmonic(20.0, 200.0), local_steps=steps)
    keys = references.repeat_keys(repeats)
    arrays = (
        jnp.asarray(mean, jnp.float32),
        jnp.asarray(sensitivity, jnp.float32),
        jnp.full(clients, 1 / clients),
    )
    return _row(
        name,
        lambda **options: pf.run(problem, algorithm, rounds, 0.0, repeats=repeats, **options),
        lambda: references.gaussian_same(keys, *arrays, rounds, steps),
        lambda: references.gaussian_bulk(keys, *arrays, rounds, steps),
        times,
        float(clients * steps * rounds * repeats),
    )


def gaussian_one() -> dict:
    """(a) Gaussian, N=25, E=5, 2000 rounds, one repeat."""
    return _gaussian("a1: gaussian N=25 E=5 2000 rounds, 1 repeat", 25, 5, 2000, 1, 10)


def gaussian_many() -> dict:
    """(a) the same with 1024 repeats."""
    return _gaussian("a2: gaussian N=25 E=5 2000 rounds, 1024 repeats", 25, 5, 2000, 1024, 2)


def million() -> dict:
    """(c) a million Gaussian clients, 200 rounds."""
    return _gaussian("c: gaussian N=1e6 E=1 200 rounds", 1_000_000, 1, 200, 1, 2)


def _strategic(name: str, repeats: int, times: int) -> dict:
    random = np.random.default_rng(0)
    clients, people, d, rounds, steps, batch = 10, 1000, 10, 1000, 5, 4
    x = random.standard_normal((clients, people, d))
    y = (random.uniform(size=(clients, people)) < 1 / (1 + np.exp(-x[..., 0]))).astype(np.int32)
    strength = random.uniform(0.9, 1.1, clients)
    problem = pf.Problem(pf.losses.logistic(0.1), pf.populations.Strategic(x, y, strength))
    rate = pf.schedules.harmonic(5.0, 100.0)
    algorithm = pf.p_fedavg(rate=rate, local_steps=steps, batch=pf.Fixed(batch))
    keys = references.repeat_keys(repeats)
    arrays = [jnp.asarray(a, jnp.float32) for a in (x, y, strength, np.full(clients, 0.1))]
    return _row(
        name,
        lambda **options: pf.run(problem, algorithm, rounds, repeats=repeats, **options),
        lambda: references.strategic_same(keys, *arrays, 0.1, rounds, steps, batch),
        lambda: references.strategic_bulk(keys, *arrays, 0.1, rounds, steps, batch),
        times,
        float(clients * steps * rounds * repeats),
    )


def strategic_one() -> dict:
    """(b) strategic logistic, N=10, d=10, batch 4, 1000 rounds, one repeat."""
    return _strategic("b1: strategic N=10 d=10 batch 4 E=5 1000 rounds, 1 repeat", 1, 10)


def strategic_many() -> dict:
    """(b) the same with 32 repeats."""
    return _strategic("b2: strategic N=10 d=10 batch 4 E=5 1000 rounds, 32 repeats", 32, 4)


def _partial(scheme, label: str) -> dict:
    """Seconds per round with K=100, from the second chunk on, at N=1e6 compared with N=1e3."""
    seconds = {}
    for clients in (1_000, 1_000_000):
        random = np.random.default_rng(0)
        weights = random.uniform(0.5, 1.5, clients)
        problem = pf.Problem(
            pf.losses.squared,
            pf.populations.Gaussian(random.uniform(5, 15, clients), 0.5, 1.0),
            weights=weights / weights.sum(),
        )
        algorithm = pf.p_fedavg(rate=0.01, local_steps=5, participation=scheme)
        seconds[clients] = _seconds_a_round(problem, algorithm)
    return {
        "benchmark": label,
        "ours_s": seconds[1_000_000],
        "reference_s": seconds[1_000],
        "ratio": seconds[1_000_000] / seconds[1_000],
        "note": "seconds per round at N=1e6 (ours) and N=1e3 (reference), best chunk from the second on",
    }


def _seconds_a_round(problem, algorithm, rounds: int = 500, chunks: int = 6) -> float:
    from performative._engine.chunk import ChunkSpec, RecordConfig, RunInputs, run_chunk
    from performative._engine.drive import first_state
    from performative._engine.options import repeat_keys
    from performative._engine.prepare import on_device, read_theta
    from performative._engine.setup import prepare

    setup = on_device(prepare(problem, algorithm, pf.Clock()), jnp.float32)
    start = read_theta(problem, 0.0, jnp.float32)
    fixed, watch = RunInputs(setup, repeat_keys(0, 1)), RecordConfig(1, True)
    state, _ = first_state(fixed, start, True)
    span = ChunkSpec(jnp.asarray(rounds, jnp.int32), jnp.asarray(rounds * chunks, jnp.int32), jnp.asarray(1e20))
    times = []
    for _ in range(chunks):
        began = time.perf_counter()
        state, _ = jax.block_until_ready(run_chunk(fixed, span, state, watch, 512))
        times.append((time.perf_counter() - began) / rounds)
    return min(times[1:])


def partial_one() -> dict:
    """SchemeOne, K=100: a round at N=1e6 compared with one at N=1e3."""
    return _partial(pf.SchemeOne(100), "p1: SchemeOne K=100, N=1e6 against N=1e3")


def partial_two() -> dict:
    """SchemeTwo, K=100: a round at N=1e6 compared with one at N=1e3."""
    return _partial(pf.SchemeTwo(100), "p2: SchemeTwo K=100, N=1e6 against N=1e3")


FIRST = """
import time
began = time.perf_counter()
import numpy as np
import performative as pf
problem = pf.Problem(pf.losses.squared, pf.populations.Gaussian(np.arange(5.0), 0.5, 1.0))
pf.run(problem, pf.p_fedavg(rate=0.1, local_steps=4, participation=pf.SchemeOne(2)), rounds=100, theta=0.0)
print(time.perf_counter() - began)
"""


def first_result() -> dict:
    """From `import performative` to the history of a small run, in a new process; later ones use the cache."""
    import os
    import tempfile

    with tempfile.TemporaryDirectory() as folder:
        env = {**os.environ, "PERFORMATIVE_CACHE": folder}
        seconds = [
            float(subprocess.run([sys.executable, "-c", FIRST], check=True, env=env, capture_output=True).stdout)
            for _ in range(4)
        ]
    return {
        "benchmark": "f: import to first result, one seed",
        "ours_s": min(seconds[1:]),
        "reference_s": 3.0,
        "ratio": min(seconds[1:]) / 3.0,
        "note": f"with the compilation cache; without it, in a fresh home, {seconds[0]:.2f} s",
    }


BENCHMARKS = {
    "a1": gaussian_one,
    "a2": gaussian_many,
    "b1": strategic_one,
    "b2": strategic_many,
    "c": million,
    "p1": partial_one,
    "p2": partial_two,
    "f": first_result,
}
