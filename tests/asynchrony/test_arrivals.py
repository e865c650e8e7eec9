"""Who finishes when: against a queue in Python."""

import heapq

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import performative as pf
from performative.participation.in_flight import nobody_yet, replaced

PART_EXAMPLES = {
    "pf.Asynchronous": (
        "buffer=2, latency=pf.participation.Exponential(2.0), staleness=0.5",
        "buffer=1, concurrency=K",
    ),
    "pf.Late": "rounds=2",
}

TIMES = np.array([1.0, 1.7013, 2.9041, 4.3107, 0.6003, 3.1007, 7.7029])


def queue(buffer: int, moves: int) -> tuple[list[list[int]], list[list[int]], list[float]]:
    """Clients, ages and times of each move, where everybody starts again when a buffer has been applied."""
    working = [(time, client, 0) for client, time in enumerate(TIMES)]
    heapq.heapify(working)
    clients, ages, times = [], [], []
    for move in range(moves):
        came = [heapq.heappop(working) for _ in range(buffer)]
        now = came[-1][0]
        clients.append([client for _, client, _ in came])
        ages.append([move - start for _, _, start in came])
        times.append(now)
        for _, client, _ in came:
            heapq.heappush(working, (now + TIMES[client], client, move + 1))
    return clients, ages, times


@pytest.mark.parametrize("buffer", [pytest.param(1, marks=pytest.mark.slow), 3])
@pytest.mark.parametrize("by", ["clock", pytest.param("latency", marks=pytest.mark.slow)])
def test_arrivals_are_those_of_a_queue(buffer: int, by: str) -> None:
    problem = pf.Problem(pf.losses.squared, pf.populations.Gaussian(np.arange(7.0), 0.3, 1.0))
    latency = pf.participation.ConstantLatency(TIMES) if by == "latency" else None
    clock = pf.Clock(compute=TIMES) if by == "clock" else pf.Clock(compute=0.0)
    algorithm = pf.p_fedavg(0.05, participation=pf.Asynchronous(buffer, latency=latency, limit=50))
    history = pf.run(problem, algorithm, rounds=40, clock=clock, dtype="float64", record=pf.Record(cohorts=True))
    clients, ages, times = queue(buffer, 40)
    np.testing.assert_array_equal(history.cohorts["client"][0, 1:], clients)
    np.testing.assert_allclose(history["time"][0, 1:], times)
    np.testing.assert_allclose(history["staleness"][0, 1:], np.mean(ages, axis=1))


@pytest.mark.slow
def test_weights_fall_with_age_and_old_updates_are_dropped() -> None:
    problem = pf.Problem(pf.losses.squared, pf.populations.Gaussian(np.arange(7.0), 0.3, 1.0))
    clients, ages, _ = queue(1, 40)
    listed = [1.0, 0.7, 0.1]
    ways = ((0.5, lambda s: (1 + s) ** -0.5), (listed, lambda s: np.array(listed)[np.minimum(s, 2)]))
    for staleness, of in ways:
        part = pf.Asynchronous(1, staleness=staleness, limit=8)
        with pytest.warns(pf.PerformativeWarning, match="were dropped"):
            history = pf.run(
                problem, pf.p_fedavg(0.05, participation=part), rounds=40, clock=pf.Clock(compute=TIMES),
                dtype="float64", record=pf.Record(cohorts=True),
            )  # fmt: skip
        age = np.array(ages)[:, 0]
        kept = age <= 8
        assert 0 < np.sum(~kept) == history["dropped_updates"][0, -1]
        np.testing.assert_allclose(history.cohorts["weight"][0, 1:, 0], np.where(kept, of(age), 0))
        np.testing.assert_array_equal(history.cohorts["client"][0, 1:, 0], np.where(kept, np.array(clients)[:, 0], -1))


@pytest.mark.slow
@pytest.mark.parametrize("places", [5, *(pytest.param(count, marks=pytest.mark.slow) for count in (1024, 5000))])
def test_the_first_places_are_those_that_finish_first(places: int) -> None:
    flight, rng = nobody_yet(places, places, in_order=True), np.random.default_rng(0)
    everywhere = jnp.arange(places, dtype=jnp.int32)
    finish = rng.uniform(1, 9, places)
    flight = flight.restart(everywhere, jnp.asarray(0), jnp.asarray(0.0), jnp.asarray(finish), None)
    first = jax.jit(lambda f: f.first(4))
    for move in range(200):
        times, at = first(flight)
        expected = np.argsort(finish.astype(times.dtype), kind="stable")[:4]
        np.testing.assert_array_equal(np.asarray(at), expected)
        finish[expected] += rng.uniform(0, 9, 4)
        now = times[-1]
        finish[expected] = np.maximum(finish[expected], np.float32(now) * (1 + 2e-7))
        flight = flight.restart(at, jnp.asarray(move), now, jnp.asarray(finish[expected], times.dtype), None)


@pytest.mark.slow
def test_places_are_filled_from_all_who_are_idle() -> None:
    clients, working, count = 9, 5, 3
    flight, places = nobody_yet(working, clients), jnp.array([0, 2, 4])
    keys = jax.random.split(jax.random.key(0), 20_000)
    order = np.asarray(jax.vmap(lambda key: replaced(key, flight, places)[2])(keys))
    assert np.all(np.sort(order, axis=1) == np.arange(clients))  # nobody is lost, nobody works twice
    np.testing.assert_array_equal(order[:, [1, 3]], np.tile([1, 3], (len(order), 1)))  # who is at work stays
    taken = np.stack([np.any(order[:, np.asarray(places)] == client, axis=1) for client in (0, 2, 4, 5, 6, 7, 8)])
    chance = count / 7
    np.testing.assert_allclose(taken.mean(axis=1), chance, atol=4 * np.sqrt(chance * (1 - chance) / len(keys)))
    assert not taken[:, ~taken.all(axis=0)].all()


@pytest.mark.slow
def test_who_is_heard_how_often() -> None:
    """With few at work of many, fast and slow clients are heard nearly alike; with all at work by their speed."""
    problem = pf.Problem(pf.losses.squared, pf.populations.Gaussian(np.zeros(100), 0.3, 1.0))
    latency = pf.participation.Exponential(np.repeat([1.0, 10.0], 50))
    ratio = {}
    for concurrency in (5, None):
        algorithm = pf.p_fedavg(0.0, participation=pf.Asynchronous(1, concurrency, latency, limit=20_000))
        history = pf.run(problem, algorithm, rounds=40_000, clock=pf.Clock(compute=0.0), record=pf.Record(every=40_000))
        heard = history.participation[0]
        ratio[concurrency] = heard[50:].sum() / heard[:50].sum()
    # Idle are 50 - 5 * 10/11 slow ones and 50 - 5 * 1/11 fast ones, and each of them is as likely to start.
    assert ratio[5] == pytest.approx((50 - 50 / 11) / (50 - 5 / 11), rel=0.04)
    assert ratio[None] == pytest.approx(1 / 10, rel=0.1)


@pytest.mark.slow
def test_many_dropped_updates_are_told() -> None:
    problem = pf.Problem(pf.losses.squared, pf.populations.Gaussian(np.zeros(7), 0.3, 1.0))
    part = pf.Asynchronous(1, limit=4)
    with pytest.warns(pf.PerformativeWarning, match=r"older than 4 rounds and were dropped.*\[updates-dropped\]"):
        pf.run(problem, pf.p_fedavg(0.05, participation=part), rounds=40, clock=pf.Clock(compute=TIMES))


def test_what_cannot_work_is_refused() -> None:
    problem = pf.Problem(pf.losses.squared, pf.populations.Gaussian(np.zeros(4), 0.3, 1.0))
    with pytest.raises(ValueError, match="never full"):
        pf.Asynchronous(5, concurrency=3)
    with pytest.raises(ValueError, match="must not be negative"):
        pf.Asynchronous(1, staleness=[1.0, -0.5])
    with pytest.raises(ValueError, match="must not be negative"):
        pf.Asynchronous(1, staleness=-0.5)
    with pytest.raises(ValueError, match="latency must be a distribution"):
        pf.Asynchronous(1, latency=3.0)
    for name, count in (("buffer", 0), ("concurrency", 0), ("limit", 0), ("limit", -1), ("buffer", 1.5)):
        with pytest.raises(ValueError, match=rf"^{name} must be a whole number >= 1; got {count}"):
            pf.Asynchronous(**{"buffer": 1} | {name: count})
    with pytest.raises(ValueError, match="concurrency=9, but there are only 4 clients"):
        pf.run(problem, pf.p_fedavg(0.1, participation=pf.Asynchronous(1, 9)), rounds=2)
    with pytest.raises(ValueError, match="buffer=5, but there are only 4 clients"):
        pf.run(problem, pf.p_fedavg(0.1, participation=pf.Asynchronous(5)), rounds=2)
    with pytest.raises(ValueError, match="one number per client"):
        part = pf.Asynchronous(2, latency=pf.participation.Exponential([1.0, 2.0]))
        pf.run(problem, pf.p_fedavg(0.1, participation=part), rounds=2)
    with pytest.raises(ValueError, match="newer models"):
        pf.run(problem, pf.p_fedavg(0.1, participation=pf.Asynchronous(2), absent="reacts"), rounds=2)
    with pytest.raises(ValueError, match="known when it"):
        part = pf.LocalWork(pf.Asynchronous(2), pf.participation.UniformSteps(1, 3))
        pf.run(problem, pf.p_fedavg(0.1, participation=part), rounds=2)
    with pytest.raises(ValueError, match="models"):
        pf.run(problem, pf.p_fedavg(0.1, deploy=pf.Late(2), sharing=pf.sharing.PerClient()), rounds=2)
    with pytest.raises(ValueError, match="whole number of rounds"):
        pf.Late(0)
