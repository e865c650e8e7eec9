"""A rollback reaches everybody within one round, whatever is going on, and the log has it."""

import json

import numpy as np
import pytest
from federations import OneThread, federation, real_federation, transport

import performative as pf
from performative.live import (
    model_versions,
    read_journal,
    read_model,
    rehearse,
    rollback,
    serve,
    verify_journal,
)
from performative.live.loopback.process_table import wait_for
from performative.live.server_store import version_in
from performative.live.wire import decode


def test_a_rollback_reaches_everybody_within_one_round(tmp_path):
    """Also those that are not drawn in it; the log has the rollback, the deployment and who was told."""
    made, met = real_federation()
    rehearse(made, tmp_path)
    folder = tmp_path / "server"
    version = version_in(folder, 2)
    with made.precision():
        old = read_model(folder, version, made.ready.shared)
    rollback(made, folder, version)
    serve(made, transport(made, tmp_path), folder, resume=True, rounds=5)
    with made.precision():
        again = model_versions(folder)[-2]
        assert np.array_equal(read_model(folder, again, made.ready.shared), old)
    for client in range(4):
        assert met[client][-1].version == again
        assert np.array_equal(met[client][-1].theta, old)
    entries = read_journal(folder)
    at = next(i for i, entry in enumerate(entries) if entry["what"] == "rollback")
    assert entries[at]["facts"] == {"round": 5, "version": version}
    assert [entry["what"] for entry in entries[at + 1 :]] == ["deployed", "told of the rollback", "round", "run ended"]
    told = entries[at + 2]["facts"]
    assert len(told["clients"]) == 2 and told["unreached"] == []
    assert verify_journal(folder).sound
    # One round later nobody is told again.
    serve(made, transport(made, tmp_path), folder, resume=True, rounds=6)
    assert sum(entry["what"] == "told of the rollback" for entry in read_journal(folder)) == 1


@pytest.mark.parametrize("concurrency", [None, 2])
def test_an_asynchronous_server_tells_those_that_do_not_train(concurrency, tmp_path):
    """A buffer of one: the round ends with the first answer, and nobody is left with the model before."""
    made, met = real_federation(pf.Asynchronous(1, concurrency=concurrency))
    rehearse(made, tmp_path)
    folder = tmp_path / "server"
    rollback(made, folder, 1)
    with made.precision():
        old = read_model(folder, 1, made.ready.shared)
    carrier = transport(made, tmp_path)
    serve(made, carrier, folder, resume=True, rounds=5)
    carrier.close()
    deployed = [entry["facts"]["version"] for entry in read_journal(folder) if entry["what"] == "deployed"][-1]
    told = {entry["what"]: entry["facts"] for entry in read_journal(folder)}.get("told of the rollback", {})
    if concurrency is not None:
        assert len(told["clients"]) == 2 and told["unreached"] == []
    wait_for(lambda: all(met[client][-1].version == deployed for client in range(4)), 10.0)
    for client in range(4):
        assert met[client][-1].version == deployed and np.array_equal(met[client][-1].theta, old)


class Keeps(OneThread):
    """The second client that trains answers while others are told of a model in the next round; one of these others is
    silent."""

    def __init__(self, made, folder):
        super().__init__(made, folder)
        self.trained, self.kept, self.silent, self.since = [], [], None, 99

    def send(self, requests, seconds):
        for client, request in requests.items():
            about, _ = decode(request)
            if about.get("step") != "deploy":
                self.trained.append((about["round"], client))
                super().send({client: request}, seconds)
                if len(self.trained) == 2:
                    self.kept, self.since = [self.back.pop()], about["round"]
            elif self.silent in (None, client):
                self.silent = client
                if about["round"] > self.since:
                    self.back += self.kept
            else:
                super().send({client: request}, seconds)


def test_an_answer_that_comes_while_others_are_told_counts(tmp_path):
    made, _ = real_federation(pf.Asynchronous(1, concurrency=2))
    rehearse(made, tmp_path)
    folder, told = tmp_path / "server", []
    rollback(made, folder, 1)
    carrier = Keeps(made, tmp_path)
    serve(made, carrier, folder, resume=True, rounds=6, on_round=told.append)
    assert carrier.kept and len(carrier.trained) == 2  # nobody was asked again
    assert [(one["heard"], one["oldest"]) for one in told] == [(1, 0), (1, 1)]


def test_who_was_not_reached_is_told_later(tmp_path):
    made, met = real_federation()
    rehearse(made, tmp_path)
    folder = tmp_path / "server"
    rollback(made, folder, 0)
    down = {"now": True}

    def wrap(client, answer):
        def listen(request):
            if client == 3 and down["now"]:
                raise RuntimeError("no power")
            return answer(request)

        return listen

    heard = {i: len(seen) for i, seen in met.items()}
    serve(made, transport(made, tmp_path, wrap), folder, resume=True, rounds=5)
    assert json.loads((folder / "rollback.json").read_text()) == [3]
    assert len(met[3]) == heard[3]
    down["now"] = False
    serve(made, transport(made, tmp_path, wrap), folder, resume=True, rounds=6)
    assert json.loads((folder / "rollback.json").read_text()) == []
    with made.precision():
        start = read_model(folder, 0, made.ready.shared)
    assert len(met[3]) == heard[3] + 1
    assert met[3][-1].version > 4 and not np.array_equal(met[3][-1].theta, start)


def test_a_secure_federation_rolls_back_too(tmp_path):
    made = federation(
        algorithm=pf.p_fedavg(rate=0.1, deploy="round", participation=pf.SchemeTwo(3)), secure=True, rounds=2
    )
    rehearse(made, tmp_path)
    rollback(made, tmp_path / "server", version_in(tmp_path / "server", 1))
    live = serve(made, transport(made, tmp_path), tmp_path / "server", resume=True, rounds=3)
    assert live.status == "completed"
    (told,) = [one for one in read_journal(tmp_path / "server") if one["what"] == "told of the rollback"]
    assert len(told["facts"]["clients"]) == 2
    assert verify_journal(tmp_path / "server").sound


def test_a_round_that_never_was(tmp_path):
    made = federation(rounds=2)
    rehearse(made, tmp_path)
    assert [version_in(tmp_path / "server", number) for number in (1, 2)] == [0, 1]
    with pytest.raises(ValueError, match=r"no round 9 of the run in .*; available: rounds 1 to 2"):
        version_in(tmp_path / "server", 9)


def test_a_member_is_told_of_a_model_only(tmp_path):
    """No work is done and nothing is remembered for such a request."""
    made, met = real_federation()
    rehearse(made, tmp_path)
    files = {i: tmp_path / "clients" / str(i) / "memory.bin" for i in range(4)}
    before = {i: path.read_bytes() if path.exists() else None for i, path in files.items()}
    rollback(made, tmp_path / "server", 0)
    serve(made, transport(made, tmp_path), tmp_path / "server", resume=True, rounds=5)
    after = {i: path.read_bytes() if path.exists() else None for i, path in files.items()}
    (told,) = [one for one in read_journal(tmp_path / "server") if one["what"] == "told of the rollback"]
    assert {i for i in range(4) if before[i] == after[i]} == set(told["facts"]["clients"])
    assert all(len(met[i]) > 0 for i in range(4))
