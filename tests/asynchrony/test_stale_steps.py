"""Steps on old models: trajectories to the bit of the recursion, and the borders of stability."""

import numpy as np
import pytest

import performative as pf

EPS, MEAN = 0.4, 1.0


def still(clients: int) -> pf.Problem:
    """Equal clients without noise."""
    return pf.Problem(pf.losses.squared, pf.populations.Gaussian([MEAN] * clients, EPS, 0.0))


def settings(staleness: int, late: int, eta: float) -> pf.Algorithm:
    """Everybody at work, one client a move, constant latency: each update is `staleness` moves old."""
    deploy = pf.Late(late) if late else "round"
    return pf.p_fedavg(eta, participation=pf.Asynchronous(1), deploy=deploy)


def path(staleness: int, late: int, eta: float, start: float, moves: int) -> np.ndarray:
    """theta_{t+1} = theta_t - eta (theta_{t-tau} - m - eps theta_{t-tau-s}); all begin with the first model."""
    theta = [start]
    for t in range(moves):
        taken = max(t - staleness, 0)
        theta.append(theta[-1] - eta * (theta[taken] - MEAN - EPS * theta[max(taken - late, 0)]))
    return np.array(theta)


SLOW = pytest.mark.slow


@pytest.mark.parametrize(
    ("staleness", "late"),
    [(1, 3), *(pytest.param(*case, marks=SLOW) for case in ((3, 0), (0, 0), (0, 2), (1, 0), (2, 1)))],
)
def test_the_path_is_that_of_the_recursion(staleness: int, late: int) -> None:
    history = pf.run(still(staleness + 1), settings(staleness, late, 0.2), rounds=60, theta=5.0, dtype="float64")
    np.testing.assert_allclose(history.theta[0], path(staleness, late, 0.2, 5.0, 60), rtol=1e-12)
    if staleness:
        assert history["staleness"][0, -1] == staleness


def grows(staleness: int, late: int, eta: float) -> bool:
    history = pf.run(
        still(staleness + 1), settings(staleness, late, eta), rounds=6000, theta=5.0, dtype="float64",
        record=pf.Record(every=50, risks=False, limit=1e60),
    )  # fmt: skip
    away = np.abs(history.theta[0] - MEAN / (1 - EPS))
    return bool(away[-10:].max() > away[20:30].max())


@pytest.mark.parametrize("staleness", [1, pytest.param(0, marks=SLOW), pytest.param(4, marks=SLOW)])
def test_the_border_of_stale_updates(staleness: int) -> None:
    border = pf.theory.largest_stale_step(EPS, staleness)
    assert not grows(staleness, 0, 0.995 * border)
    assert grows(staleness, 0, 1.005 * border)
    assert pf.theory.stale_radius(border, EPS, staleness) == pytest.approx(1, abs=1e-9)


@pytest.mark.parametrize(
    ("staleness", "late"), [(1, 1), pytest.param(2, 3, marks=SLOW), pytest.param(0, 2, marks=SLOW)]
)
def test_the_border_of_updates_that_are_stale_twice(staleness: int, late: int) -> None:
    low, high = 1e-3, 10.0
    for _ in range(60):
        middle = (low + high) / 2
        settles = pf.theory.stale_radius(middle, EPS, staleness, late) < 1
        low, high = (middle, high) if settles else (low, middle)
    assert not grows(staleness, late, 0.995 * low)
    assert grows(staleness, late, 1.005 * low)


@SLOW
@pytest.mark.parametrize("latency", [None, pf.participation.Exponential(2.0)])
@pytest.mark.parametrize("local_steps", [1, 3])
def test_a_buffer_for_everybody_is_the_synchronous_algorithm(latency: object, local_steps: int) -> None:
    rng = np.random.default_rng(0)
    x = rng.standard_normal((6, 20, 3))
    people = pf.populations.Strategic(x, (x[..., 0] > 0).astype(float), 0.3)
    problems = [
        pf.Problem(pf.losses.logistic(0.1), people, weights=[0.3, 0.1, 0.1, 0.2, 0.2, 0.1]),
        pf.Problem(pf.losses.squared, pf.populations.Gaussian(np.arange(6.0), 0.3, 1.0)),
    ]
    for problem in problems:
        plain = pf.p_fedavg(0.1, local_steps=local_steps, batch=pf.Fixed(4))
        waits = pf.p_fedavg(
            0.1, local_steps=local_steps, batch=pf.Fixed(4), participation=pf.Asynchronous(6, latency=latency)
        )
        one, other = (pf.run(problem, way, rounds=30, repeats=2, seed=3) for way in (plain, waits))
        np.testing.assert_array_equal(one.theta, other.theta)
