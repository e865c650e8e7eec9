"""Learning the optimal point: the same in every executor, with every other part, in pieces and in sweeps."""

import numpy as np
import pytest

import performative as pf
from performative.populations import Contaminated, Gaussian, Mixture, Outliers, Pricing
from performative.populations.shares import Budgets, Constant
from performative.sweep.names import set_by_name

CLIENTS = 5


P = np.asarray([0.3, 0.25, 0.2, 0.15, 0.1])
CLEAN = Pricing(np.linspace(6.0, 7.0, CLIENTS), np.linspace(1.0, 2.0, CLIENTS), 0.3)
# A share and a law of its own for each client.
STRAY = Mixture([Outliers(20.0, 1.0, law) for law in ("normal", "cauchy")], Constant(np.eye(2)[[0, 1, 0, 1, 1]]))
DIRTY = Contaminated(CLEAN, np.linspace(0.1, 0.3, CLIENTS), STRAY)
PRICES = pf.Problem(pf.losses.negative_revenue, CLEAN, P)
BAD_PRICES = pf.Problem(pf.losses.negative_revenue, DIRTY, P)
GROUPS = pf.Problem(
    pf.losses.negative_revenue,
    Mixture(
        (Gaussian(np.linspace(0.9, 1.1, CLIENTS), 0.0, 0.5), Gaussian(np.full(CLIENTS, 3.0), 0.0, 0.5)),
        Budgets((1.0, 3.0), np.linspace(9.0, 11.0, CLIENTS)),
    ),
    P,
    domain=pf.Box(0.0, 3.0),
)

# Windows of three, so that warm-up ends within the few rounds; a cohort of some of the clients.
SMALL = dict(window=3, batch=pf.Fixed(8), participation=pf.SchemeTwo(3))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("problem", "algorithm"),
    [
        (PRICES, pf.pofl(0.05, **SMALL)),
        pytest.param(
            BAD_PRICES, pf.profl(0.05, tolerance=1e4, **SMALL), marks=pytest.mark.slow
        ),  # all of PROFL: filter, window, sizes
        pytest.param(
            PRICES, pf.pofl(0.05, aggregator=pf.aggregators.PooledJacobian(), **SMALL), marks=pytest.mark.slow
        ),
        pytest.param(GROUPS, pf.pofl(0.05, **SMALL), marks=pytest.mark.slow),
    ],
    ids=["pofl", "profl", "pooled", "proportions"],
)
def test_executors_agree(problem, algorithm):
    runs = {
        executor: pf.run(
            problem, algorithm, 12, theta=1.0, dtype="float64", executor=executor, record=pf.Record(risks=False)
        )
        for executor in ("gather", "dense", "loop")
    }
    for executor in ("dense", "loop"):
        assert runs[executor].meta["executor"] == executor
        np.testing.assert_allclose(runs[executor].theta, runs["gather"].theta, rtol=1e-10)
        assert runs[executor].records.keys() == runs["gather"].records.keys()
        for name, values in runs["gather"].records.items():
            np.testing.assert_allclose(runs[executor][name], values, rtol=1e-9, atol=1e-12, err_msg=name)


# With every other part.


COMPANY = {
    "SchemeOne, LocalWork, clipping": dict(
        participation=pf.LocalWork(pf.SchemeOne(3), [1, 2, 3, 2, 1]),
        channel=pf.channels.ClippedNoise(0.1, 0.0),
        aggregator=pf.aggregators.Nova(),
    ),
    "SchemeTwo, Varp, Every": dict(participation=pf.SchemeTwo(3), aggregator=pf.aggregators.Varp(), deploy=pf.Every(2)),
    "round": dict(deploy="round", local_steps=2),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", COMPANY)
def test_the_optimum_is_found_in_any_company(name):
    """On data of which 10 to 30% are outliers, by a law of its own for each client."""
    algorithm = pf.profl(0.03, window=10, batch=pf.Fixed(200), estimator=robust(10), **COMPANY[name])
    history = pf.run(BAD_PRICES, algorithm, 120, theta=0.5, repeats=3, dtype="float64", record=pf.Record(risks=False))
    stable, optimal = pf.stable_point(PRICES), pf.optimal_point(PRICES)
    late = history.theta[:, -10:].mean(axis=1)
    assert history.status == "completed" and np.all(np.isfinite(history.theta))
    assert np.all(np.abs(late - optimal) < 0.5 * np.abs(late - stable))
    assert np.all(history["kept"] <= history["samples"])


def robust(window, **more):
    return pf.estimators.Filtered(pf.estimators.Performative(window, term="pathwise", **more))


@pytest.mark.slow
def test_without_the_second_term_it_is_the_stable_point():
    """The data are the same: what the tests above find is not in the data alone."""
    algorithm = pf.p_fedavg(0.1, batch=pf.Fixed(200), estimator=pf.estimators.Filtered(pf.estimators.Minibatch()))
    history = pf.run(BAD_PRICES, algorithm, 60, theta=0.5, dtype="float64", record=pf.Record(risks=False))
    stable, optimal = pf.stable_point(PRICES), pf.optimal_point(PRICES)
    assert np.abs(history.final - stable) < 0.1 * np.abs(stable - optimal)


# In pieces, and in sweeps.


@pytest.mark.slow
def test_a_run_that_stopped_goes_on(tmp_path):
    algorithm = pf.profl(0.05, tolerance=100.0, **SMALL | {"batch": pf.Fixed(50)})
    options = dict(theta=1.0, dtype="float64", record=pf.Record(risks=False))
    pf.run(BAD_PRICES, algorithm, 6, checkpoint=pf.Checkpoint(tmp_path / "a", every=3), **options)
    resumed = pf.run(
        BAD_PRICES, algorithm, 12, checkpoint=pf.Checkpoint(tmp_path / "a", every=3, resume=True), **options
    )
    unbroken = pf.run(BAD_PRICES, algorithm, 12, checkpoint=pf.Checkpoint(tmp_path / "b", every=3), **options)
    np.testing.assert_array_equal(resumed.theta, unbroken.theta)
    for name, values in unbroken.records.items():
        np.testing.assert_array_equal(resumed[name], values, err_msg=name)
    assert unbroken["samples"][0, -1] < unbroken["uploads"][0, -1] * 50  # the sizes were remembered too


@pytest.mark.slow
def test_sweeps_over_rates_and_over_what_is_inside():
    two_goods = Pricing(np.linspace(6.0, 7.0, 2 * CLIENTS).reshape(CLIENTS, 2), np.linspace(1.0, 2.0, CLIENTS), 1.0)
    problem = pf.Problem(pf.losses.negative_revenue, two_goods)

    def algorithm(rate, sparse, rtol):
        inner = pf.estimators.Performative(5, term="pathwise", rtol=rtol)
        return pf.p_fedavg(rate, batch=pf.Fixed(20), estimator=pf.estimators.Filtered(inner, sparse=sparse))

    over = {"rate": [0.02, 0.05], "estimator.sparse": [0.02, 0.2], "estimator.inner.rtol": [1e-6, 0.9]}
    sweep = pf.sweep(problem, algorithm(0.1, 0.1, 0.1), over, rounds=9, dtype="float64")
    assert len(sweep.settings) == 8 and sweep.programs == 1
    finals = np.concatenate([history.final for history in sweep.histories]).reshape(2, 2, 2, 2)
    for axis in range(3):
        assert np.all(np.abs(np.diff(finals, axis=axis)) > 1e-9)  # each of the three matters
    place = sweep.settings.index({"rate": 0.05, "estimator.sparse": 0.2, "estimator.inner.rtol": 1e-6})
    alone = pf.run(problem, algorithm(0.05, 0.2, 1e-6), 9, dtype="float64", record=pf.Record(risks=False))
    np.testing.assert_allclose(sweep.histories[place].theta, alone.theta, rtol=1e-9)


def test_a_sweep_keeps_the_family_that_was_given():
    """The argument `estimate` is kept under another name, since `estimate` is also the slot's verb."""
    given = pf.estimators.Performative(3, family=pf.families.Location(scale=2.0), reset_after=7)
    _, made = set_by_name(PRICES, pf.p_fedavg(0.1, estimator=given), "estimator.rtol", 0.5)
    assert made.estimator.family == given.family and made.estimator.reset_after == 7 and made.estimator.rtol == 0.5
