"""Every part that ships keeps the contract of its slot."""

import numpy as np
import pytest

import performative as pf
from performative.testing import check_part

# The shapes of check_part's own small problem, so that what JAX compiles step by step is shared.
RNG = np.random.default_rng(0)
X, LABELS = RNG.standard_normal((7, 6, 3)), RNG.integers(0, 2, (7, 6))
GAUSSIAN = pf.populations.Gaussian(np.arange(7.0), 0.5, 1.0)


def slowly(*case):
    """A part whose slot is shown by another one here, and that meets all others in tests/parity/test_every_pair.py."""
    return pytest.param(*case, marks=pytest.mark.slow)


COMMON = {"types_stay", "jit_equals_eager", "vmap_equals_loop", "compiles_once"}


@pytest.mark.parametrize(
    ("part", "rules"),
    [
        slowly(pf.Full(), set()),
        (pf.SchemeOne(3), set()),
        slowly(pf.SchemeTwo(3), set()),
        slowly(pf.FirstK(3, pf.participation.Exponential(np.arange(1.0, 8.0))), {"sweeps"}),
        slowly(pf.LocalWork(pf.SchemeOne(3), [1, 2, 3, 2, 1, 3, 1]), set()),
        slowly(pf.LocalWork(pf.SchemeTwo(3), pf.participation.UniformSteps(1, 4)), set()),
    ],
    ids=lambda value: type(value).__name__,
)
def test_participation(part, rules):
    assert set(check_part(part)) == COMMON | {"cohort", "relabelling", "in_a_round"} | rules


@pytest.mark.parametrize(
    ("part", "rules"),
    [
        (pf.Fixed(2), set()),
        slowly(pf.Uniform(2), set()),
        slowly(pf.Shuffled(2), {"saves"}),
        slowly(pf.Poisson(0.5, 4), {"sweeps"}),
        slowly(pf.Whole(), set()),
    ],
    ids=lambda value: type(value).__name__,
)
def test_batches(part, rules):
    assert set(check_part(part)) == COMMON | {"padding", "in_a_round"} | rules


@pytest.mark.parametrize(
    "part",
    [
        pf.populations.Gaussian(RNG.standard_normal((7, 3)), RNG.uniform(0, 0.3, (7, 3, 3)), 1.0),
        slowly(pf.populations.Contaminated(GAUSSIAN, 0.1, pf.populations.Gaussian(9.0, 0.0, 1.0))),
        slowly(pf.populations.Strategic(X, LABELS, 0.5, features=(0, 2), count=[1, 2, 3, 4, 6, 5, 2])),
        slowly(pf.populations.Sluggish(GAUSSIAN, np.linspace(0.2, 1.0, 7))),
    ],
    ids=["Gaussian", "Contaminated", "Strategic", "Sluggish"],
)
def test_populations(part):
    ragged = {"padding"} if getattr(part, "count", None) is not None else set()
    remembers = {"saves", "settling"} if isinstance(part, pf.populations.Sluggish) else set()
    assert set(check_part(part)) == COMMON | {"sweeps", "nodes", "expectations", "in_a_round"} | ragged | remembers


PRICES = pf.Problem(pf.losses.negative_revenue, GAUSSIAN)
RIDGE = pf.Problem(pf.losses.ridge(0.1), GAUSSIAN)
SHARES = pf.populations.shares
STAYS = pf.populations.Gaussian(RNG.standard_normal(7), 0.0, 1.0)
COVARIANCE = np.eye(3) + 0.3 * np.ones((7, 3, 3))
LINES = tuple(pf.populations.Regression(np.ones(7), 1.0, slope, 0.0, 2.0) for slope in (1.0, 3.0))
BUYERS = (
    pf.populations.Sluggish(pf.populations.Pricing(X[:, 0], 0.5, 1.0), 0.3),
    pf.populations.Outliers(1.0, 1.0),
)
ONE_LAW_EACH = pf.populations.Mixture(
    [pf.populations.Outliers(5.0, 1.0, law) for law in ("normal", "cauchy")],
    SHARES.Constant(np.eye(2)[[0, 1] * 3 + [0]]),
)


@pytest.mark.parametrize(
    ("part", "options"),
    [
        slowly(pf.populations.Pricing(X[:, 0], RNG.uniform(0, 1, (7, 3, 3)), 1.0), {"problem": PRICES}),
        slowly(pf.populations.Regression(np.ones(7), 1.0, 1.0, np.linspace(0, 1, 7), 0.5), {"problem": RIDGE}),
        slowly(pf.populations.Regression(X[:, 0], COVARIANCE, X[:, 1], X[:, 2], 0.5), {"problem": RIDGE}),
        slowly(pf.populations.Mixture((STAYS, GAUSSIAN), SHARES.Linear([0.5, 0.5], [0.1, -0.1])), {"problem": PRICES}),
        slowly(pf.populations.Mixture(LINES, SHARES.Losses([1.0, 3.0], 2.0, 2.0, np.arange(7.0))), {"problem": RIDGE}),
        slowly(pf.populations.Mixture(BUYERS, SHARES.Budgets(np.abs(X[:, :2]), 10.0)), {"problem": PRICES}),
        slowly(pf.populations.Classes(X[0, :2], RNG.uniform(0, 1, (7, 2)), 0.5, [0.3, 0.7]), {}),
        slowly(pf.populations.Strategic(X, LABELS, RNG.uniform(0, 1, (7, 2)), count=[1, 2, 3, 4, 6, 5, 2]), {}),
        slowly(pf.populations.Outliers(np.arange(7.0), 2.0, "student3"), {"theta": np.zeros(3)}),
        slowly(pf.populations.Contaminated(GAUSSIAN, np.linspace(0, 0.4, 7), ONE_LAW_EACH), {}),
    ],
    ids=[
        "Pricing", "Regression", "Regression of vectors", "Linear", "Losses", "Budgets", "Classes", "by label",
        "Outliers", "one law each",
    ],
)  # fmt: skip
def test_reacting_populations(part, options):
    ragged = {"padding"} if getattr(part, "count", None) is not None else set()
    slow = isinstance(getattr(part, "groups", (0,))[0], pf.populations.Sluggish)
    remembers = {"saves", "settling"} if slow else set()
    assert (
        set(check_part(part, **options))
        == COMMON | {"sweeps", "nodes", "expectations", "in_a_round"} | ragged | remembers
    )


SHIFT = pf.populations.shifts.Linear


@pytest.mark.parametrize(
    ("part", "theta"),
    [
        slowly(pf.populations.Database(X[:, :, 0], SHIFT(0.3), count=[1, 2, 3, 4, 6, 5, 2]), None),
        slowly(pf.populations.Database(X, SHIFT(RNG.uniform(0, 0.3, (7, 3, 3))), noise=np.linspace(0, 1, 7)), None),
        slowly(pf.populations.Database(X), np.zeros(3)),
    ],
    ids=["numbers", "vectors with noise", "data that stay"],
)
def test_databases(part, theta):
    ragged = {"padding"} if part.count is not None else set()
    assert set(check_part(part, theta=theta)) == COMMON | {"sweeps", "nodes", "expectations", "in_a_round"} | ragged


@pytest.mark.slow
def test_reweighted():
    part = pf.populations.Reweighted(X, RNG.integers(0, 3, (7, 6)), temperature=2.0)
    assert {"saves", "settling", "sweeps", "nodes", "expectations", "in_a_round"} < set(
        check_part(part, theta=np.zeros((3, 3)))
    )


@pytest.mark.parametrize(
    ("part", "rules"),
    [
        (pf.estimators.Minibatch(), {"padding", "in_a_round"}),
        slowly(pf.estimators.Clipped(0.5, 1.0), {"padding", "in_a_round", "sweeps"}),
        slowly(pf.estimators.Clipped(0.5, 1.0, block=3), {"padding", "in_a_round", "sweeps"}),
        slowly(pf.estimators.Dice(0.5, 1.0, 1.0), {"padding", "in_a_round", "sweeps", "saves"}),
        slowly(pf.estimators.ClippedModel(), {"padding", "in_a_round", "sweeps"}),
        (pf.channels.Plain(), {"in_a_round"}),
        slowly(pf.channels.ClippedNoise(0.5, 1.0), {"in_a_round", "sweeps"}),
        (pf.aggregators.Mean(), {"padding", "relabelling", "in_a_round"}),
        slowly(pf.schedules.constant(0.1), {"sweeps", "step_size"}),
        (pf.schedules.harmonic(20.0, 200.0), {"sweeps", "step_size"}),
        (pf.Box(-1.0, [0.5, 1.0, 2.0]), {"sweeps", "projection", "in_a_round"}),
        slowly(pf.Ball(2.0), {"sweeps", "projection", "in_a_round"}),
    ],
    ids=lambda value: type(value).__name__,
)
def test_the_rest(part, rules):
    assert set(check_part(part)) == COMMON | rules


WINDOW = pf.estimators.Performative(7)
WATCHING = pf.pofl(0.1, window=7, batch=pf.Fixed(4), participation=pf.SchemeTwo(3))
SERVER = {"padding", "relabelling", "saves"}
# Step by step takes long where there are so many steps.
FAST = COMMON - {"jit_equals_eager"}


@pytest.mark.parametrize(
    ("part", "rules"),
    [
        slowly(WINDOW, {"saves", "sweeps"}),
        slowly(pf.estimators.Performative(7, term="pathwise", reset_after=3), {"saves", "sweeps"}),
        slowly(pf.estimators.Performative(None, term="pathwise"), {"sweeps", "jit_equals_eager"}),
        slowly(pf.estimators.Filtered(pf.estimators.Minibatch()), {"sweeps", "jit_equals_eager"}),
        slowly(pf.estimators.AdaptiveSize(WINDOW, 1.0, least=2), {"saves", "sweeps"}),
    ],
    ids=["score", "pathwise", "known reaction", "Filtered", "AdaptiveSize"],
)
def test_performative_gradients(part, rules):
    skip = {"jit_equals_eager"} - rules
    assert set(check_part(part, skip=skip)) == FAST | {"padding", "in_a_round"} | rules


@pytest.mark.parametrize(
    ("part", "rules"),
    [
        slowly(pf.aggregators.PooledJacobian(memory=9), set()),
        slowly(pf.aggregators.PooledJacobian(pf.aggregators.Varp(), clusters=2, alike=True), {"sitting_out"}),
    ],
    ids=["one estimate", "clusters"],
)
def test_servers_that_learn_the_reaction(part, rules):
    found = check_part(part, algorithm=WATCHING, skip=["jit_equals_eager"])
    assert set(found) == FAST | SERVER | {"sweeps", "in_a_round"} | rules


@pytest.mark.slow
def test_servers_that_remember_clients():
    assert set(check_part(pf.aggregators.Varp())) == COMMON | SERVER | {"sitting_out", "in_a_round"}


@pytest.mark.slow
def test_pooled():
    part = pf.Problem(pf.losses.squared, pf.populations.Sluggish(GAUSSIAN, 0.5)).pooled().population
    assert set(check_part(part)) == COMMON | {"sweeps", "nodes", "expectations", "in_a_round", "saves", "settling"}


def test_company_can_be_given():
    one = pf.Algorithm(rate=0.1, participation=pf.SchemeOne(3))
    assert "relabelling" in check_part(pf.aggregators.Mean(of="models"), algorithm=one, skip=["in_a_round"])


CONTROLLED = pf.scaffold(0.1, batch=pf.Fixed(2), participation=pf.SchemeTwo(3))
PRIOR = {"padding", "relabelling", "in_a_round"}
DIFFER = {
    "Prox": (pf.estimators.Prox(pf.estimators.Minibatch(), 0.5), None, {"padding", "in_a_round", "sweeps"}),
    "Preconditioned": (
        pf.estimators.Preconditioned(pf.estimators.Minibatch(), pf.optimisers.Adam()), None,
        {"padding", "in_a_round", "saves", "sweeps"},
    ),
    "ControlVariate": (CONTROLLED.estimator, CONTROLLED, {"padding", "in_a_round", "saves"}),
    "Scaffold": (CONTROLLED.aggregator, CONTROLLED, PRIOR | {"saves"}),
    "Nova": (pf.aggregators.Nova(), None, PRIOR | {"saves", "sitting_out"}),
    "ServerOpt": (
        pf.aggregators.ServerOpt(pf.aggregators.Mean(), pf.optimisers.Yogi()), None, PRIOR | {"saves", "sweeps"},
    ),
    "Median": (pf.aggregators.Median(), None, PRIOR),
    "TrimmedMean": (pf.aggregators.TrimmedMean(0.34), None, PRIOR | {"sweeps"}),
    "Krum": (pf.aggregators.Krum(1, 2), pf.p_fedavg(0.1, participation=pf.SchemeTwo(5)), PRIOR),
    "Extrapolate": (pf.aggregators.Extrapolate(cap=3.0), None, PRIOR | {"sweeps"}),
    "ClusterVarp": (pf.aggregators.ClusterVarp([0, 1, 2, 0, 1, 2, 0]), None, PRIOR | {"saves"}),
    "Sparse": (pf.channels.Sparse(2), None, {"saves", "sweeps", "in_a_round"}),
    "Quantised": (pf.channels.Quantised(4), None, {"saves", "sweeps", "in_a_round"}),
    "PowerOfChoice": (pf.PowerOfChoice(2, 4), None, {"cohort", "relabelling", "in_a_round"}),
    "Cyclic": (pf.Cyclic([[0, 1, 2], [3, 4], [5, 6]]), None, {"cohort", "relabelling", "in_a_round"}),
    "Available": (pf.Available(0.7), None, {"cohort", "relabelling", "in_a_round", "sweeps"}),
    "AdaComm": (
        pf.LocalWork(pf.SchemeTwo(3), pf.participation.AdaComm(4)), None,
        {"cohort", "relabelling", "in_a_round", "saves"},
    ),
}  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize("name", DIFFER)
def test_parts_for_clients_that_differ(name):
    part, algorithm, rules = DIFFER[name]
    assert set(check_part(part, algorithm=algorithm)) == COMMON | rules
