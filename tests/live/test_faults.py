"""Clients that raise, hang or die, and servers that are killed: rounds end in time, and nothing is counted twice."""

import json
import os
import pickle
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import jax
import numpy as np
import pytest
from federations import Killed, OneThread, federation, gaussian, members, simulated, transport

import performative as pf
from performative._base import files
from performative.live import AbstractTransport, model_versions, read_events, serve, verify_journal


@pytest.fixture
def trap(monkeypatch):
    """Once set, every few files the process ends just before, or just after, a file is renamed into its place."""
    rng, real = np.random.default_rng(0), os.replace
    state = {"set": False, "left": 3}

    def replace(part, path):
        state["left"] -= state["set"]
        if state["left"] > 0:
            return real(part, path)
        state["left"] = int(rng.integers(1, 12))
        if rng.integers(2):
            real(part, path)
        raise Killed

    monkeypatch.setattr(files.os, "replace", replace)
    return lambda: state.update(set=True)


def memories(made, folder):
    """What every client remembers, as arrays."""
    with made.precision():
        like = made.ready.memory_like
        last = [member.store.load(like) for member in members(made, folder).values()]
    return [(a.round, a.accepted) for a in last], [leaf for a in last for leaf in jax.tree.leaves(a.after)]


DICE = pf.dicesgd(
    clip=1.0, memory_clip=50.0, noise_multiplier=0.0, rate=0.1, batch=pf.Fixed(4), participation=pf.SchemeTwo(3)
)


@pytest.mark.slow
def test_killed_servers_and_clients_leave_the_same_bits(tmp_path, trap, survived):
    """Killed more than ten times each, the model, memories, books and ledger are as without kills."""
    made = federation(gaussian(6), DICE, rounds=25, resend=0.01, privacy=pf.Privacy(delta=1e-3))
    calm_place, place = tmp_path / "calm", tmp_path / "wild"
    calm = serve(made, OneThread(made, calm_place), calm_place / "server")
    trap()
    wild, ends, deaths = None, 0, 0
    while wild is None:
        carrier = OneThread(made, place)
        try:
            wild = serve(made, carrier, place / "server", resume=True)
        except Killed:
            ends += 1
        deaths += carrier.deaths
    assert ends >= 10
    assert deaths >= 10
    for _ in range(ends + deaths):
        with survived("a server or client killed in mid-write"):
            assert np.array_equal(wild.theta, calm.theta)
    for name in ("uploads", "samples", "rejected", "missing", "epsilon", "communications"):
        assert np.array_equal(wild[name], calm[name]), name
    (when, wild_memories), (calm_when, calm_memories) = memories(made, place), memories(made, calm_place)
    assert when == calm_when
    assert all(np.array_equal(a, b) for a, b in zip(wild_memories, calm_memories, strict=True))
    assert (place / "server" / "ledger.json").read_bytes() == (calm_place / "server" / "ledger.json").read_bytes()
    assert model_versions(place / "server") == model_versions(calm_place / "server")
    assert verify_journal(place / "server").sound


def _round(place):
    book = place / "server" / "state.json"
    return json.loads(book.read_text())["notes"]["round"] if book.exists() else 0


def faulty(rng, timeout, released):
    """A fifth of the answers do not come: the client raises, answers past the round, or hangs until it is released."""

    def wrap(client, answer):
        def listen(request):
            fate = rng.random()
            if fate < 0.07:
                raise RuntimeError("the disk is full")
            if fate < 0.14:
                time.sleep(1.5 * timeout)  # longer than the round waits
            elif fate < 0.20 and client % 2:  # the others live on, however many rounds there are
                released.wait()
                raise ConnectionError("killed")
            return answer(request)

        return listen

    return wrap


@pytest.mark.slow
@pytest.mark.parametrize("rounds", [8, 100])
def test_rounds_end_whatever_clients_do(rounds, tmp_path):
    made = federation(gaussian(10), rounds=rounds, timeout=0.4, resend=10.0)
    with made.precision():
        _ = made.ready.upload_like
    rehearsed = serve(
        federation(gaussian(10), rounds=1), transport(made, tmp_path / "warm"), tmp_path / "warm" / "server"
    )
    assert rehearsed.status == "completed"  # and everything is compiled
    released = threading.Event()
    try:  # a round that waited for them would wait for ever
        wrap = faulty(np.random.default_rng(2), 0.4, released)
        live = serve(made, transport(made, tmp_path, wrap), tmp_path / "server")
    finally:
        released.set()
    assert live.status == "completed"
    assert live.rounds[-1] == rounds
    assert live["missing"][0, -1] > 0
    assert np.all(np.isfinite(live.theta))
    told = read_events(tmp_path / "server")
    assert {event["what"] for event in told} <= {"failed", "silent", "quorum"}
    assert sum(event["what"] != "quorum" for event in told) == live["missing"][0, -1]


def test_a_client_that_comes_late_is_heard(tmp_path):
    """Asked again after `resend` seconds, a client that lost the first request answers the second."""
    made = federation(rounds=2, resend=0.2)
    lost = set()

    class Lossy(OneThread):
        def send(self, requests, seconds):
            first = {c for c in requests if c not in lost}
            lost.update(first)
            super().send({c: r for c, r in requests.items() if c not in first or c != 2}, seconds)

    live = serve(made, Lossy(made, tmp_path), tmp_path / "server")
    assert live["missing"][0, -1] == 0
    assert np.array_equal(live.theta, simulated(made).theta)


def test_a_client_that_lost_its_disk_says_so(tmp_path):
    made = federation(algorithm=DICE, rounds=2)
    serve(made, OneThread(made, tmp_path), tmp_path / "server")
    for i in range(made.clients):
        (tmp_path / "clients" / str(i) / "memory.bin").unlink(missing_ok=True)
    serve(made, OneThread(made, tmp_path), tmp_path / "server", resume=True, rounds=4)
    assert "memory lost" in {event["what"] for event in read_events(tmp_path / "server")}


def test_a_late_copy_of_a_request_is_void(tmp_path):
    """It must not be worked on: the memory has moved on since."""
    made = federation(algorithm=DICE, rounds=4)
    seen = {}

    class Spy(OneThread):
        def send(self, requests, seconds):
            for client, request in requests.items():
                seen.setdefault(client, []).append(request)
            super().send(requests, seconds)

    carrier = Spy(made, tmp_path)
    serve(made, carrier, tmp_path / "server")
    client = next(c for c, asked in seen.items() if len(asked) > 1)
    before = (tmp_path / "clients" / str(client) / "memory.bin").read_bytes()
    with pytest.raises(ValueError, match="the request is stale"):
        carrier.members[client].answer(seen[client][0])
    assert (tmp_path / "clients" / str(client) / "memory.bin").read_bytes() == before


def test_one_answer_at_a_time(tmp_path):
    """Threads that ask at once get the same bytes, and leave a sound file."""
    made = federation(algorithm=DICE, rounds=1)
    seen = {}

    class Spy(OneThread):
        def send(self, requests, seconds):
            seen.update(requests)

    with pytest.raises(Killed):
        serve(made, Stopping(Spy(made, tmp_path)), tmp_path / "server")
    client, request = next(iter(seen.items()))
    member, found = members(made, tmp_path)[client], []
    threads = [threading.Thread(target=lambda: found.append(member.answer(request))) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(found) == 4
    assert len(set(found)) == 1


class Stopping(AbstractTransport):
    """Sends once, then the server is killed."""

    def __init__(self, inner):
        self.inner = inner

    def online(self):
        return self.inner.online()

    def send(self, requests, seconds):
        self.inner.send(requests, seconds)
        raise Killed

    def receive(self, seconds):
        return []


@pytest.mark.slow
def test_a_start_that_was_cut_off_and_changed_is_another_run(tmp_path):
    one, two = federation(algorithm=DICE, rounds=2), federation(algorithm=pf.scaffold(rate=0.1), rounds=2)
    with pytest.raises(Killed):
        serve(one, Stopping(OneThread(one, tmp_path)), tmp_path / "server")
    live = serve(two, OneThread(two, tmp_path), tmp_path / "server", resume=True)
    assert np.array_equal(live.theta, simulated(two).theta)


def test_a_network_that_fails_for_a_moment(tmp_path):
    made, falls = federation(rounds=2), []

    class Shaky(OneThread):
        def receive(self, seconds):
            if len(falls) < 2:
                falls.append(True)
                raise ConnectionError("no route")
            return super().receive(seconds)

    live = serve(made, Shaky(made, tmp_path), tmp_path / "server")
    assert np.array_equal(live.theta, simulated(made).theta)
    assert len(falls) == 2


def test_a_memory_file_that_is_spoilt_is_refused(tmp_path):
    made = federation(rounds=1, timeout=1.0)
    serve(made, OneThread(made, tmp_path), tmp_path / "server")
    path = tmp_path / "clients" / "0" / "memory.bin"
    path.write_bytes(path.read_bytes()[:-3])
    with pytest.raises(ValueError, match="Move the file away"):
        serve(made, OneThread(made, tmp_path), tmp_path / "server", resume=True, rounds=2)


@pytest.mark.slow
def test_a_new_run_begins_with_fresh_memories(tmp_path):
    """Even where another algorithm, with other memories, used the client's folder before."""
    for name, algorithm in (("one", DICE), ("two", pf.scaffold(rate=0.1, deploy="round")), ("three", DICE)):
        made = federation(algorithm=algorithm, rounds=2)
        live = serve(made, OneThread(made, tmp_path), tmp_path / name)
        assert np.array_equal(live.theta, simulated(made).theta)
        assert not read_events(tmp_path / name)


def test_two_servers_in_one_folder(tmp_path):
    made = federation(rounds=1)

    class Nested(OneThread):
        def online(self):
            with pytest.raises(ValueError, match="another server is running"):
                serve(made, self, tmp_path / "server", resume=True)
            return super().online()

    assert serve(made, Nested(made, tmp_path), tmp_path / "server").status == "completed"


def test_another_run_in_the_folder_is_refused(tmp_path):
    serve(federation(rounds=1), OneThread(federation(rounds=1), tmp_path), tmp_path / "server")
    other = federation(rounds=1, seed=4)
    with pytest.raises(ValueError, match="seed: 3 -> 4"):
        serve(other, OneThread(other, tmp_path), tmp_path / "server", resume=True)
    with pytest.raises(ValueError, match="already contains a run"):
        serve(other, OneThread(other, tmp_path), tmp_path / "server")


def test_a_client_with_other_files_refuses_to_work(tmp_path):
    """What is asked must be what the client's own app folder says."""
    made, other = federation(rounds=1), federation(rounds=1, algorithm=pf.p_fedavg(rate=0.2, deploy="round"))
    carrier = transport(other, tmp_path)
    with pytest.warns(UserWarning, match="nothing-was-learned"):
        live = serve(made, carrier, tmp_path / "server")
    assert live["missing"][0, -1] == 5
    assert "the server's problem, algorithm" in read_events(tmp_path / "server")[0]["reason"]


PROGRAM = """
import sys
from pathlib import Path
import performative as pf
sys.path.insert(0, sys.argv[2])
from federations import federation, gaussian
from performative.live import rehearse
algorithm = pf.dicesgd(clip=1.0, memory_clip=50.0, noise_multiplier=0.0, rate=0.1, batch=pf.Fixed(4),
                       participation=pf.SchemeTwo(3))
made = federation(gaussian(6), algorithm, rounds=400, privacy=pf.Privacy(delta=1e-3))
history = rehearse(made, Path(sys.argv[1]), resume=True)
history.save(Path(sys.argv[1]) / "history.nc")
"""


@pytest.mark.slow
def test_sigkill_at_random_moments(tmp_path, survived):
    """The whole rehearsal, server and clients, is killed ten times with kill -9 and goes on each time."""
    from performative.history import History

    def start(place):
        return subprocess.Popen([sys.executable, "-c", PROGRAM, str(place), str(Path(__file__).parent)])

    calm, wild, rng, kills = tmp_path / "calm", tmp_path / "wild", np.random.default_rng(5), 0
    assert start(calm).wait(300) == 0
    while kills < 10:
        process, aim = start(wild), _round(wild) + rng.integers(1, 21)
        while _round(wild) < aim and process.poll() is None:
            time.sleep(0.001)  # it is at work
        time.sleep(float(rng.uniform(0.0, 0.02)))
        if process.poll() is not None:
            break
        os.kill(process.pid, signal.SIGKILL)
        process.wait()
        kills += 1
    assert start(wild).wait(300) == 0
    assert kills == 10
    one, two = History.load(calm / "history.nc"), History.load(wild / "history.nc")
    for _ in range(kills):
        with survived("kill -9 of a federation's processes"):
            assert np.array_equal(one.theta, two.theta)
    for name in ("uploads", "samples", "epsilon"):
        assert np.array_equal(one[name], two[name])
    made = federation(gaussian(6), DICE, rounds=400, privacy=pf.Privacy(delta=1e-3))
    assert memories(made, calm)[0] == memories(made, wild)[0]
    assert all(np.array_equal(a, b) for a, b in zip(memories(made, calm)[1], memories(made, wild)[1], strict=True))
    assert (calm / "server" / "ledger.json").read_bytes() == (wild / "server" / "ledger.json").read_bytes()
    assert model_versions(calm / "server") == model_versions(wild / "server")


def test_nothing_is_ever_unpickled(tmp_path, monkeypatch):
    """Requests, answers, memories, models and checkpoints are read without pickle."""

    def forbidden(*_, **__):
        raise AssertionError("something was unpickled")

    made = federation(rounds=2)
    for name in ("load", "loads", "Unpickler"):
        monkeypatch.setattr(pickle, name, forbidden)
    serve(made, OneThread(made, tmp_path), tmp_path / "server")
    live = serve(made, OneThread(made, tmp_path), tmp_path / "server", resume=True, rounds=3)
    assert live.rounds[-1] == 3
