"""What the rows of the slides lean on: continuation to 0, work drawn each round, and limits that are nobody's taste."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import performative as pf
from performative.papers import catalog
from performative.papers.heterogeneity.quadratic import Parabolas, continued, order
from performative.papers.heterogeneity.work import DrawnEpochs

NAMES = catalog.names("heterogeneity")


@pytest.mark.parametrize("name", NAMES)
def test_no_limit_is_a_threshold_of_ours(name):
    for claim in catalog.find(name).claims:
        for check in (claim.printed, claim.corrected):
            assert check is None or not check.threshold_of_ours(), claim.id


@pytest.mark.parametrize("name", NAMES)
def test_rows_of_the_slides_say_which_slide(name):
    assert all(claim.about for claim in catalog.find(name).claims if claim.kind == "paper")


def test_continuation_is_exact_for_polynomials_and_knows_when_it_is_not():
    x = np.asarray([0.4, 0.2, 0.1])
    value, error = continued(x, 3 + 2 * x - x**2)
    assert value == pytest.approx(3, abs=1e-12) and error == pytest.approx(0.1 * 0.2, rel=1e-9)
    assert continued(x[::-1], (3 + 2 * x - x**2)[::-1])[0] == pytest.approx(3, abs=1e-12)
    value, error = continued(x, np.exp(x))
    assert 0 < abs(value - 1) < 2 * error


def test_order_finds_the_exponent_at_zero():
    x = np.asarray([0.02, 0.01, 0.005])
    value, error = order(x, 5 * x**2 * (1 + 4 * x))
    assert abs(value - 2) < error < 0.05
    assert abs(order(x, x)[0] - 2) > 10 * (order(x, x)[1] + 1e-12)
    long = np.asarray([3200.0, 6400.0, 12800.0, 25600.0])
    value, error = order(1 / long, (1 + 3 * np.log(long) / long) / long)
    assert abs(value - 1) < 2 * error


def test_epochs_are_drawn_anew_by_each_client():
    rule = DrawnEpochs(np.asarray([3, 1, 10], np.int32), 2, 5)
    assert rule.longest == 50
    draws = np.stack([np.asarray(rule.draw(jax.random.key(r), jnp.arange(3), None)) for r in range(60)])
    epochs = draws / np.asarray([3, 1, 10])
    assert set(np.unique(epochs)) == {2.0, 3.0, 4.0, 5.0}
    assert np.abs(np.corrcoef(epochs.T) - np.eye(3)).max() < 0.5  # six standard errors would be 0.77; alike is 1
    # A client's work does not depend on who else was drawn.
    key = jax.random.key(3)
    np.testing.assert_array_equal(rule.draw(key, jnp.asarray([2]), None), rule.draw(key, jnp.arange(3), None)[2:])


@pytest.mark.slow
def test_drawn_work_moves_fedavg_and_not_fednova():
    """Fixed points for a tiny rate: FedAvg's is that of the mean work, p_i tau_i; FedNova's is the optimum."""
    clients = Parabolas.of([1.0, 1.0], [0.0, 4.0], [0.0, 0.0])
    work = pf.LocalWork(pf.Full(), DrawnEpochs(np.asarray([1, 3], np.int32), 2, 5))
    found = {}
    for name, rule in {"avg": pf.aggregators.Mean(), "nova": pf.aggregators.Nova()}.items():
        algorithm = pf.p_fedavg(0.002, participation=work, aggregator=rule)
        run = pf.run(clients.problem(), algorithm, 1500, theta=2.0, repeats=4, record=pf.Record(theta="all"))
        found[name] = np.asarray(run.theta)[:, 750:].mean(axis=1)
    # Drift of local steps: weights are off by at most eta (15 - 2) / 2 between two draws, of p_1 p_2 = 1/4 of the gap.
    drift = 0.002 * (15 - 2) / 2 * 4.0 / 4
    for name, point in (("avg", 3.0), ("nova", 2.0)):
        assert abs(found[name].mean() - point) < drift + 4 * found[name].std(ddof=1) / 2
