"""FedVARP on noise-free data: what is left of the variance of partial participation, against exact moments."""

import itertools

import numpy as np
import pytest

import performative as pf
from performative.aggregators import ClusterVarp, Mean, Varp

pytestmark = pytest.mark.slow

N, K, ETA, E, ROUNDS, REPEATS = 6, 2, 0.1, 3, 50, 1000
_rng = np.random.default_rng(1)
# Two kinds of clients: alike within, far apart from each other.
KIND = np.asarray([0, 1, 0, 1, 1, 0])
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


def second_moment(member, data):
    """T with E[s s'] -> T E[s s'] for s = (1, theta, y_0, ..), averaged over all sets of K clients.

    One round is linear in s for each set, so this is exact. No clusters at all is FedAvg.
    """
    a, b = local_map(data)
    C = 0 if member is None else max(member) + 1
    total = 0
    for chosen in itertools.combinations(range(N), K):
        M = np.eye(2 + C)
        for i in chosen:
            weight = WEIGHTS[i] * N / K
            M[1, 0] += weight * b[i]
            M[1, 1] += weight * a[i]
            if C:
                M[1, 2 + member[i]] -= weight
        for i in range(N if C else 0):
            M[1, 2 + member[i]] += WEIGHTS[i]
        for c in range(C):
            here = [i for i in chosen if member[i] == c]
            if here:
                M[2 + c] = 0
                M[2 + c, 0] = np.average(b[here], weights=WEIGHTS[here])
                M[2 + c, 1] = np.average(a[here], weights=WEIGHTS[here])
        total = total + np.kron(M, M)
    return total / len(list(itertools.combinations(range(N), K)))


def exact(member, data, rounds):
    """Mean and variance of theta after so many rounds."""
    T = second_moment(member, data)
    size = round(np.sqrt(len(T)))
    start = np.zeros(size)
    start[:2] = 1.0, START
    moments = (np.linalg.matrix_power(T, rounds) @ np.kron(start, start)).reshape(size, size)
    return moments[0, 1], moments[1, 1] - moments[0, 1] ** 2


def paths(aggregator, data):
    problem = pf.Problem(pf.losses.squared, pf.populations.Gaussian(*DATA[data], 0.0), WEIGHTS)
    algorithm = pf.p_fedavg(ETA, local_steps=E, participation=pf.SchemeTwo(K), aggregator=aggregator)
    history = pf.run(
        problem, algorithm, ROUNDS, theta=START, repeats=REPEATS, seed=2, record=pf.Record(risks=False), dtype="float64"
    )
    return np.asarray(history.theta)


@pytest.mark.parametrize("data", DATA)
@pytest.mark.parametrize(
    ("aggregator", "member"),
    [(Mean(), None), (Varp(), list(range(N))), (ClusterVarp(KIND), KIND.tolist())],
    ids=["FedAvg", "FedVARP", "ClusterFedVARP"],
)
def test_moments_are_exact(aggregator, member, data):
    theta = paths(aggregator, data)
    # Early on: later FedVARP's variance comes from the rare paths on which a client has not yet been heard.
    for r in (1, 2, 4, 8):
        mean, variance = exact(member, data, r)
        squared = (theta[:, r] - mean) ** 2
        assert abs(theta[:, r].mean() - mean) < 4.5 * theta[:, r].std() / np.sqrt(REPEATS)
        assert abs(squared.mean() - variance) < 4.5 * squared.std() / np.sqrt(REPEATS)
    if member is not None and len(set(member)) == N:
        stationary = exact(None, data, 4000)[1]
        assert stationary > 0.5
        assert theta[:, -1].var() <= 0.01 * stationary


@pytest.mark.parametrize("data", DATA)
def test_variance_that_stays(data):
    """In the long run: nothing with one memory a client; less than FedAvg's with clusters of clients that are alike."""
    each, alike, unlike = list(range(N)), KIND.tolist(), [0, 0, 0, 1, 1, 1]
    fedavg, varp, good, bad = (exact(member, data, 4000)[1] for member in (None, each, alike, unlike))
    assert abs(varp) < 1e-12 * fedavg
    assert 0 < good < 0.1 * fedavg
    assert bad > fedavg, "clients that are unlike spoil each other's memory"
