"""Requests and answers inside Flower's messages, without its processes: who is who, and what is made of errors."""

import json

import numpy as np
import pytest
from federations import federation, simulated

pytest.importorskip("flwr", reason="the extra performative[flower] is not installed")

from flwr.app import ConfigRecord, Context, Error, Message, RecordDict
from flwr.serverapp import Grid

from performative.live import read_events, serve
from performative.live.flower import FlowerTransport, client_app, read_registry


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


def test_messages_that_are_void_are_forgotten(tmp_path, registry):
    made = federation(rounds=1, timeout=0.5, resend=0.1)
    grid = LocalGrid(lambda: made, tmp_path)
    carrier = FlowerTransport(grid, registry)
    grid.pull_messages = lambda names: []
    serve(made, carrier, tmp_path / "server")
    carrier.receive(0.2)
    assert not carrier._waiting
