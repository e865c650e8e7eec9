"""An asynchronous server over a network: it moves when a buffer is full, and weighs updates by their age."""

import dataclasses
import threading

import jax
import numpy as np
import pytest
from federations import federation, gaussian, members, real_federation, simulated, transport

import performative as pf
from performative.live import AbstractTransport, Reply, read_events, read_model, rehearse, serve
from performative.live.coordinator import read_rounds
from performative.live.server_store import read_status

BATCH = {"rate": 0.1, "local_steps": 2, "batch": pf.Fixed(4), "deploy": "round"}


class Script(AbstractTransport):
    """Clients work at once, and their answers come in the order that is told: `order[i]` is the i-th to be heard."""

    def __init__(self, made, folder, order):
        self.members, self.order, self.waiting, self.asked = members(made, folder), list(order), {}, []

    def online(self):
        return set(self.members)

    def send(self, requests, seconds):
        self.asked += sorted(requests)
        for client, request in requests.items():
            self.waiting[client] = Reply(client, self.members[client].answer(request))

    def receive(self, seconds):
        client = self.order.pop(0)
        return [self.waiting.pop(client)]


def by_hand(made, order, buffer, power, limit=10**9):
    """theta_{t+1} = theta_t + sum over the buffer of (p_i N / B) (1 + s_i)^-a delta_i(theta_{t - s_i}), for one local
    step on all samples of a problem without noise: delta_i = -rate (theta - m_i - eps_i theta)."""
    problem = made.problem
    mean, eps = np.asarray(problem.population.mean), np.asarray(problem.population.sensitivity)
    clients, weights = problem.clients, np.asarray(problem.client_weights)
    theta = [np.zeros(3)]
    took = dict.fromkeys(range(clients), 0)
    order = list(order)
    for t in range(made.rounds):
        move = 0.0
        heard = [order.pop(0) for _ in range(buffer)]
        for i in heard:
            age = t - took[i]
            old = theta[took[i]]
            if age <= limit:
                move = move - weights[i] * clients / buffer * (1.0 + age) ** -power * 0.1 * (
                    old - mean[i] - eps[i] * old
                )
        theta.append(theta[-1] + move)
        took |= dict.fromkeys(heard, t + 1)
    return np.array(theta)


@pytest.mark.parametrize(
    ("power", "limit"),
    [pytest.param(0.0, None, marks=pytest.mark.slow), pytest.param(0.5, None, marks=pytest.mark.slow), (1.0, 1)],
)
def test_each_move_is_that_of_the_formula(tmp_path, power, limit):
    """Five clients, a buffer of two, answers in an order of our own; client 4 is last, and very stale."""
    mean, eps = np.linspace(-1.0, 2.0, 5)[:, None] * np.ones(3), np.linspace(0.1, 0.6, 5)
    problem = pf.Problem(pf.losses.squared, pf.populations.Gaussian(mean=mean, sensitivity=eps, scale=0.0),
                         weights=[0.1, 0.3, 0.2, 0.15, 0.25])  # fmt: skip
    rule = pf.Asynchronous(2, staleness=power, limit=limit)
    method = pf.p_fedavg(0.1, batch=pf.Fixed(1), deploy="round", participation=rule)
    made = federation(problem, method, rounds=6, timeout=3600.0)  # on a busy machine, too, nobody is asked twice
    order = [0, 1, 0, 2, 1, 0, 2, 3, 4, 0, 3, 4]
    script = Script(made, tmp_path, order)
    live = serve(made, script, tmp_path / "server")
    expected = by_hand(made, order, 2, power, 10**9 if limit is None else limit)
    np.testing.assert_allclose(live.theta[0], expected, rtol=1e-12, atol=1e-12)
    # Everybody is asked once to begin with, and again only after an answer.
    assert script.asked == [0, 1, 2, 3, 4, *(c for k in range(0, 10, 2) for c in sorted(order[k : k + 2]))]
    assert not read_events(tmp_path / "server")
    run = read_status(tmp_path / "server")["run"]
    assert [told["oldest"] for told in read_rounds(tmp_path / "server", run)] == [0, 1, 1, 3, 4, 1]


def test_a_buffer_of_all_is_the_simulation_to_the_bit(tmp_path):
    made = federation(gaussian(weights=[0.1, 0.15, 0.2, 0.25, 0.3]),
                      pf.p_fedavg(**BATCH, participation=pf.Asynchronous(5)))  # fmt: skip
    np.testing.assert_allclose(rehearse(made, tmp_path).theta, simulated(made).theta, rtol=0, atol=1e-15)


def test_a_slow_client_holds_nobody_up(tmp_path):
    """It is asked once, works on while the server moves, and its answer counts when it comes."""
    rule = pf.Asynchronous(2, staleness=0.5)
    made = federation(algorithm=pf.p_fedavg(**BATCH, participation=rule), rounds=12, timeout=3600.0)
    late, asked = threading.Event(), []

    def slow(client, answer):
        def wait(request):
            if client == 4:
                asked.append(len(asked))
                late.wait()
            return answer(request)

        return wait

    carrier = transport(made, tmp_path, slow)
    told = []
    try:
        live = serve(made, carrier, tmp_path / "server", on_round=lambda one: (told.append(one), len(told) == 8
                                                                              and late.set()))  # fmt: skip
    finally:
        late.set()
        carrier.close()
    assert live.status == "completed" and not read_events(tmp_path / "server") and np.all(live["missing"] == 0)
    assert len(told) == 12 and all(one["heard"] == 2 for one in told)
    assert asked[:1] == [0] and max(one["oldest"] for one in told[:8]) <= 3
    assert live.participation[0].sum() > 0


def test_versions_overlap(tmp_path):
    """While newer models are out, the people of a client that still trains act under the one that it took. Once it has
    answered it takes the newest; nobody goes back to an earlier one."""
    made, met = real_federation(pf.Asynchronous(1, staleness=0.5), rounds=5, timeout=3600.0)
    order = [0, 1, 0, 1, 3]  # client 3 took version 0, and is the last
    script, seen = Script(made, tmp_path, order), []
    under = {client: [] for client in met}

    def look(told):
        seen.append({client: met[client][-1].version for client in met})
        for client in met:
            under[client].append(met[client][-1].theta)

    live = serve(made, script, tmp_path / "server", on_round=look)
    assert seen == [
        {0: 0, 1: 0, 2: 0, 3: 0},
        {0: 1, 1: 0, 2: 0, 3: 0},
        {0: 1, 1: 2, 2: 0, 3: 0},
        {0: 3, 1: 2, 2: 0, 3: 0},  # three versions at once
        {0: 3, 1: 4, 2: 0, 3: 0},
    ]
    for client, round in ((0, 3), (1, 3), (3, 3)):
        with made.precision():
            deployed = read_model(tmp_path / "server", seen[round][client], made.ready.shared)
        np.testing.assert_array_equal(under[client][round], deployed)
    told = read_rounds(tmp_path / "server", read_status(tmp_path / "server")["run"])
    assert [one["oldest"] for one in told] == [0, 1, 1, 1, 4] and [one["version"] for one in told] == [0, 1, 2, 3, 4]
    assert live.status == "completed" and np.all(np.diff(live.theta[0], axis=0) != 0)
    serve(dataclasses.replace(made, rounds=6), Script(made, tmp_path, [3]), tmp_path / "server", resume=True)
    assert met[3][-1].version == 5
    assert all(np.all(np.diff([one.version for one in met[client]]) > 0) for client in met)


@pytest.mark.slow
def test_concurrency_bounds_who_is_at_work(tmp_path):
    made = federation(algorithm=pf.p_fedavg(**BATCH, participation=pf.Asynchronous(2, concurrency=3)), rounds=8)
    told = []
    live = rehearse(made, tmp_path, on_round=told.append)
    assert live.status == "completed" and all(one["asked"] == 3 and one["at_work"] == 1 for one in told)


@pytest.mark.slow
def test_a_client_that_fails_is_idle_again_and_one_that_is_silent_is_given_up(tmp_path):
    made = federation(algorithm=pf.p_fedavg(**BATCH, participation=pf.Asynchronous(2)), rounds=5, timeout=2.0)
    hold = threading.Event()

    def bad(client, answer):
        def reply(request):
            if client == 0:
                raise ValueError("no")
            if client == 1:
                hold.wait()
            return answer(request)

        return reply

    carrier = transport(made, tmp_path, bad)
    pause = threading.Event()
    try:
        live = serve(made, carrier, tmp_path / "server", on_round=lambda told: pause.wait(0.7))
    finally:
        hold.set()
        carrier.close()
    events = read_events(tmp_path / "server")
    assert live.status == "completed"
    assert {event["client"] for event in events if event["what"] == "failed"} == {0}
    assert {event["client"] for event in events if event["what"] == "silent"} == {1}


@pytest.mark.slow
def test_a_server_that_starts_anew_asks_anew(tmp_path):
    """What was at work is forgotten, the memories of clients are not."""
    method = pf.p_fedavg(**BATCH, participation=pf.Asynchronous(2))
    made = federation(algorithm=method, rounds=4)
    carrier = transport(made, tmp_path)
    try:
        serve(made, carrier, tmp_path / "server")
        again = serve(federation(algorithm=method, rounds=9), carrier, tmp_path / "server", resume=True)
    finally:
        carrier.close()
    assert again.status == "completed" and len(again.rounds) == 9 + 1 and not read_events(tmp_path / "server")
    assert np.all(np.isfinite(jax.tree.leaves(again.theta)[0]))


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({"secure": True}, "weights depend on who answers first"),
        ({"privacy": pf.Privacy(delta=1e-3)}, "privacy with Asynchronous"),
    ],
)
def test_what_it_does_not_go_with_is_named(options, told):
    with pytest.raises(ValueError, match=told):
        federation(algorithm=pf.p_fedavg(**BATCH, participation=pf.Asynchronous(2)), **options)
