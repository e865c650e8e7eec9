"""Rows of PROFL: limits that are not ours, what each is about, and the helpers that decide them."""

import numpy as np
import pytest

import performative as pf
from performative.papers import catalog
from performative.papers.profl import server
from performative.papers.profl.house import best, grid
from performative.papers.profl.runs import Runs, ratio, slope_of, stays_below

STATEMENTS = [
    *(f"Assumption 5.{i}" for i in (1, 2, 3, 4)), *(f"Lemma 5.{i}" for i in (6, 7, 8, 9)), "Theorem 5.10",
    "Corollary 5.11", "Remark 2.1", "Remark 5.5", *(f"Lemma C.{i}" for i in (1, 2, 3)),
    *(f"Algorithm {i}" for i in (1, 2, 3)), *(f"Eq. ({i})" for i in (3, 5, 7, 8, 9, 10)),
    *(f"Table {i}" for i in (1, 2, 3)), *(f"Figure 1{i}" for i in "abc"), *(f"Figure 2{i}" for i in "abc"),
    *(f"Figure {i}" for i in ("3a", "3b", "4a", "4b", "5a", "5b", "6a", "6b", "7")),
]  # fmt: skip


@pytest.mark.parametrize("name", catalog.names("profl"))
def test_no_limit_is_ours_and_every_row_says_what_it_is_about(name):
    for claim in catalog.find(name).claims:
        checks = [check for check in (claim.printed, claim.corrected) if check is not None]
        assert not any(check.threshold_of_ours() for check in checks), claim.id
        assert claim.about or claim.kind != "paper", claim.id


def test_every_numbered_statement_has_a_row():
    named = {what for name in catalog.names("profl") for claim in catalog.find(name).claims for what in claim.about}
    assert set(STATEMENTS) <= named


@pytest.mark.parametrize("name", catalog.names("profl"))
def test_every_run_has_a_compact_domain(name):
    """Algorithm 1, lines 9 and 14."""
    experiment = catalog.find(name)
    runs = {"demands", "house", "classes", "server", "groups.regression"}
    if any(experiment.code.startswith(one) for one in runs):
        assert experiment.constants["reach"] > 0
    problem = pf.cases.house_pricing()
    assert problem.domain is None and Runs(1, 1, 1, 1, 0, reach=2.0).within(problem).domain is not None


def test_a_ratio_pairs_its_repeats():
    luck = np.asarray([1.0, 2.0, 3.0, 4.0])
    assert ratio(2.0 * luck, luck) == pytest.approx((2.0, 0.0))
    assert ratio(2.0 * luck, luck[::-1])[1] > 0.5


def test_the_slope_of_a_line_is_exact():
    past = [(np.asarray([[t]]), np.asarray([[3.0 - 2.0 * t]])) for t in (0.0, 0.1, 0.3, 0.2)]
    assert slope_of(past, 2) == pytest.approx(-2.0)
    assert slope_of(past[:3], 2) == 0.0  # the first H + 1 steps
    assert slope_of([past[0]] * 4, 2) == 0.0  # nothing has moved


def test_exact_local_descent_settles_at_the_optimal_point_of_its_weights():
    gamma, alpha = grid(1.65, 0.15, 4), np.asarray([0.1, 0.2, 0.3, 0.4])
    runs = Runs(4, 1, 3000, 1, 0, rate=0.001, start=0.0, reach=5.0)
    assert server.walk(runs, gamma, alpha=alpha)[0, -1] == pytest.approx(best(gamma, alpha)[0], abs=1e-5)
    # As printed, two of four clients have half of the weight.
    assert abs(server.walk(runs, gamma, enrolled=2, whole=False)[0, -1]) < 0.1


def test_noise_that_dips_below_a_level_has_not_settled_there():
    values = np.asarray([[3.0, 1.0, 3.0, 1.0, 1.0], [1.0, 1.0, 1.0, 1.0, 1.0], [3.0, 3.0, 3.0, 3.0, 3.0]])
    assert stays_below(np.arange(5), values, 2.0).tolist() == [3.0, 0.0, 4.0]
