"""Requests and answers inside Flower's messages, without its processes: who is who, and what is made of errors."""

import json
import threading
import time
from types import SimpleNamespace
from typing import ClassVar

import numpy as np
import pytest
from federations import federation, simulated

pytest.importorskip("flwr", reason="the extra performative[flower] is not installed")

from flwr.app import ConfigRecord, Context, Error, Message, RecordDict
from flwr.serverapp import Grid

from performative.live import read_events, serve
from performative.live.flower import _STUCK, FlowerTransport, client_app, read_registry


class Node:
    """What the grid says of a node."""

    def __init__(self, node_id, public_key):
        self.node_id, self.public_key = node_id, public_key


class LocalGrid(Grid):
    """A grid whose nodes answer at once, in this process. `spoil` may change what a node answers."""

    def __init__(self, make, folder, spoil=lambda node, message, reply: reply):
        self.app, self.folder, self.spoil = client_app(make, __file__), folder, spoil
        self.nodes = {100 + i: f"key {i}".encode() for i in range(5)} | {666: b"a stranger's key"}
        self.replies, self.asked, self.sent = {}, [], 0

    def get_nodes(self):
        return [Node(number, key) for number, key in self.nodes.items()]

    def push_messages(self, messages):
        names = []
        for message in messages:
            node = message.metadata.dst_node_id
            self.asked.append(node)
            self.sent += 1
            message.metadata.__dict__["_message_id"] = str(self.sent)
            state = str(self.folder / "clients" / str(node - 100))
            context = Context(1, node, {"client": node - 100, "state": state}, RecordDict(), {})
            try:
                reply = self.app(message, context)
            except Exception as error:  # as Flower does
                reply = Message(Error(2, str(error)), reply_to=message)
            self.replies[str(self.sent)] = self.spoil(node, message, reply)
            names.append(str(self.sent))
        return names

    def pull_messages(self, message_ids):
        return [reply for name in message_ids if (reply := self.replies.pop(name, None)) is not None]

    run = property(lambda self: None)
    set_run = create_message = get_node_ids = send_and_receive = None


@pytest.fixture(autouse=True)
def a_task(monkeypatch):
    """Flower stamps messages with the task that its process works for."""
    from flwr.supercore.task_identity import TaskIdentity

    for name in ("_run_id", "_node_id", "_task_id"):
        monkeypatch.setattr(TaskIdentity, name, 1)


@pytest.fixture
def registry(tmp_path):
    """Keys of the five clients: client i holds the key of node 100 + i."""
    path = tmp_path / "registry.json"
    path.write_text(json.dumps({str(i): {"public_key": f"key {i}", "node_id": 100 + i} for i in range(5)}))
    return read_registry(path)


def test_a_federation_over_messages_is_the_simulation(tmp_path, registry):
    made = federation(rounds=3)
    grid = LocalGrid(lambda: made, tmp_path)
    live = serve(made, FlowerTransport(grid, registry), tmp_path / "server")
    assert np.array_equal(live.theta, simulated(made, executor="loop").theta)
    assert 666 not in grid.asked  # a node whose key nobody registered is left alone


def test_a_node_is_the_client_of_its_key_not_of_its_word(tmp_path, registry):
    """Node 101 says that it is client 1, but holds client 2's key: it is asked for client 2's work, and refuses."""
    made = federation(rounds=1, timeout=2.0)
    grid = LocalGrid(lambda: made, tmp_path)
    grid.nodes |= {101: b"key 2", 102: b"key 1"}
    live = serve(made, FlowerTransport(grid, registry), tmp_path / "server")
    assert live["missing"][0, -1] == 2
    reasons = {event["client"]: event["reason"] for event in read_events(tmp_path / "server")}
    assert reasons.keys() == {1, 2}
    assert "the request is for client 2; this is client 1" in reasons[2]


@pytest.mark.parametrize(
    "content",
    [
        RecordDict({}),
        RecordDict({"performative": ConfigRecord({"other": b"x"})}),
        RecordDict({"performative": ConfigRecord({"reply": "text"})}),
        RecordDict({"performative": ConfigRecord({"reply": [1.0, 2.0]})}),
    ],
    ids=["nothing", "another name", "text", "numbers"],
)
def test_a_message_without_an_answer_is_rejected(content, tmp_path, registry):
    def spoil(node, message, reply):
        return Message(content, reply_to=message) if node == 103 else reply

    made = federation(rounds=1)
    live = serve(made, FlowerTransport(LocalGrid(lambda: made, tmp_path, spoil), registry), tmp_path / "server")
    assert live["rejected"][0, -1] == 1
    assert read_events(tmp_path / "server")[0]["client"] == 3


def test_errors_of_the_way_are_asked_again_and_those_of_the_client_are_not(tmp_path, registry):
    """Code 5, the node is unavailable: asked again. Code 2, the app raised: a failed client."""
    failures = {100: [5, 5], 101: [2]}

    def spoil(node, message, reply):
        return Message(Error(failures[node].pop(), "trouble"), reply_to=message) if failures.get(node) else reply

    made = federation(rounds=1, resend=0.1)
    grid = LocalGrid(lambda: made, tmp_path, spoil)
    live = serve(made, FlowerTransport(grid, registry), tmp_path / "server")
    assert grid.asked.count(100) == 3
    assert grid.asked.count(101) == 1
    assert live["missing"][0, -1] == 1
    (event,) = read_events(tmp_path / "server")
    assert (event["what"], event["client"], event["reason"]) == ("failed", 1, "trouble")


def test_nobody_waits_for_a_member_that_was_expelled_in_the_run(tmp_path, registry):
    """Its key is taken out while round 2 begins; from then on its number is answered for at once."""
    made = federation(rounds=4, timeout=60.0)
    grid, known = LocalGrid(lambda: made, tmp_path), dict(registry)

    def told(status):
        known.pop(b"key 3", None)

    live = serve(made, FlowerTransport(grid, lambda: known, range(5)), tmp_path / "server", on_round=told)
    assert grid.asked.count(103) == 1
    assert live["missing"][0].tolist() == [0, 0, 1, 2, 3]
    assert "no member has this number" in read_events(tmp_path / "server")[0]["reason"]


def test_messages_that_are_void_are_forgotten(tmp_path, registry):
    made = federation(rounds=1, timeout=0.5, resend=0.1)
    grid = LocalGrid(lambda: made, tmp_path)
    carrier = FlowerTransport(grid, registry)
    grid.pull_messages = lambda names: []
    with pytest.warns(UserWarning, match="nothing-was-learned"):
        serve(made, carrier, tmp_path / "server")
    for fetch in carrier._fetching:
        fetch.join(10)
    assert not any(fetch.is_alive() for fetch in carrier._fetching)


class Withholding(LocalGrid):
    """Node 102 announces its answers and never sends their parts: Flower's `pull_messages` waits for them."""

    def __init__(self, *arguments):
        super().__init__(*arguments)
        self.withheld, self.release = 0, threading.Event()

    def pull_messages(self, message_ids):
        if any(self.nodes_of.get(name) == 102 for name in message_ids):
            self.withheld += 1
            self.release.wait(300)
            return []
        return super().pull_messages(message_ids)

    def push_messages(self, messages):
        names = super().push_messages(messages)
        self.nodes_of |= dict(zip(names, (m.metadata.dst_node_id for m in messages), strict=True))
        return names

    nodes_of: ClassVar[dict] = {}


def test_a_node_that_withholds_its_answer_holds_up_nobody_else(tmp_path, registry, monkeypatch):
    made = federation(rounds=1, timeout=60.0)
    grid = Withholding(lambda: made, tmp_path)
    carrier, heard = FlowerTransport(grid, registry), set()
    receive = carrier.receive

    def listen(seconds):
        replies = receive(seconds)
        heard.update(reply.client for reply in replies)
        return replies

    def hours():
        """The time of the round is up as soon as all others were heard, and not before."""
        return 3600.0 if len(heard) == 4 and grid.withheld else 0.0

    monkeypatch.setattr(carrier, "receive", listen)
    monkeypatch.setattr("performative.live.gathering.time", SimpleNamespace(monotonic=hours, sleep=time.sleep))
    live = serve(made, carrier, tmp_path / "server")
    grid.release.set()
    assert live.status == "completed" and grid.withheld
    assert live["missing"][0, -1] == 1  # all others were heard
    assert {event["client"] for event in read_events(tmp_path / "server")} == {2}


def test_a_node_that_goes_on_withholding_is_asked_no_more(tmp_path, registry):
    made = federation(rounds=1)
    grid = Withholding(lambda: made, tmp_path)
    carrier = FlowerTransport(grid, registry)
    carrier.online()
    for number in range(1, _STUCK + 1):
        carrier.send({2: b"request"}, 60.0)
        while grid.withheld < number:
            time.sleep(0.01)
    for fetch in carrier._fetching:
        fetch._until = 0.0  # the time of every message is up, and its answer is still being fetched
    asked = len(grid.asked)
    carrier.send({2: b"request"}, 5.0)
    (reply,) = carrier.receive(5.0)
    grid.release.set()
    assert reply.client == 2 and f"announced {_STUCK} answers and withholds them" in reply.error
    assert len(grid.asked) == asked


def test_clients_whose_clocks_are_ahead_say_so(tmp_path, registry, monkeypatch):
    ahead = SimpleNamespace(time=lambda: time.time() + 3600, monotonic=time.monotonic, sleep=time.sleep)
    monkeypatch.setattr("performative.live.flower.time", ahead)
    made = federation(rounds=1)
    with pytest.warns(UserWarning, match="nothing-was-learned"):
        live = serve(made, FlowerTransport(LocalGrid(lambda: made, tmp_path), registry), tmp_path / "server")
    assert live.status == "failed"
    reasons = [event["reason"] for event in read_events(tmp_path / "server") if event["what"] == "failed"]
    assert len(reasons) == 5 and all("clock is ahead of the server's" in reason for reason in reasons)


def test_a_silent_server_of_flower_is_not_waited_for(tmp_path, registry, monkeypatch):
    monkeypatch.setattr("performative.live.flower._CALL", 0.05)
    grid = LocalGrid(lambda: federation(rounds=1), tmp_path)
    hold = threading.Event()
    grid.get_nodes = lambda: hold.wait(60)
    with pytest.raises(TimeoutError, match=r"did not answer within 0\.05 s"):
        FlowerTransport(grid, registry).online()
    hold.set()
