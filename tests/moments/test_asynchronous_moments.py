"""Asynchronous clients without memory: against every way to fill buffers, one by one, and against runs."""

import itertools
import warnings

import numpy as np
import pytest

import performative as pf

MEANS, SLOPES, WEIGHTS = np.array([1.0, 2.0, -1.0]), np.array([0.3, 0.1, -0.4]), np.array([0.5, 0.3, 0.2])
NOW = pf.Clock(compute=0)


def problem(scale):
    return pf.Problem(pf.losses.squared, pf.populations.Gaussian(MEANS, SLOPES, scale), WEIGHTS)


def first(buffer, rates):
    """Chances of all sets that may come first, from every order in which clients can come."""
    chance = {}
    for order in itertools.permutations(range(len(rates)), buffer):
        left, p = sum(rates), 1.0
        for i in order:
            p, left = p * rates[i] / left, left - rates[i]
        chance[frozenset(order)] = chance.get(frozenset(order), 0.0) + p
    return chance


def all_ways(buffer, rates, eta, staleness, limit, rounds, theta):
    """Mean and second moment of the model after each round, over all sequences of buffers; nothing else is random."""
    N = len(MEANS)
    paths = [(1.0, theta, (theta,) * N, (0,) * N)]
    found = [(theta, theta**2)]
    for t in range(rounds):
        after = []
        for p, model, began, since in paths:
            for who, chance in first(buffer, rates).items():
                new = model
                for i in who:
                    if t - since[i] <= limit:
                        weight = WEIGHTS[i] * N / buffer * (1 + t - since[i]) ** -staleness
                        gradient = began[i] - (MEANS[i] + SLOPES[i] * began[i])
                        new -= weight * eta(since[i]) * gradient
                begins = tuple(new if i in who else began[i] for i in range(N))
                after.append((p * chance, new, begins, tuple(t + 1 if i in who else since[i] for i in range(N))))
        paths = after
        found.append((sum(p * m for p, m, *_ in paths), sum(p * m**2 for p, m, *_ in paths)))
    return np.array(found).T


@pytest.mark.parametrize(
    ("buffer", "times", "staleness", "limit"),
    [(1, [1.0, 1.0, 1.0], 0.0, 3), pytest.param(2, [1.0, 2.0, 0.5], 0.7, 1, marks=pytest.mark.slow)],
)
def test_every_way_to_fill_buffers(buffer, times, staleness, limit):
    rate = pf.schedules.Harmonic(3.0, 4.0)
    latency = pf.participation.Exponential(np.array(times))
    late = pf.Asynchronous(buffer, latency=latency, staleness=staleness, limit=limit)
    found = pf.moments(problem(0.0), pf.p_fedavg(rate, participation=late), 6, 0.5, clock=NOW)
    mean, second = all_ways(buffer, 1 / np.array(times), lambda t: 3.0 / (t + 4.0), staleness, limit, 6, 0.5)
    np.testing.assert_allclose(np.ravel(found.mean), mean, rtol=1e-12)
    np.testing.assert_allclose(np.ravel(found.covariance), second - mean**2, atol=1e-12)


def test_who_comes_first():
    rates = np.array([1.0, 0.25, 3.0, 2.0])
    drawn = pf.FirstK(2, pf.participation.Exponential(1 / rates)).cohorts(np.full(4, 0.25), 0)
    assert {frozenset(ids.tolist()): pytest.approx(p, abs=1e-12) for p, ids, _ in drawn} == first(2, rates)
    many = pf.FirstK(40, pf.participation.Exponential(np.arange(1.0, 42.0)))  # 2^40 terms
    assert many.cohorts(np.full(41, 1 / 41), 0) is None and many.cohort_count(np.full(41, 1 / 41), 0) is None


@pytest.mark.slow
def test_a_buffer_for_everybody_is_the_synchronous_algorithm():
    everyone = [pf.Full(), pf.Asynchronous(3, latency=pf.participation.LogNormal(1.0))]
    one, other = (
        pf.moments(problem(0.3), pf.p_fedavg(0.2, local_steps=2, participation=who), 5, 0.5) for who in everyone
    )
    np.testing.assert_allclose(one.mean, other.mean, rtol=1e-12)
    np.testing.assert_allclose(one.covariance, other.covariance, rtol=1e-12)
    assert one.spectral_radius.second == pytest.approx(other.spectral_radius.second, abs=1e-12)


def test_the_clock_and_idle_clients_are_refused():
    waits = pf.participation.Exponential(1.0)
    with pytest.raises(ValueError, match=r"clock=pf.Clock\(compute=0\)"):
        pf.moments(problem(0.3), pf.p_fedavg(0.2, participation=pf.Asynchronous(1, latency=waits)), 3)
    few = pf.p_fedavg(0.2, participation=pf.Asynchronous(1, 2, latency=waits))
    with pytest.raises(ValueError, match="all clients are training"):
        pf.moments(problem(0.3), few, 3, clock=NOW)
    varp = pf.fedvarp(0.2, participation=pf.Asynchronous(1, latency=waits))
    with pytest.raises(ValueError, match="keep memory per client"):
        pf.moments(problem(0.3), varp, 3, clock=NOW)


CASES = [
    (pf.p_fedavg, 1, {"staleness": 0.5, "limit": 9}, {"local_steps": 2}),
    (pf.p_fedavg, 2, {"limit": 4}, {"deploy": "round", "batch": pf.Fixed(3)}),
    (pf.p_fedavg, 1, {"staleness": [1.0, 0.5, 0.1]}, {"deploy": pf.Every(2)}),
    (pf.fedavgm, 2, {}, {"local_steps": 2}),
]


@pytest.mark.slow
@pytest.mark.parametrize(("recipe", "buffer", "late", "more"), CASES)
def test_against_runs(recipe, buffer, late, more):
    """At round 12, over 20,000 repeats: mean, variance and square of what is away, within 4 standard errors."""
    times = pf.participation.Exponential(np.array([1.0, 2.0, 0.5]))
    algorithm = recipe(0.2, participation=pf.Asynchronous(buffer, latency=times, **late), **more)
    found = pf.moments(problem(0.3), algorithm, 12, 0.5, clock=NOW)
    record = pf.Record(risks=False, consensus=False)
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", r".*\[updates-dropped\]$")
        runs = pf.run(problem(0.3), algorithm, 12, 0.5, repeats=20_000, seed=3, clock=NOW, record=record)
    last = np.asarray(runs.theta)[:, -1]
    mean, variance = float(np.ravel(found.mean)[-1]), float(np.ravel(found.covariance)[-1])
    assert abs(last.mean() - mean) < 4 * last.std() / np.sqrt(len(last))
    square = (last - mean) ** 2
    assert abs(square.mean() - variance) < 4 * square.std() / np.sqrt(len(last))
