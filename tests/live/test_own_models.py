"""Clients with models of their own: the trajectory is that of `pf.run`, and what a client keeps stays with it."""

import jax
import numpy as np
import pytest
from federations import Killed, OneThread, federation, gaussian, members, simulated, transport

import performative as pf
from performative._engine.setup import init_state
from performative._engine.simulated import federated_round
from performative.live import Callback, Federation, InProcess, Live, Observed, read_events, rehearse, serve
from performative.live.sources.rows import Rows

GROUP = [0, 1, 1, 0, 1]
MASK = np.array([True, False, False])
SHARINGS = {
    "Ditto": pf.sharing.Ditto(0.5),
    "Heads": pf.sharing.Heads(MASK),
    "PerClient": pf.sharing.PerClient(),
    "Groups": pf.sharing.Groups(GROUP),
    "PFedMe": pf.sharing.PFedMe(0.5),
    "Interpolated": pf.sharing.Interpolated(0.3),
    "LearnedGroups": pf.sharing.LearnedGroups(2, spread=0.3),
}
FEW = ("Ditto",)


def some(names):
    return [pytest.param(name, marks=() if name in FEW else pytest.mark.slow) for name in names]


def shared_out(name, rounds=5, **parts):
    """Not everybody takes part; people meet a new model every second round."""
    parts = {"participation": pf.SchemeTwo(3), "deploy": pf.Every(2)} | parts
    algorithm = pf.p_fedavg(0.1, local_steps=2, batch=pf.Fixed(4), sharing=SHARINGS[name], **parts)
    return federation(gaussian(weights=np.arange(1, 6) / 15), algorithm, rounds=rounds)


def simulate(made, rounds):
    """The simulation's state after so many rounds, with clients' memories."""
    ready = made.ready
    state = init_state(ready.setup, ready.start, False)
    for _ in range(rounds):
        state, _ = federated_round(ready.setup, state, ready.keys, "loop")
    return state


@pytest.mark.parametrize("name", some(SHARINGS))
def test_same_bits(name, tmp_path):
    """What the server keeps and what each client keeps, of those whose last answer was used."""
    made = shared_out(name)
    live, run = rehearse(made, tmp_path), simulated(made, executor="loop")
    # How LearnedGroups' models start apart is compiled with the rest in a run, and rounds otherwise.
    np.testing.assert_allclose(live.theta, run.theta, rtol=0, atol=1e-12 if name == "LearnedGroups" else 0)
    assert np.array_equal(live["uploads"], run["uploads"])
    assert live.models is None and not live.risks  # the server has neither
    with made.precision():
        state, found = simulate(made, made.rounds), 0
        for i, member in members(made, tmp_path).items():
            last = member.store.load(made.ready.memory_like)
            if last is not None:
                mine, expected = jax.tree.leaves(last.after), jax.tree.leaves(state.clients)
                assert all(np.array_equal(a, np.asarray(b)[i]) for a, b in zip(mine, expected, strict=True))
                found += 1
    assert found >= 3


def numbers_in(content):
    """Every float64 that stands anywhere in some bytes, at whatever place it begins."""
    return np.concatenate([np.frombuffer(content[k : k + (len(content) - k) // 8 * 8]) for k in range(8)])


def own_entries(name, memory):
    """Numbers that a client keeps to itself."""
    own = np.concatenate([np.ravel(memory.own), np.ravel(memory.seen)])
    if name == "Heads":  # the shared entries are what the server knows
        own = np.concatenate([np.ravel(memory.own[MASK]), np.ravel(memory.seen[MASK])])
    return own


@pytest.mark.parametrize("name", some(["PerClient", "Ditto", "Heads", "PFedMe", "Interpolated"]))
def test_what_a_client_keeps_never_leaves_it(name, tmp_path, monkeypatch):
    """No number of a model that it ever kept is in a message either way, nor in a file of the server."""
    made, kept, wire = shared_out(name, rounds=3, participation=pf.Full()), [], []
    send, receive = InProcess.send, InProcess.receive

    def sending(self, requests, seconds):
        wire.extend(requests.values())
        return send(self, requests, seconds)

    def receiving(self, seconds):
        found = receive(self, seconds)
        wire.extend(reply.content for reply in found)
        return found

    monkeypatch.setattr(InProcess, "send", sending)
    monkeypatch.setattr(InProcess, "receive", receiving)
    for rounds in (1, 2, 3):
        rehearse(made, tmp_path, rounds=rounds, resume=True)
        for member in members(made, tmp_path).values():
            last = member.store.load(made.ready.memory_like)
            kept += [own_entries(name, last.after), own_entries(name, last.before)]
    files = [path.read_bytes() for path in (tmp_path / "server").rglob("*.bin")]
    with made.precision():
        start = np.ravel(made.ready.start)
        arrays = [np.load(path) for path in (tmp_path / "server").rglob("*.npz")]
    stored = np.concatenate([np.ravel(file[key]) for file in arrays for key in file.files if file[key].dtype == float])
    own = np.setdiff1d(np.concatenate(kept), start)
    assert len(wire) >= 30 and len(own) >= 10
    assert not np.isin(own, np.concatenate([stored, *map(numbers_in, [*wire, *files])])).any()
    answered = (tmp_path / "clients" / "0" / "memory.bin").read_bytes()
    assert np.isin(own, numbers_in(answered)).any()  # it would have been found


@pytest.mark.slow
def test_a_client_that_is_killed_still_has_its_model(tmp_path):
    """Its memory is on its disk; it answers as if nothing had happened."""
    made = shared_out("Ditto")
    carrier = OneThread(made, tmp_path)
    answer = type(carrier.members[0]).answer
    calls = iter(range(1000))

    def dies(member, request):
        reply = answer(member, request)
        if next(calls) % 4 == 1:
            raise Killed
        return reply

    type(carrier.members[0]).answer, before = dies, answer
    try:
        live = serve(Federation(**vars_of(made) | {"resend": 0.05}), carrier, tmp_path / "server")
    finally:
        type(carrier.members[0]).answer = before
    assert carrier.deaths >= 3
    assert np.array_equal(live.theta, simulated(made, executor="loop").theta)


def vars_of(made):
    return {name: value for name, value in vars(made).items() if name != "ready"}


@pytest.mark.slow
def test_a_client_that_runs_away_says_so(tmp_path):
    """PerClient sends nothing of it, so only the client can see it; the others go on."""
    problem = pf.Problem(pf.losses.squared, pf.populations.Gaussian(np.zeros(3) + 1, np.array([0.1, 40.0, 0.2]), 1.0))
    algorithm = pf.p_fedavg(0.5, sharing=pf.sharing.PerClient(), deploy="round")
    made = Federation(problem, algorithm, 12, dtype="float64", timeout=20)
    live = serve(made, transport(made, tmp_path), tmp_path / "server")
    assert live.status == "completed"
    reasons = {event["client"]: event["reason"] for event in read_events(tmp_path / "server")}
    assert set(reasons) == {1} and "own model has diverged" in reasons[1]
    last = members(made, tmp_path)[1].store.load(made.ready.memory_like)
    assert np.isfinite(last.after.own)


def people(client, seen):
    """They answer to the model that they meet; rows are asked for by its number."""

    def answer(deployed):
        seen[client].append((deployed.version, np.array(deployed.theta)))

    def read(version):
        (theta,) = [theta for number, theta in seen[client] if number == version]
        return Rows(np.asarray([client + 1 + 0.5 * theta]), None, version, {}, "")

    return Live(Callback(answer), Told(read), minimum=1)


class Told:
    def __init__(self, read):
        self.read = read


@pytest.mark.parametrize("name", some(["Ditto", "PerClient", "Groups"]))
def test_people_meet_their_own_model(name, tmp_path):
    """Each client publishes what its people meet, under numbers of its own; it goes where a simulation goes."""
    seen = {i: [] for i in range(5)}
    problem = pf.Problem(pf.losses.squared, Observed(x=np.zeros((5, 1, 1))))
    algorithm = pf.p_fedavg(0.5, batch=pf.Fixed(1), sharing=SHARINGS[name], deploy=pf.Every(2))
    made = Federation(problem, algorithm, 6, dtype="float64", timeout=20, source=lambda c: people(c, seen))
    rehearse(made, tmp_path)
    quiet = pf.populations.Gaussian(np.arange(1.0, 6.0)[:, None], np.full(5, 0.5), 1e-9)
    run = pf.run(pf.Problem(pf.losses.squared, quiet), algorithm, 4, dtype="float64")  # the last went out at round 4
    for client, met in seen.items():
        assert [version for version, _ in met] in ([0, 1, 2], [0, 1, 3])
        np.testing.assert_allclose(met[-1][1], run.models[0][client], atol=1e-6)


def test_refusals():
    learned = pf.p_fedavg(0.1, sharing=pf.sharing.LearnedGroups(2), deploy="round")
    with pytest.raises(ValueError, match="LearnedGroups: which model a client's people face depends on their data"):
        federation(algorithm=learned, source=lambda client: None)
    ditto = pf.p_fedavg(0.1, sharing=pf.sharing.Ditto(), deploy="round")
    with pytest.raises(ValueError, match="before_deploy with sharing=Ditto: clients deploy personal models"):
        federation(algorithm=ditto, before_deploy=lambda theta, report: True).ready  # noqa: B018  reading it is what refuses
    # What a window has seen is sent for servers that pool it: moments of the client's own models.
    made = federation(algorithm=pf.pofl(0.1, 15, batch=pf.Fixed(4), sharing=pf.sharing.PerClient()))
    with made.precision(), pytest.raises(ValueError, match="PerClient with Performative: it sends the server more"):
        made.ready.upload_like  # noqa: B018  reading it is what refuses
