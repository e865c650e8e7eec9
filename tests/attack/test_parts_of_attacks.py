"""What the attacks are made of, against computations of another kind; and the one call for all of them."""

import json
import math

import jax.numpy as jnp
import numpy as np
import pytest
from scipy import optimize, stats

import performative as pf
from performative.privacy import attack
from performative.privacy.attack.bounds import at_least, at_most, epsilon_lower
from performative.privacy.attack.crafted import Neighbors, OneHot, craft, score
from performative.privacy.attack.planting import run_coins
from performative.privacy.attack.target import STRETCH, read_target
from performative.privacy.attack.trials import gaussian_delta


@pytest.mark.parametrize(("count", "trials"), [(0, 10), (3, 10), (10, 10), (40, 5000)])
def test_clopper_pearson_solves_its_equation(count, trials):
    alpha = 1e-3

    def root(tail):
        return optimize.brentq(lambda p: tail(p) - alpha, 1e-12, 1 - 1e-12, xtol=1e-14)

    low = root(lambda p: stats.binom.sf(count - 1, trials, p)) if count else 0.0
    high = root(lambda p: stats.binom.cdf(count, trials, p)) if count < trials else 1.0
    assert math.isclose(at_least(np.asarray(count), trials, alpha), low, rel_tol=1e-6, abs_tol=1e-12)
    assert math.isclose(at_most(np.asarray(count), trials, alpha), high, rel_tol=1e-6)


def test_bound_lies_below_a_gaussian_and_near_it():
    rng, mu, epsilon, n = np.random.default_rng(3), 1.0, 1.0, 20_000
    delta = gaussian_delta(epsilon, mu)
    lows = [epsilon_lower(rng.normal(mu, 1, n), rng.normal(0, 1, n), delta, 0.999).lower for _ in range(50)]
    assert max(lows) < epsilon
    assert np.mean(lows) > 0.8 * epsilon


def test_bound_from_what_shows_the_absence():
    rng, n = np.random.default_rng(0), 4000
    present = rng.normal(size=n)
    absent = np.where(rng.random(n) < 0.2, -20.0, rng.normal(size=n))
    # No score above a threshold tells much; one below -10 tells all.
    low = epsilon_lower(present, absent, 0.0, 0.999).lower
    assert math.log(0.15 / 0.003) < low < math.log(0.25 / 0.002)


def test_bound_is_no_more_than_the_trials_can_say():
    far = epsilon_lower(np.full(1000, 5.0), np.zeros(1000), 0.0, 0.999).lower
    assert far == pytest.approx(math.log((0.0005 ** (1 / 750)) / (1 - 0.0005 ** (1 / 750))), rel=1e-6)
    same = epsilon_lower(np.zeros(1000), np.zeros(1000), 0.0, 0.999).lower
    assert same == 0.0


def test_gaussian_delta_is_an_integral():
    epsilon, mu = 0.7, 0.9
    y = np.linspace(-12, 12, 400_001)
    gap = np.maximum(stats.norm.pdf(y - mu) - math.exp(epsilon) * stats.norm.pdf(y), 0)
    assert gaussian_delta(epsilon, mu) == pytest.approx(np.trapezoid(gap, y), rel=1e-6)


BATCHES = [pf.Fixed(3), pf.Uniform(2), pf.Poisson(0.3, 5), pf.Shuffled(2)]


@pytest.mark.parametrize("relation", ["replace", "remove"])
@pytest.mark.parametrize("batch", BATCHES, ids=lambda batch: type(batch).__name__)
def test_score_is_the_likelihood_ratio(batch, relation):
    rows, noise, size = 5, 0.8, float(np.asarray(batch.expected(pf.populations.Database(np.zeros(5)))))
    pair = craft(rows, relation, batch.sampling(rows), True)
    y = np.random.default_rng(0).normal(size=(3, 4)) + pair.others * size

    def law(mine):
        """The chance of y by summing over every way to draw row 0, the others' part being known."""
        center, up = pair.others * size, mine - pair.others
        if isinstance(batch, pf.Shuffled):  # two batches of two an epoch, one row left out
            epochs = y.reshape(3, 2, 2)
            ways = [(0.4, (up, 0.0)), (0.4, (0.0, up)), (0.2, (0.0, 0.0))]
            each = sum(p * np.prod(stats.norm.pdf(epochs, center + np.asarray(w), noise), axis=-1) for p, w in ways)
            return np.prod(each, axis=1)
        chances = {
            "Fixed": [math.comb(3, k) * 0.2**k * 0.8 ** (3 - k) for k in range(4)],
            "Uniform": [0.6, 0.4],
            "Poisson": [0.7, 0.3],
        }[type(batch).__name__]
        return np.prod(sum(p * stats.norm.pdf(y, center + k * up, noise) for k, p in enumerate(chances)), axis=1)

    expected = np.log(law(1.0) / law(pair.absent))
    np.testing.assert_allclose(score(y, noise, pair, batch.sampling(rows), size, True), expected, rtol=1e-9, atol=1e-12)


def test_tables_differ_in_one_row():
    with_row, without = Neighbors(4, "remove", -1.0).tables(2.0)
    assert with_row.tolist() == [2.0, -2.0, -2.0, -2.0] and without.tolist() == [0.0, -2.0, -2.0, -2.0]


@pytest.mark.slow
def test_canaries_run_the_same_rounds_as_run():
    algorithm, coins = pf.pcsgd(0.5, 2.0, 1.5, batch=pf.Fixed(2)), np.asarray([[True, False, True, True, False]])
    target = read_target(algorithm, 5, None)
    scores = run_coins(target, coins, rows=5, rounds=7, relation="replace", seed=3)
    problem = pf.Problem(OneHot(STRETCH * 2.0), pf.populations.Database(np.where(coins, 1, -1) * np.arange(1.0, 6.0)))
    history = pf.run(problem, target.algorithm, 7, theta=jnp.zeros(5), seed=3, record=pf.Record(risks=False))
    np.testing.assert_allclose(scores[0], -history.final[0], rtol=1e-5, atol=1e-6)


@pytest.mark.slow
def test_audit_of_examples():
    problem = pf.Problem(pf.losses.squared, pf.populations.Database(np.arange(20.0)))
    algorithm = pf.pcsgd(pf.schedules.harmonic(1.0, 10.0), 1.0, 2.0, batch=pf.Fixed(1), local_steps=3)
    findings = attack.estimate_epsilon(problem, algorithm, rounds=20, repeats=200, canaries=1000)
    assert len(findings) == 5 and not any(found.alarm for found in findings)
    assert {found.rows for found in findings} == {20, 2}
    assert all(0 <= found.lower < found.claimed < math.inf for found in findings)
    text = json.loads(json.dumps([found.to_dict() for found in findings]))
    assert text[0]["alarm"] is False and "no alarm" in text[0]["sentence"]


@pytest.mark.slow
def test_audit_of_clients():
    algorithm = pf.p_fedavg(
        0.1, channel=pf.channels.ClippedNoise(1.0, 6.0), participation=pf.SchemeTwo(4), local_steps=2
    )
    findings = attack.estimate_epsilon(None, algorithm, rounds=10, repeats=100, canaries=0)
    assert len(findings) == 4 and all(found.unit == "client" and not found.alarm for found in findings)


@pytest.mark.slow
def test_audit_where_nothing_is_claimed():
    findings = attack.estimate_epsilon(None, pf.p_fedavg(0.1), rows=10, rounds=30, repeats=200)
    assert findings[0].lower > 2 and math.isinf(findings[0].claimed) and not findings[0].alarm
    assert findings[0].to_dict()["claimed"] is None and findings[0].sentence.startswith("No claim to test")


def test_refusals():
    algorithm = pf.pcsgd(0.1, 1.0, 1.0)
    with pytest.raises(ValueError, match="relation must be"):
        attack.neighbors(algorithm, relation="swap")
    with pytest.raises(ValueError, match="unit must be"):
        attack.neighbors(algorithm, unit="row")
    with pytest.raises(ValueError, match="repeats must be"):
        attack.neighbors(algorithm, repeats=3)
    with pytest.raises(ValueError, match="each: a run has 5 rows"):
        attack.canaries(algorithm, rows=5, each=6)
    with pytest.raises(ValueError, match="rate"):
        attack.neighbors(pf.pcsgd(0.0, 1.0, 1.0), repeats=8)


def test_chances_that_are_none_are_refused():
    for wrong in ({"delta": 7.0}, {"confidence": -np.inf}):
        with pytest.raises(ValueError, match="must lie between 0 and 1"):
            pf.privacy.attack.canaries(pf.p_fedavg(0.1), rows=4, **wrong)
