"""A tiny Flower app of two clients that give back what they are sent, and what the tests do with it."""

import json
import os
import signal
import time

from performative.live.loopback import processes
from performative.live.loopback.process_table import wait_for

CLIENTS = 2
DEADLINE = 8.0

PROJECT = """\
[build-system]
requires = ["hatchling"]
build-backend = "hatchling.build"

[project]
name = "echo"
version = "1.0.0"
description = "Sends bytes to every client and back."
license = "Apache-2.0"
dependencies = []

[tool.flwr.app]
publisher = "performative"

[tool.flwr.app.components]
serverapp = "echo_app:server"
clientapp = "echo_app:client"

[tool.flwr.app.config]
rounds = 2
report = ""
order = ""
patience = 40.0
"""

APP = """\
import json, os, signal, sys, time

from flwr.app import ConfigRecord, Message, RecordDict
from flwr.clientapp import ClientApp
from flwr.serverapp import ServerApp

client = ClientApp()
server = ServerApp()


@client.train()
def echo(message, context):
    asked, number = message.content["asked"], context.node_config["client"]
    order = asked["order"] if number == 0 else ""
    if order == "raise":
        raise ValueError("as it was asked to")
    if order == "kill":
        os.kill(os.getpid(), signal.SIGKILL)
    if order == "leave":
        os._exit(3)
    if order == "hang":
        time.sleep(1000)
    warm = "jax" in sys.modules and "performative" in sys.modules
    answer = {"bytes": asked["bytes"], "client": number, "state": context.node_config["state"], "warm": warm}
    if order == "jax":
        import jax.numpy as jnp

        answer["sum"] = float(jnp.arange(5.0).sum())
    return Message(RecordDict({"answer": ConfigRecord(answer)}), reply_to=message)


@server.main()
def main(grid, context):
    config = context.run_config
    report = {"rounds": []}
    deadline = time.time() + 30
    while len(nodes := list(grid.get_nodes())) < 2 and time.time() < deadline:
        time.sleep(0.1)
    report["nodes"] = {str(node.node_id): node.public_key.decode() for node in nodes}
    if config["order"] == "fail":
        raise RuntimeError("the server fails")
    for number in range(config["rounds"]):
        while len(ids := list(grid.get_node_ids())) < 2 and time.time() < deadline:
            time.sleep(0.1)
        begin, sent = time.time(), os.urandom(100)
        order = config["order"] if number == 0 else ""
        ask = lambda node: Message(
            RecordDict({"asked": ConfigRecord({"bytes": sent, "order": order})}), node, "train"
        )
        waiting, answers, errors = set(grid.push_messages([ask(node) for node in ids])), {}, []
        while waiting and time.time() - begin < config["patience"]:
            for reply in grid.pull_messages(list(waiting)):
                waiting.discard(reply.metadata.reply_to_message_id)
                if reply.has_error():
                    errors.append([reply.error.code, reply.error.reason, time.time() - begin])
                else:
                    answer = dict(reply.content["answer"])
                    answer["same"] = answer.pop("bytes") == sent
                    answers[str(answer["client"])] = answer | {"node": reply.metadata.src_node_id}
            time.sleep(0.1)
        seconds = time.time() - begin
        report["rounds"].append({"seconds": seconds, "answers": answers, "errors": errors, "silent": len(waiting)})
    with open(config["report"], "w") as file:
        json.dump(report, file)
"""


def make_app(folder):
    folder.mkdir()
    (folder / "pyproject.toml").write_text(PROJECT)
    (folder / "echo_app.py").write_text(APP)
    return folder


def run(site, app, limit=120.0, **config):
    """Status and report of one run."""
    report = site.folder / "report.json"
    report.unlink(missing_ok=True)
    number = processes.submit(site, app, {"report": str(report), **config})
    deadline = time.monotonic() + limit
    while not (status := processes.run_status(site, number)).over and time.monotonic() < deadline:
        time.sleep(1.0)
    return status, json.loads(report.read_text()) if report.exists() else None


def check_round(site, one):
    """Every client gave back what it was sent, under its own number, key and folder."""
    assert not one["errors"] and not one["silent"]
    assert sorted(one["answers"]) == ["0", "1"]
    for number, answer in one["answers"].items():
        assert answer["same"] and answer["state"] == str(site.state(int(number)))
        assert answer["node"] == site.registry()[int(number)]["node_id"]


def kill_and_wait(site, name):
    """Until a killed SuperNode's successor is connected."""
    before = processes.running(site)[name]
    os.kill(before, signal.SIGKILL)

    def back():
        return processes.running(site).get(name) not in (None, before) and processes.connected(site, 0)

    assert wait_for(back, 20.0)
