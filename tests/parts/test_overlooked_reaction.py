"""What a learner of the reaction cannot see, and says before a run."""

import jax.numpy as jnp
import numpy as np
import pytest

import performative as pf
from performative._base.messages import PerformativeWarning
from performative.estimators import Filtered, Performative
from performative.estimators.family_check import late_part, overlooked
from performative.populations import Contaminated, Database, Gaussian, Outliers, Pricing, Sluggish

START = jnp.asarray(0.5)
DIFFER = Gaussian([0.0, 1.0, 2.0], [0.2, 0.5, 0.8], 1.0)
PRICES = Pricing([6.0, 7.0, 6.5], [1.0, 2.0, 3.0], 1.0)


def check(population, estimator, loss=pf.losses.squared):
    problem = population if isinstance(population, pf.Problem) else pf.Problem(loss, population)
    estimator.check(problem, START, pf.Fixed(32))


def overlooks():
    return pytest.warns(PerformativeWarning, match=r"off by \d+%.*\[reaction-overlooked\]$")


def test_a_delay_is_told_by_how_much_is_still_to_come():
    slow = pf.Problem(pf.losses.squared, Sluggish(DIFFER, [0.2, 0.2, 0.2]))
    assert late_part(slow, START) == pytest.approx(0.8, rel=1e-4)
    with pytest.warns(PerformativeWarning, match=r"80% of the reaction is still to come.*\[delayed-reaction\]$"):
        check(slow, Performative(10))
    # Warnings are errors here: these say nothing.
    check(Sluggish(DIFFER, 1.0), Performative(10))
    check(slow, Performative(None, term="pathwise"))
    assert late_part(pf.Problem(pf.losses.squared, DIFFER), START) == 0


@pytest.mark.parametrize("term", ["score", "pathwise"])
def test_laws_that_are_what_they_are_taken_for_say_nothing(term):
    check(DIFFER, Performative(10, term=term))
    given = Performative(10, family=pf.families.Location(1.0), term=term)
    check(DIFFER, given)
    off, sure = overlooked(pf.Problem(pf.losses.squared, DIFFER), START, given.family, given._answer)
    assert off < 0.1 and not sure


def test_the_score_of_a_normal_law_is_wrong_for_skewed_rows():
    """For the squared loss s is off by the third central moment over twice the variance; dz/df is not."""
    rows = np.random.default_rng(0).exponential(1.0, (2, 5000))
    table = Database(rows, pf.populations.shifts.Linear(0.5))
    problem, score = pf.Problem(pf.losses.squared, table), Performative(10)
    centered = rows - rows.mean(axis=1, keepdims=True)
    wrong = np.mean(centered**3, axis=1) / (2 * np.mean(centered**2, axis=1))
    right = rows.mean(axis=1) + 0.5 * 0.5 - 0.5
    off, sure = overlooked(problem, START, pf.families.Location(), score._answer)
    assert sure and off == pytest.approx(wrong.mean() / np.abs(right).mean(), rel=0.2)
    with overlooks():
        check(problem, score)
    check(problem, Performative(10, term="pathwise"))


def test_outliers_do_not_move_with_the_rest():
    dirty = Contaminated(DIFFER, 0.2, Outliers(20.0, 1.0))
    with overlooks():
        check(dirty, Performative(10))
    check(dirty, Filtered(Performative(10)))  # which hands on what is clean
    assert dirty.clean is DIFFER and not dirty.exact_family
    slow = Sluggish(dirty, 0.5)
    assert isinstance(slow.clean, Sluggish) and slow.clean.inner is DIFFER and Sluggish(DIFFER, 0.5).exact_family


@pytest.mark.slow
def test_pooled_data_hide_who_reacts():
    """Unless what a reaction costs is the same for all: a price times a demand."""
    with overlooks():
        check(pf.Problem(pf.losses.squared, DIFFER).pooled(), Performative(10, term="pathwise"))
    alike = Gaussian([0.0, 1.0, 2.0], [0.5, 0.5, 0.5], 1.0)
    check(pf.Problem(pf.losses.squared, alike).pooled(), Performative(10, term="pathwise"))
    check(pf.Problem(pf.losses.negative_revenue, PRICES).pooled(), Performative(10))


def test_clients_that_work_more_count_for_more():
    work = pf.LocalWork(pf.Full(), [5, 1, 1])
    for recipe in (pf.pofl, pf.profl):
        with pytest.warns(PerformativeWarning, match=r"optimal point for other weights.*Nova.*\[unequal-work\]$"):
            recipe(0.1, window=5, participation=work)
        recipe(0.1, window=5, participation=work, aggregator=pf.aggregators.Nova())
        recipe(0.1, window=5, participation=work, aggregator=pf.aggregators.PooledJacobian(pf.aggregators.Nova()))
    pf.pofl(0.1, window=5, participation=pf.LocalWork(pf.Full(), [2, 2, 2]))
    pf.pofl(0.1, window=5, participation=pf.LocalWork(pf.Full(), pf.participation.UniformSteps(1, 4)))


# That the warnings are right: where such runs end.


def end(problem, algorithm, rounds=600, theta=0.5):
    history = pf.run(problem, algorithm, rounds, theta=theta, repeats=8, record=pf.Record(risks=False))
    late = history.theta[:, rounds // 2 :].mean(axis=1)
    return late.mean(), late.std(ddof=1) / np.sqrt(8)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::performative._base.messages.PerformativeWarning")
def test_where_the_reaction_is_overlooked_runs_end_beside_the_optimum():
    skewed = Database(
        np.random.default_rng(0).exponential(1.0, (3, 400)) * [[1.0], [2.0], [0.5]], pf.populations.shifts.Linear(0.5)
    )
    problem = pf.Problem(pf.losses.squared, skewed)
    optimal = float(pf.optimal_point(problem))
    found = {
        term: end(problem, pf.pofl(0.1, 20, batch=pf.Fixed(200), estimator=Performative(20, term=term)))
        for term in ("score", "pathwise")
    }
    assert abs(found["score"][0] - optimal) > 10 * found["score"][1]
    assert abs(found["pathwise"][0] - optimal) < 4 * found["pathwise"][1] + 0.02


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::performative._base.messages.PerformativeWarning")
def test_unequal_work_ends_at_the_optimum_of_other_weights():
    population, tau = Gaussian([0.0, 4.0, 2.0], [0.2, 0.5, 0.8], 0.5), np.asarray([5, 1, 1])
    problem = pf.Problem(pf.losses.squared, population)
    other = float(pf.optimal_point(pf.Problem(pf.losses.squared, population, tau / tau.sum())))
    optimal = float(pf.optimal_point(problem))
    common = dict(batch=pf.Fixed(200), participation=pf.LocalWork(pf.Full(), tau))
    plain, even = (
        end(problem, pf.pofl(0.02, 20, aggregator=server, **common))[0]
        for server in (pf.aggregators.Mean(), pf.aggregators.Nova())
    )
    gap = abs(other - optimal)
    assert abs(plain - other) < 0.2 * gap and abs(even - optimal) < 0.2 * gap
