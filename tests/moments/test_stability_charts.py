"""`pf.stability` against borders that are known in closed form."""

import matplotlib
import numpy as np
import pytest

import performative as pf
from performative.moments import Radii

matplotlib.use("Agg")
SETTLES, MEAN_ONLY, RUNS_AWAY = "settles", "settles in the mean only", "runs away"


def one_client(eps, sd=1.0):
    return pf.Problem(pf.losses.squared, pf.populations.Gaussian([1.0], [eps], sd))


@pytest.fixture(scope="module")
def grid():
    """One client with eps = 0.5: a step leaves 1 - eta / 2, so that the border is eta = 4 whatever E is."""
    return pf.stability(one_client(0.5), pf.p_fedavg(0.1), {"rate": [3.99, 0.5, 4.01], "local_steps": [1, 3]})


@pytest.mark.slow
def test_one_client(grid):
    """|1 - eta (1 - eps)|^E in the mean, its square in second moments."""
    assert grid.verdicts == [SETTLES, SETTLES, SETTLES, SETTLES, RUNS_AWAY, RUNS_AWAY]
    for setting, radii in zip(grid.settings, grid.radii, strict=True):
        rho = abs(1 - setting["rate"] / 2) ** setting["local_steps"]
        np.testing.assert_allclose(radii, (rho, rho**2), rtol=1e-10)
    eta, E = 0.5, 3
    at = grid.settings.index({"rate": eta, "local_steps": E})
    step, c = 1 - eta / 2, 0.5  # the variance that stays is that of E = 1, deployed after each step
    np.testing.assert_allclose(grid.errors[at], eta**2 / (1 - step**2), rtol=1e-10)
    np.testing.assert_allclose(grid.errors[at], eta / (c * (2 - eta * c)), rtol=1e-10)
    assert np.isnan(grid.errors[-2:]).all()


def test_the_largest(grid):
    assert grid.largest("rate", local_steps=3) == 3.99
    assert grid.largest() == 3.99
    assert grid.largest("local_steps", rate=0.5) == 3.0
    assert np.isnan(grid.largest("rate", local_steps=7)), "no such setting"
    assert np.isnan(grid.largest("local_steps", rate=4.01)), "none settles"


def test_the_largest_is_that_below_all_that_fail():
    radii = [Radii(r, r**2) for r in (0.5, 1.5, 0.5)]
    settings = [{"rate": rate} for rate in (0.1, 0.2, 0.3)]
    found = pf.Stability({"rate": [0.1, 0.2, 0.3]}, settings, radii, np.zeros(3))
    assert found.largest("rate") == 0.1


def test_a_frame(grid):
    frame = grid.to_frame()
    assert list(frame) == ["rate", "local_steps", "mean_radius", "second_radius", "mse_stable", "verdict"]
    assert len(frame) == 6 and list(frame["verdict"]) == grid.verdicts
    assert "6 settings: 4 settles, 2 runs away" in str(grid)


def test_a_map(grid):
    ax = grid.plot()
    assert (ax.get_xlabel(), ax.get_ylabel()) == ("step size", "local steps in a round")
    assert [text.get_text() for text in ax.get_legend().get_texts()] == [SETTLES, MEAN_ONLY, RUNS_AWAY]
    assert all(float(tick).is_integer() for tick in ax.get_yticks())


def test_lines():
    radii = [Radii(abs(1 - r / 2), (1 - r / 2) ** 2) for r in (1.0, 2.0, 5.0)]
    found = pf.Stability({"rate": [1.0, 2.0, 5.0]}, [{"rate": r} for r in (1.0, 2.0, 5.0)], radii, np.zeros(3))
    ax = found.plot()
    assert (ax.get_xlabel(), ax.get_ylabel()) == ("step size", "spectral radius of a round")
    assert len(ax.get_legend().get_texts()) == 2


def test_a_picture_needs_a_grid(grid):
    ragged = pf.Stability(grid.over, grid.settings[:5], grid.radii[:5], grid.errors[:5])
    with pytest.raises(ValueError, match="plot needs a grid of one or two names"):
        ragged.plot()
    with pytest.raises(ValueError, match="plot needs a grid of one or two names"):
        pf.Stability({"rate": [0.1]}, grid.settings[:1], grid.radii[:1], grid.errors[:1]).plot()


@pytest.mark.slow
def test_deployed_once_a_round():
    """A round leaves q + eps (1 - q), q = (1 - eta)^E: for E = 3 below one iff |eps + (1 - eps) q| < 1.

    With eps = -0.5 that is q < 1 and q > -1/3, so that the border is eta = 1 + 3^(-1/3); deployed each step it is
    2 / (1 - eps) = 4/3.
    """
    eps, E = -0.5, 3
    border = 1 + 3 ** (-1 / 3)
    over = {"rate": [0.2, border - 0.001, border + 0.001], "deploy": ["round", "step"]}
    found = pf.stability(one_client(eps), pf.p_fedavg(0.1, local_steps=E), over)
    for setting, radii in zip(found.settings, found.radii, strict=True):
        q = (1 - setting["rate"]) ** E
        rho = abs(q + eps * (1 - q)) if setting["deploy"] == "round" else abs(1 - setting["rate"] * (1 - eps)) ** E
        np.testing.assert_allclose(radii.mean, rho, rtol=1e-10)
    assert found.largest("rate", deploy="round") == border - 0.001
    assert found.largest("rate", deploy="step") == 0.2


def test_noise_alone():
    """x ~ N(0, 1): 1 - 2 eta + 3 eta^2 passes one at 2/3."""
    problem = pf.Problem(pf.losses.ridge(0.0), pf.populations.Regression([0.0], 1.0, [1.0], 0.0, 0.5))
    found = pf.stability(problem, pf.p_fedavg(0.1), {"rate": [0.3, 2 / 3 - 1e-4, 2 / 3 + 1e-4, 1.9, 2.1]})
    assert found.verdicts == [SETTLES, SETTLES, MEAN_ONLY, MEAN_ONLY, RUNS_AWAY]
    assert found.largest("rate") == 2 / 3 - 1e-4


@pytest.mark.parametrize("late", [1, pytest.param(4, marks=pytest.mark.slow)])
def test_people_who_respond_late(late):
    """`pf.theory.stale_radius` has the border of a reaction that is s rounds old."""
    eps, rates = -0.9, np.linspace(0.2, 1.4, 7)
    found = pf.stability(one_client(eps), pf.p_fedavg(0.1, deploy=pf.Late(late)), {"rate": rates})
    known = [pf.theory.stale_radius(rate, eps, 0, late) for rate in rates]
    np.testing.assert_allclose([radii.mean for radii in found.radii], known, rtol=1e-9)
    assert found.verdicts == [SETTLES if rho < 1 else RUNS_AWAY for rho in known]


@pytest.mark.slow
def test_sensitivity_and_momentum():
    """Heavy ball at the server: z^2 - (1 + b - eta c) z + b has roots inside iff eta c < 2 (1 + b)."""
    server = pf.aggregators.ServerOpt(pf.aggregators.Mean(), pf.optimizers.Momentum(0.5))
    rates = np.array([1.0, 5.99, 6.01])
    found = pf.stability(one_client(0.5), pf.p_fedavg(0.1, aggregator=server), {"rate": rates})
    for rate, radii in zip(rates, found.radii, strict=True):
        roots = np.roots([1.0, -(1.5 - rate / 2), 0.5])
        np.testing.assert_allclose(radii.mean, np.abs(roots).max(), rtol=1e-9)
    moved = pf.stability(one_client(0.5), pf.p_fedavg(1.9), {"population.sensitivity": [-0.1, 0.0, 0.9, 1.1]})
    assert moved.verdicts == [RUNS_AWAY, SETTLES, SETTLES, RUNS_AWAY]


def test_bad_grids_are_refused():
    with pytest.raises(ValueError, match="rat"):
        pf.stability(one_client(0.5), pf.p_fedavg(0.1), {"rat": [0.1]})
    with pytest.raises(ValueError):
        pf.stability(one_client(0.5), pf.p_fedavg(0.1), {"rate": []})
