"""The law of a cohort: stated moments against draws of `select`, and against all cohorts gone through one by one."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats

import performative as pf
from performative._base.sampling import ways
from performative.facts import declared
from performative.participation import ConstantLatency, DayNight, Exponential, LogNormal, UniformLatency, UniformSteps
from performative.participation.law import moments_of

P = np.asarray([0.4, 0.25, 0.2, 0.1, 0.05])
N = len(P)
DRAWS = 200_000
RATES = np.asarray([0.9, 0.3, 1.0, 0.5, 0.3])
NIGHT = DayNight(period=4, phase=[0.0, 1.0, 2.0, 3.0, 0.0], high=0.8, low=0.1)
# With rounds that belong to different groups, and hours of the day.
SCHEMES = {
    "full": pf.Full(),
    "one draw": pf.SchemeOne(1),
    "with replacement": pf.SchemeOne(3),
    "chances of one's own": pf.participation.Weighted(3, [1.0, 4.0, 2.0, 3.0, 0.5]),
    "without replacement": pf.SchemeTwo(2),
    "all without replacement": pf.SchemeTwo(5),
    "one client": pf.SchemeTwo(1),
    "first": pf.FirstK(3, Exponential(2.0)),
    "groups": pf.Cyclic([[0, 3], [1, 2, 4]]),
    "some of a group": pf.Cyclic([[0, 3], [1, 2, 4]], k=2),
    "there": pf.Available(RATES),
    "there, renormalized": pf.Available(RATES, weigh="renormalized"),
    "there, at most two": pf.Available(RATES, k=2),
    "there, at most one": pf.Available(0.4, k=1),
    "there, at most all": pf.Available(RATES, k=5),
    "there, at most two, renormalized": pf.Available(RATES, k=2, weigh="renormalized"),
    "by day": pf.Available(NIGHT),
    "by day, at most three": pf.Available(NIGHT, k=3),
    "asleep": pf.Available(DayNight(period=2, phase=[0, 1, 0, 1, 0]), k=2, weigh="renormalized"),
    "turns": pf.participation.Turns([0, 1, 2, 1, 0], k=2),
    "random turns": pf.participation.Turns([0, 1, 2, 1, 0], k=2, random=True),
    "work": pf.LocalWork(pf.SchemeOne(2), UniformSteps(1, 2)),
}
# The others take as long to compile, and are drawn in the same ways.
QUICK = (
    "with replacement",
    "chances of one's own",
    "without replacement",
    "some of a group",
    "there, at most two",
    "random turns",
)
DRAWN = [pytest.param(s, id=name, marks=[] if name in QUICK else pytest.mark.slow) for name, s in SCHEMES.items()]
FACTS = ("cohort_moments", "cohorts", "cohort_count")


@pytest.mark.parametrize("round", [0, 3])
@pytest.mark.parametrize("scheme", SCHEMES.values(), ids=SCHEMES)
def test_the_stated_moments_are_those_of_all_cohorts(scheme, round):
    stated, cohorts, count = (declared(scheme, fact, P, round) for fact in FACTS)
    cohorts = list(cohorts)
    assert sum(probability for probability, _, _ in cohorts) == pytest.approx(1.0, abs=1e-12)
    assert len(cohorts) <= count
    assert all(len(np.unique(ids)) == len(ids) == len(weight) for _, ids, weight in cohorts)
    listed = moments_of(cohorts, N)
    for name in ("present", "weight", "both", "covariance"):
        np.testing.assert_allclose(getattr(stated, name), getattr(listed, name), rtol=0, atol=1e-12, err_msg=name)
    assert np.all(np.linalg.eigvalsh(stated.covariance.transpose(0, 2, 1, 3).reshape(2 * N, 2 * N)) > -1e-12)


@pytest.mark.usefixtures("optimized_programs")
@pytest.mark.parametrize("scheme", DRAWN)
def test_the_stated_moments_are_those_of_what_is_drawn(scheme):
    """200,000 cohorts; all entries of a scheme together fail with probability 1e-3 (Bonferroni)."""
    stated = scheme.cohort_moments(P, 3)
    drawn = draws(scheme, P, 3)
    square, upper = drawn**2, np.triu_indices(2 * N)
    mean, pairs, fourth = drawn.mean(axis=0), drawn.T @ drawn / DRAWS, square.T @ square / DRAWS
    found = np.concatenate([mean, pairs[upper]])
    spread = np.concatenate([square.mean(axis=0) - mean**2, (fourth - pairs**2)[upper]])
    both = stated.both.transpose(0, 2, 1, 3).reshape(2 * N, 2 * N)
    expected = np.concatenate([stated.present, stated.weight, both[upper]])
    sure = spread < 1e-12
    np.testing.assert_allclose(found[sure], expected[sure], rtol=1e-9, atol=1e-12)
    z = np.abs(found - expected)[~sure] / np.sqrt(spread[~sure] / DRAWS)
    assert np.all(z < stats.norm.isf(1e-3 / 2 / len(found))), z


def draws(scheme, weights, round):
    """z and a of many cohorts, [draws, 2 N]."""
    with jax.enable_x64(True):
        tables = jax.tree.map(jnp.asarray, scheme.tables(weights))
        selection = pf.participation.Selection(jnp.asarray(weights), tables, jnp.asarray(round), jnp.zeros(()))

        def one(key):
            cohort, _ = scheme.select(key, selection, scheme.init(len(weights)))
            rows = jnp.where(cohort.present, jnp.stack([jnp.ones_like(cohort.weight), cohort.weight]), 0)
            return jnp.zeros((2, len(weights))).at[:, cohort.ids].add(rows, mode="drop").ravel()

        return np.asarray(jax.jit(jax.vmap(one))(jax.random.split(jax.random.key(0), DRAWS)))


@pytest.mark.parametrize("k", [1, 2, 6])
def test_many_clients_with_few_rates(k):
    """Clients of equal rates share sums; one more client with a rate of its own does not change the rule."""
    rates = np.asarray([0.2] * 5 + [0.7] * 2 + [1.0])
    p = np.arange(1.0, 9.0) / 36
    scheme = pf.Available(rates, k=k)
    listed = scheme.enumerated_moments(p, 0)
    np.testing.assert_allclose(scheme.cohort_moments(p, 0).both, listed.both, rtol=0, atol=1e-12)
    np.testing.assert_allclose(listed.weight, p, rtol=0, atol=1e-12)


def test_many_clients_that_come_by_themselves():
    some = pf.Available(0.3, k=10).cohort_moments(np.full(500, 1 / 500), 0)
    np.testing.assert_allclose(some.weight, 1 / 500, rtol=1e-10)
    np.testing.assert_allclose(some.present, 10 / 500, rtol=1e-10)
    assert pf.Available(np.linspace(0.1, 0.9, 500), k=10).cohort_moments(np.full(500, 1 / 500), 0) is None
    assert pf.Available(0.3, weigh="renormalized").cohort_moments(np.full(500, 1 / 500), 0) is None


def test_draws_in_proportion_to_weights_that_do_not_sum_to_one():
    scheme = pf.SchemeOne(2)
    np.testing.assert_allclose(scheme.cohort_moments(2 * P, 0).both, scheme.cohort_moments(P, 0).both, atol=1e-15)
    nobody = np.asarray([0.5, 0.0, 0.5])
    assert {int(i) for _, ids, _ in scheme.cohorts(nobody, 0) for i in ids} == {0, 2}
    np.testing.assert_allclose(scheme.cohort_moments(nobody, 0).present, [0.75, 0, 0.75])


UNKNOWN = {
    "fast clients": pf.FirstK(2, LogNormal(np.arange(1.0, 6.0))),
    "all equally fast": pf.FirstK(2, ConstantLatency(1.0)),
    "no spread": pf.FirstK(2, LogNormal(1.0, 0.0)),
    "losses": pf.PowerOfChoice(k=2, d=3),
    "asynchronous": pf.Asynchronous(buffer=2),
    "people leave": pf.participation.Retention(pf.Full(), stay=pf.participation.Patience(1.0)),
    "work of one that is not known": pf.LocalWork(pf.PowerOfChoice(k=2, d=3), [1] * 5),
}


@pytest.mark.parametrize("scheme", UNKNOWN.values(), ids=UNKNOWN)
def test_what_is_not_known_is_not_stated(scheme):
    assert all(declared(scheme, fact, P, 0) is None for fact in FACTS)


def test_a_class_that_overrides_promises_nothing():
    class Mine(type(pf.Full())):
        pass

    assert declared(Mine(), "cohort_moments", P, 0) is None
    assert declared(pf.LocalWork(Mine(), [1] * 5), "cohort_moments", P, 0) is None


def test_latencies_of_one_law():
    alike = [Exponential(3.0), LogNormal(), UniformLatency([2.0, 2.0])]
    assert all(declared(latency, "exchangeable") for latency in alike)
    assert not any(declared(latency, "exchangeable") for latency in (LogNormal(1.0, [1.0, 2.0]), ConstantLatency()))


def test_after_how_many_rounds_it_repeats():
    def rounds(scheme):
        return declared(scheme, "repeats_after", 6)

    assert [rounds(pf.Full()), rounds(pf.SchemeOne(2)), rounds(pf.FirstK(2, Exponential()))] == [1, 1, 1]
    assert rounds(pf.Cyclic(3)) == 3
    assert rounds(pf.LocalWork(pf.Cyclic(2), [1] * 6)) == 2
    assert rounds(pf.participation.Turns(6, k=4)) == 3
    assert rounds(pf.participation.Turns(6, k=4, random=True)) == 1
    assert rounds(pf.Available(0.5)) == 1
    assert rounds(pf.Available(DayNight(period=24))) == 24
    assert rounds(pf.Available(DayNight(period=[4, 6, 4, 4, 4, 4]))) == 12
    assert rounds(pf.Available(DayNight(period=2.5))) is None
    assert rounds(pf.PowerOfChoice(k=1, d=2)) is None


def test_the_law_of_local_steps():
    np.testing.assert_array_equal(declared(pf.Full(), "step_law", 2, 3), [[0, 0, 1]] * 2)
    listed = declared(pf.LocalWork(pf.Full(), [2, 1, 4]), "step_law", 3, 1)
    np.testing.assert_array_equal(listed, [[0, 1, 0, 0], [1, 0, 0, 0], [0, 0, 0, 1]])
    drawn = declared(pf.LocalWork(pf.Full(), UniformSteps(2, 3)), "step_law", 2, 1)
    np.testing.assert_array_equal(drawn, [[0, 0.5, 0.5]] * 2)
    assert declared(pf.LocalWork(pf.Full(), pf.participation.AdaComm(4)), "step_law", 2, 1) is None
    assert declared(pf.PowerOfChoice(k=1, d=2), "step_law", 2, 3) is None


def test_too_many_clients_or_cohorts():
    many = np.full(4001, 1 / 4001)
    there = pf.Available(0.5), pf.Available(0.5, k=3)
    for scheme in (pf.Full(), pf.SchemeOne(2), pf.SchemeTwo(2), pf.Cyclic(1), *there):
        with pytest.raises(ValueError, match="at most 4,000 clients"):
            scheme.cohort_moments(many, 0)
    assert pf.SchemeTwo(500).cohort_count(np.full(10_000, 1e-4), 0) == np.inf
    assert ways(5, 2) == 10 and ways(2, 5) == 0
    with pytest.raises(ValueError, match="needs 1 <= k <= 5 clients"):
        pf.SchemeTwo(6).cohort_moments(P, 0)
