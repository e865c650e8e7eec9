"""What `pf.moments` does not cover is refused by name, never answered as if it were covered."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import performative as pf
from performative.populations.nodes import draw_key, standard_nodes

MEAN, EPS = np.arange(3.0), np.array([0.1, 0.3, 0.5])
PEOPLE = pf.populations.Gaussian(MEAN, EPS, 1.0)
PROBLEM = pf.Problem(pf.losses.squared, PEOPLE)
ROWS = np.random.default_rng(0).normal(size=(3, 8))


def database(**more):
    return pf.Problem(pf.losses.squared, pf.populations.Database(ROWS, pf.populations.shifts.Linear(0.2), **more))


def strategic():
    label = np.random.default_rng(1).integers(0, 2, (3, 8))
    return pf.Problem(pf.losses.logistic(0.1), pf.populations.Strategic(np.stack([ROWS, ROWS**2], -1), label, 0.1))


def market():
    return pf.Problem(pf.losses.revenue(1.5), pf.populations.Market([2.0, 1.0], [[-1.0, 0.3], [0.2, -1.0]], scale=1.0))


class Skewed(pf.populations.AbstractPopulation[None]):
    """Log-normal levels, with expectations over draws."""

    level: pf.types.Numbers = pf.per_client()

    @property
    def clients(self):
        return len(self.level)

    def model_shape(self):
        return ()

    def draw(self, key, shape, theta, rows=None):
        return jax.random.normal(key, shape)

    def sample(self, noise, world, theta):
        return jnp.exp(noise) + self.level + 0.3 * theta


class SkewedByRule(Skewed):
    """The same, by a rule that is exact for polynomials: of which an exponential is none."""

    def quadrature(self, theta, count):
        return standard_nodes((), count)


class Straight(Skewed):
    """Normal levels by the same rule."""

    quadrature = SkewedByRule.quadrature

    def sample(self, noise, world, theta):
        return noise + self.level + 0.3 * theta


class Drawn(Skewed):
    """The same, by draws of its own."""

    def quadrature(self, theta, count):
        return jax.random.normal(draw_key(count), (int(count),)), jnp.full(int(count), 1.0 / int(count))


def huber(theta, z):
    away = jnp.abs(theta - z)
    return jnp.where(away < 1.5, away**2 / 2, 1.5 * away - 1.125)


TOLD = {  # by what parts say of themselves
    "a domain": (pf.Problem(pf.losses.squared, PEOPLE, domain=pf.Box(-1.0, 1.0)), {}, "domain=Box: a projection"),
    "a ball": (pf.Problem(pf.losses.squared, PEOPLE, domain=pf.Ball(1.0)), {}, "domain=Ball: a projection"),
    "quantized": (PROBLEM, {"channel": pf.channels.Quantized(4)}, "channel=Quantized is not linear in the update"),
    "top-k": (PROBLEM, {"channel": pf.channels.Sparse(1)}, "channel=Sparse is not linear in the update"),
    "clipped": (PROBLEM, {"estimator": pf.estimators.Clipped(1.0, 0.5)}, "estimator=Clipped clips gradients"),
    "two clips": (PROBLEM, {"estimator": pf.estimators.Dice(1.0, 9.0, 0.0)}, "estimator=Dice clips gradients"),
    "choosing by loss": (PROBLEM, {"participation": pf.PowerOfChoice(1, 2)}, "participation=PowerOfChoice has no"),
    "asynchrony": (
        PROBLEM, {"participation": pf.Asynchronous(2, latency=pf.participation.Exponential(1.0))},
        "participation=Asynchronous is supported if all clients are training",
    ),
    "a race of unlike clients": (
        PROBLEM, {"participation": pf.FirstK(2, pf.participation.LogNormal([1.0, 2.0, 3.0]))},
        "participation=FirstK has no cohort distribution",
    ),
    "waiting while people drift": (
        pf.Problem(pf.losses.squared, pf.populations.Drifting(PEOPLE, pf.paths.Linear(0.05))),
        {"participation": pf.LocalWork(pf.FirstK(2, pf.participation.Exponential(1.0)), [1, 2, 1])},
        "population=Drifting changes with time, and the time participation=LocalWork waits",
    ),
    "people who leave": (
        PROBLEM, {"participation": pf.participation.Retention(pf.Full(), pf.participation.Patience(1.0, 4.0))},
        "participation=Retention has no cohort distribution",
    ),
    "epochs": (database(), {"batch": pf.batches.Shuffled(2)}, "batch=Shuffled: the rows of a step"),
    "batches of random size": (database(), {"batch": pf.batches.Poisson(0.5, 8)}, "batch=Poisson: the rows"),
    "different rows with noise": (
        database(noise=1.0), {"batch": pf.batches.Uniform(6)}, "batch=Uniform draws distinct rows",
    ),
    "all rows with noise": (database(noise=1.0), {"batch": pf.batches.Whole()}, "batch=Whole draws distinct rows"),
    "several models": (market(), {}, "population=Market reacts to all models"),
    "groups that are learned": (PROBLEM, {"sharing": pf.sharing.LearnedGroups(2)}, "random integers"),
    "draws by default": (pf.Problem(pf.losses.squared, Skewed(MEAN)), {}, "population=Skewed: expectations are taken"),
    "draws": (pf.Problem(pf.losses.squared, Drawn(MEAN)), {}, "population=Drawn: expectations are taken over draws"),
    "a rule that is not exact": (
        pf.Problem(pf.losses.squared, SkewedByRule(MEAN)), {}, "population=SkewedByRule: its samples are not quadratic",
    ),
}  # fmt: skip
FOUND = {  # by trying rounds
    "a median": (PROBLEM, {"aggregator": pf.aggregators.Median()}, "aggregator=Median is not linear"),
    "a clip that bites at times": (
        PROBLEM, {"channel": pf.channels.ClippedNoise(0.3, 0.1)}, "channel=ClippedNoise is not linear",
    ),
}  # fmt: skip
FOUND_LATE = {
    "a filter": (
        PROBLEM, {"estimator": pf.estimators.Filtered(pf.estimators.Minibatch()), "batch": pf.Fixed(8)},
        "estimator=Filtered is not the mean",
    ),
    "logistic": (strategic(), {}, "Logistic on Strategic: its gradients are not linear"),
    "huber": (pf.Problem(huber, PEOPLE), {}, "huber on Gaussian: its gradients are not linear"),
    "shares that move": (
        pf.Problem(pf.losses.squared, pf.populations.Mixture(
            (PEOPLE, pf.populations.Gaussian(MEAN + 4, EPS, 1.0)),
            pf.populations.shares.Linear([0.5, 0.5], [0.02, -0.02]),
        )), {}, "on Mixture: its gradients are not linear",
    ),
    "krum": (PROBLEM, {"aggregator": pf.aggregators.Krum(0)}, "aggregator=Krum is not linear"),
    "trimmed": (PROBLEM, {"aggregator": pf.aggregators.TrimmedMean(0.34)}, "aggregator=TrimmedMean is not linear"),
    "extrapolation": (
        PROBLEM, {"aggregator": pf.aggregators.Extrapolate(pf.aggregators.Mean())}, "aggregator=Extrapolate is not",
    ),
    "adam": (
        PROBLEM, {"aggregator": pf.aggregators.ServerOpt(pf.aggregators.Mean(), pf.optimizers.Adam())},
        "aggregator=ServerOpt is not linear",
    ),
    "a clip that bites": (PROBLEM, {"channel": pf.channels.ClippedNoise(0.01, 0.1)}, "channel=ClippedNoise is not"),
    "a window": (
        PROBLEM, {"estimator": pf.estimators.Performative(5), "batch": pf.Fixed(4)}, "estimator=Performative is not",
    ),
}  # fmt: skip


def refuse(problem, parts, told):
    with pytest.raises(ValueError, match=r"^moments: .*\[not-affine\]$") as raised:
        pf.moments(problem, pf.p_fedavg(0.1, **parts), 5)
    assert told in str(raised.value), str(raised.value)


@pytest.mark.parametrize("case", TOLD)
def test_told_by_the_parts(case):
    refuse(*TOLD[case])


@pytest.mark.parametrize("case", FOUND)
def test_found_by_trying(case):
    refuse(*FOUND[case])


@pytest.mark.slow
@pytest.mark.parametrize("case", FOUND_LATE)
def test_all_that_is_found_by_trying(case):
    refuse(*FOUND_LATE[case])


def test_a_game_is_no_problem():
    game = pf.cases.linear_game([1.0, 2.0], [[-1.0, 0.1], [0.2, -1.0]], 1.5)
    with pytest.raises(ValueError, match="problem must be a Problem; got a Game"):
        pf.moments(game, pf.p_fedavg(0.1), 5)


def test_too_much_to_remember():
    """2,000 clients with a control variate and the one that they last sent."""
    many = pf.Problem(pf.losses.squared, pf.populations.Gaussian(np.zeros((2_000, 3)), 0.1, 1.0))
    with pytest.raises(ValueError, match=r"2,000 clients that remember 3 numbers each need a covariance of 0\.\d GB"):
        pf.moments(many, pf.fedvarp(0.1), 2)


def test_stability_refuses_the_same():
    with pytest.raises(ValueError, match="participation=PowerOfChoice has no cohort distribution"):
        pf.stability(PROBLEM, pf.p_fedavg(0.1, participation=pf.PowerOfChoice(1, 2)), {"rate": [0.1]})


@pytest.mark.slow
def test_an_exact_rule_of_ones_own_is_taken():
    """As a `Gaussian` of the same numbers."""
    found = pf.moments(pf.Problem(pf.losses.squared, Straight(MEAN)), pf.p_fedavg(0.1), 5)
    known = pf.theory.gaussian_moments(MEAN, np.full(3, 0.3), np.ones(3), np.full(5, 0.1))
    np.testing.assert_allclose(found.mean, known.mean, rtol=1e-12)
    np.testing.assert_allclose(found.covariance[:, 0, 0], known.variance, rtol=1e-12)


@pytest.mark.slow
def test_a_clip_out_of_reach_is_none():
    """At a start where an update is exactly 0, too."""
    found = pf.moments(PROBLEM, pf.p_fedavg(0.1, channel=pf.channels.ClippedNoise(1e4, 0.0)), 5)
    known = pf.theory.gaussian_moments(MEAN, EPS, np.ones(3), np.full(5, 0.1))
    np.testing.assert_allclose(found.covariance[:, 0, 0], known.variance, rtol=1e-10)


@pytest.mark.slow
def test_different_rows_of_a_table():
    """Uniform(n) of m rows: Var of their mean is sigma^2 (m - n) / (n (m - 1))."""
    still = pf.Problem(pf.losses.squared, pf.populations.Database(ROWS))
    found = pf.moments(still, pf.p_fedavg(0.5, batch=pf.batches.Uniform(6)), 1, 0.0)
    variance = np.mean(ROWS.var(axis=1) * (8 - 6) / (6 * 7)) / 3 * 0.5**2
    np.testing.assert_allclose(found.covariance[1, 0, 0], variance, rtol=1e-12)


@pytest.mark.slow
def test_no_long_run_where_people_drift():
    drifting = pf.populations.Drifting(PEOPLE, pf.paths.Linear(0.05))
    found = pf.moments(pf.Problem(pf.losses.squared, drifting), pf.p_fedavg(0.1), 3)
    assert found.stationary is None and found.verdict == "settles"
