"""FedVARP on noise-free data: rounds by hand, and what is left of the variance of partial participation."""

import numpy as np
import pytest

import performative as pf
from performative.aggregators import ClusterVarp, Mean, Varp

pytestmark = pytest.mark.slow

N, K, ETA, E = 6, 2, 0.1, 3
_rng = np.random.default_rng(1)
# Two kinds of clients: alike within, far apart from each other.
KIND, EACH = np.asarray([0, 1, 0, 1, 1, 0]), np.arange(N)
MEAN = np.asarray([-3.0, 4.0])[KIND] + 0.3 * _rng.normal(size=N)
SENSITIVITY = np.asarray([0.2, 0.7])[KIND] + 0.05 * _rng.normal(size=N)
WEIGHTS = _rng.dirichlet(8 * np.ones(N))
START = 1.0


# Data that follow the model, and data that stay as the start made them: numbers differ, so one compilation serves both.
DATA = {"performative": (MEAN, SENSITIVITY), "static": (MEAN + SENSITIVITY * START, np.zeros(N))}


def local_map(data):
    """a, b with delta_i = a_i theta + b_i after E local steps."""
    mean, sensitivity = DATA[data]
    kept = (1 - ETA * (1 - sensitivity)) ** E
    return kept - 1, (1 - kept) / (1 - sensitivity) * mean


def problem(data):
    return pf.Problem(pf.losses.squared, pf.populations.Gaussian(*DATA[data], 0.0), WEIGHTS)


def algorithm(aggregator):
    return pf.p_fedavg(ETA, local_steps=E, participation=pf.SchemeTwo(K), aggregator=aggregator)


@pytest.mark.parametrize("data", DATA)
@pytest.mark.parametrize(
    ("aggregator", "member"),
    [(Mean(), None), (Varp(), EACH), (ClusterVarp(KIND), KIND)],
    ids=["FedAvg", "FedVARP", "ClusterFedVARP"],
)
def test_rounds_are_those_by_hand(aggregator, member, data):
    """theta + sum_i p_i y_c(i) + N / K sum_chosen p_i (delta_i - y_c(i)); y_c <- the chosen ones' mean of c."""
    (a, b), theta, y = local_map(data), START, np.zeros(N)
    record = pf.Record(risks=False, cohorts=True)
    history = pf.run(problem(data), algorithm(aggregator), 20, theta=START, record=record, dtype="float64")
    for chosen, after in zip(history.cohorts["client"][0, 1:], history.theta[0, 1:], strict=True):
        delta, known = a * theta + b, y[EACH if member is None else member]
        theta += WEIGHTS @ known + N / K * WEIGHTS[chosen] @ (delta - known)[chosen]
        for c in () if member is None else set(member[chosen]):
            here = chosen[member[chosen] == c]
            y[c] = np.average(delta[here], weights=WEIGHTS[here])
        np.testing.assert_allclose(after, theta, rtol=1e-12)


@pytest.mark.parametrize("data", DATA)
def test_variance_that_stays(data):
    """In the long run: nothing with one memory a client; less than FedAvg's with clusters of clients that are alike."""
    fedavg, varp, good, bad = (
        pf.moments(problem(data), algorithm(aggregator), 1, START).stationary.covariance.item()
        for aggregator in (Mean(), Varp(), ClusterVarp(KIND), ClusterVarp([0, 0, 0, 1, 1, 1]))
    )
    assert fedavg > 0.5 and abs(varp) < 1e-12 * fedavg
    assert 0 < good < 0.1 * fedavg
    assert bad > fedavg, "clients that are unlike spoil each other's memory"
