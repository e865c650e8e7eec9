"""Paths: values against plain NumPy, and what makes a walk a walk."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import performative as pf
from performative.paths import Jump, Linear, Periodic, RandomWalk, Sum

PART_EXAMPLES = {
    "pf.paths.Linear": ("velocity=0.1", "velocity=np.linspace(-0.1, 0.1, N)"),
    "pf.paths.Periodic": ("amplitude=0.5, period=7.0", "amplitude=np.linspace(0.0, 0.5, N), period=7.0, phase=0.3"),
    "pf.paths.Jump": ("when=2.0, size=0.5", "when=np.arange(float(N)), size=0.5"),
    "pf.paths.RandomWalk": ("scale=0.1", "scale=np.full(N, 0.1), seed=3"),
    "pf.paths.Sum": "paths=(pf.paths.Linear(0.1), pf.paths.Periodic(0.5, 7.0))",
}
TIMES = (0.0, 0.5, 1.0, 2.75, 7.0, 123.0)
A, B = np.array([0.5, -1.0, 2.0]), np.array([2.0, 3.0, 5.0])
WIDE = np.arange(6.0).reshape(3, 2)


@pytest.mark.parametrize(
    ("path", "known"),
    [
        (Linear(0.3), lambda t: 0.3 * t),
        (Linear(A), lambda t: A * t),
        (Linear(WIDE), lambda t: WIDE * t),
        (Periodic(A, B), lambda t: A * np.sin(2 * np.pi * t / B)),
        (Periodic(1.5, 7.0, A), lambda t: 1.5 * (np.sin(2 * np.pi * t / 7 + A) - np.sin(A))),
        (Periodic(WIDE, B), lambda t: WIDE * np.sin(2 * np.pi * t / B)[:, None]),
        (Jump(B, A), lambda t: A * (t >= B)),
        (Jump(B, WIDE), lambda t: WIDE * (t >= B)[:, None]),
        (Linear(A) + Jump(1.0, 2.0), lambda t: A * t + 2.0 * (t >= 1)),
        (Sum((Linear(A), Linear(WIDE), Linear(1.0))), lambda t: A[:, None] * t + WIDE * t + t),
    ],
)
def test_values(path, known):
    with jax.enable_x64(True):
        for t in TIMES:
            np.testing.assert_allclose(path.value(t), known(t), rtol=1e-12, atol=1e-12)


@pytest.mark.slow
def test_every_path_begins_at_zero():
    for path in (Linear(A), Periodic(A, B, 0.7), Jump(B, A), RandomWalk(B), Linear(A) + RandomWalk(B)):
        np.testing.assert_allclose(path.value(0.0), 0.0, atol=1e-7)


def test_a_season_far_out_is_no_rougher():
    assert float(Periodic(1.0, 4.0).value(4.0e6 + 1)) == pytest.approx(1.0, abs=1e-6)


@pytest.fixture(scope="module")
def walks():
    """2000 clients' walks at whole times 0 ... 32, in float64."""
    with jax.enable_x64(True):
        walk = RandomWalk(np.full(2000, 0.5), seed=7)
        return np.asarray(jax.lax.map(walk.value, jnp.arange(33.0)))


def test_a_walk_has_independent_normal_steps(walks):
    steps = np.diff(walks, axis=0)
    n = steps.shape[1]
    # A variance of n normal numbers has a relative standard error of sqrt(2/n); a correlation one of 1/sqrt(n).
    for t in (1, 2, 8, 31, 32):
        assert abs(walks[t].var() / (t * 0.25) - 1) < 4.5 * np.sqrt(2 / n)
    assert np.all(np.abs(steps.var(axis=1) / 0.25 - 1) < 4.5 * np.sqrt(2 / n))
    between = np.corrcoef(steps)[np.triu_indices(32, 1)]
    assert np.all(np.abs(between) < 4.5 / np.sqrt(n))
    assert abs(np.mean(steps**4) / 0.25**2 - 3) < 0.1  # normal


def test_clients_walk_by_themselves(walks):
    steps = np.diff(walks, axis=0)
    assert abs(np.corrcoef(steps[:, ::2].ravel(), steps[:, 1::2].ravel())[0, 1]) < 4.5 / np.sqrt(32 * 1000)
    together = RandomWalk(0.5, seed=7)
    assert together.value(9.0).shape == ()


def test_a_walk_is_a_function_of_time():
    walk, other = RandomWalk(B, seed=1), RandomWalk(B, seed=2)
    whole = [np.asarray(walk.value(t)) for t in (4.0, 5.0)]
    np.testing.assert_allclose(walk.value(4.25), 0.75 * whole[0] + 0.25 * whole[1], rtol=1e-5)
    np.testing.assert_array_equal(walk.value(4.0), whole[0])
    assert np.all(np.asarray(other.value(4.0)) != whole[0])
    with jax.enable_x64(True):  # the same walk, more exactly
        np.testing.assert_allclose(walk.value(4.0), whole[0], rtol=1e-5)
    np.testing.assert_array_equal(walk.value(jnp.asarray(-3.0)), 0.0)


@pytest.mark.slow
def test_all_repeats_see_one_walk():
    people = pf.populations.Gaussian([0.0, 1.0], 0.0, 0.0)
    problem = pf.Problem(pf.losses.squared, pf.populations.Drifting(people, RandomWalk([0.5, 0.5])))
    history = pf.run(problem, pf.p_fedavg(1.0), rounds=3, theta=0.0, repeats=2, record=pf.Record(risks=False))
    np.testing.assert_array_equal(*history.theta)
    # With eta = 1, no noise and no reaction the model is the mean of the time before.
    known = [float(pf.stable_point(problem, time=float(t))) for t in range(3)]
    np.testing.assert_allclose(history.theta[0, 1:], known, rtol=1e-5)


@pytest.mark.parametrize(
    ("make", "match"),
    [
        (lambda: Linear("x"), "Linear: velocity must be numeric"),
        (lambda: Linear(np.nan), "Linear: velocity must be finite; got nan"),
        (lambda: Periodic(1.0, 0.0), "Periodic: period must be above 0; got 0.0"),
        (lambda: Periodic([1.0, 2.0], [1.0, 2.0, 3.0]), "amplitude has 2, period has 3"),
        (lambda: Jump(np.inf, 1.0), "Jump: when must be finite"),
        (lambda: Jump([1.0, 2.0], [1.0, 2.0, 3.0]), "when has 2, size has 3"),
        (lambda: RandomWalk(-1.0), "RandomWalk: scale is a standard deviation and must be >= 0; got -1.0"),
        (lambda: RandomWalk(1.0, seed=1.5), "RandomWalk: seed must be a whole number; got 1.5"),
        (lambda: Sum(()), r"Sum: paths must be a tuple of paths, such as .*; got \(\)"),
        (lambda: Sum(3), "Sum: paths must be a tuple of paths, such as .*; got 3"),
        (lambda: Linear(1.0) + 2, r"Sum: paths must be a tuple of paths, such as .*; got \[2\]"),
        (lambda: Sum((Linear([1.0, 2.0]), Linear([1.0, 2.0, 3.0]))), "one row per client"),
    ],
)
def test_bad_paths(make, match):
    with pytest.raises(ValueError, match=match):
        make()
