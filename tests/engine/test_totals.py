"""What a run counts does not drift, however long it is."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import performative as pf
from performative._engine.totals import add_at, as_total, sum_of, zero_total

PROBLEM = pf.Problem(pf.losses.squared, pf.populations.Gaussian(np.linspace(-1.0, 1.0, 6), 0.3, 1.0))


def added(value, times):
    """`value` added so often, in float32."""
    one = as_total(jnp.asarray(value, jnp.float32), jnp.float32)
    return jax.jit(lambda: jax.lax.fori_loop(0, times, lambda _, t: t + one, zero_total((), jnp.float32)))().value()


def test_a_million_tenths_are_a_hundred_thousand():
    # Plain float32 reads 100,958.
    assert added(0.1, 1_000_000) == pytest.approx(1_000_000 * float(np.float32(0.1)), rel=1e-13)


def test_whole_numbers_are_exact():
    assert added(16_777_215.0, 100_003) == 16_777_215 * 100_003
    values = np.random.default_rng(0).integers(0, 2**29, 1000).astype(np.int32)
    for dtype in (jnp.float32, jnp.float64):
        with jax.enable_x64(dtype == jnp.float64):
            assert jax.jit(lambda v, d=dtype: sum_of(v, d))(jnp.asarray(values)).value() == values.astype(int).sum()


def test_rows_are_counted_one_by_one():
    # Client 1 weighs 1/6 in each of a million rounds, client 2 in every other; id 4 is a spare row.
    def once(r, total):
        ids = jnp.stack([jnp.int32(1), jnp.where(r % 2 == 0, 2, 4)])
        return add_at(total, ids, jnp.full((2,), 1 / 6, jnp.float32))

    loop = jax.jit(lambda: jax.lax.fori_loop(0, 1_000_000, once, zero_total((4,), jnp.float32)))
    share = loop().value() / 1_000_000 / float(np.float32(1 / 6))
    np.testing.assert_allclose(share, [0.0, 1.0, 0.5, 0.0], rtol=1e-13)


@pytest.mark.parametrize("executor", [None, pytest.param("loop", marks=pytest.mark.slow)])
def test_time_and_samples_of_a_run_are_exact(executor):
    # 2^20 + 1 a round: a float32 that adds up rounds loses the ones from the 16th on.
    clock = pf.Clock(compute=2.0**20, communication=1.0)
    rounds, every = (40, 20) if executor is None else (20, 20)
    algorithm = pf.p_fedavg(0.01, batch=pf.Fixed(1001), participation=pf.SchemeTwo(3))
    history = pf.run(
        PROBLEM,
        algorithm,
        rounds,
        theta=0.0,
        record=pf.Record(every=every, risks=False),
        clock=clock,
        executor=executor,
        dtype="float32",
    )
    assert history["time"][0].tolist() == [(2**20 + 1) * int(r) for r in history.rounds]
    assert history["samples"][0].tolist() == [3 * 1001 * int(r) for r in history.rounds]
    assert history["uploads"][0].tolist() == [3 * int(r) for r in history.rounds]
    # Each round gives 6/3 * 1/6 to three clients.
    np.testing.assert_allclose(history.participation.sum(), 1.0, rtol=1e-7)


@pytest.mark.slow
def test_totals_go_on_where_a_run_was_cut(tmp_path):
    asked = {"theta": 0.0, "repeats": 2, "record": pf.Record(risks=False, every=3), "clock": pf.Clock(0.1)}
    algorithm = pf.p_fedavg(0.01, participation=pf.SchemeOne(2))
    whole = pf.run(PROBLEM, algorithm, 24, checkpoint=pf.Checkpoint(tmp_path / "whole", every=6), **asked)
    pf.run(PROBLEM, algorithm, 12, checkpoint=pf.Checkpoint(tmp_path / "parts", every=6), **asked)
    parts = pf.run(PROBLEM, algorithm, 24, checkpoint=pf.Checkpoint(tmp_path / "parts", every=6, resume=True), **asked)
    np.testing.assert_array_equal(whole.participation, parts.participation)
    for name in whole.records:
        np.testing.assert_array_equal(whole[name], parts[name], err_msg=name)


def test_the_hour_of_a_late_round_is_right():
    # A float32 would take 2^24 + 1 for 2^24, and night for day.
    rounds = np.arange(2**24, 2**24 + 12)
    high = pf.participation.DayNight(np.float32(6.0), np.float32(1.0), np.float32(1.0), np.float32(0.0))
    seen = [float(high.at(jnp.asarray(r, jnp.int32))) for r in rounds]
    assert seen == [float((r + 1) % 6 < 3) for r in rounds]


def test_a_run_beyond_the_clock_is_refused():
    with pytest.raises(ValueError, match=r"rounds=1000000000 of 3 local steps exceed the 2\^31 steps"):
        pf.run(PROBLEM, pf.p_fedavg(0.1, local_steps=3), 10**9, theta=0.0)
    with pytest.raises(ValueError, match=r"rounds=3000000000 of 1 local steps"):
        pf.sweep(PROBLEM, pf.p_fedavg(0.1), {"rate": [0.1, 0.2]}, 3 * 10**9, theta=0.0)
