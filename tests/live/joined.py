"""A federation over hosts, from the first command to its runs, for the tests of members on hosts of their own."""

import json
import time

from performative.live import read_status
from performative.live.app import write_app
from performative.live.loopback.site import Site

NAMES = ("north", "south", "west", "east", "fifth", "sixth", "seventh", "eighth")
TABLE = "[federation]\ntimeout = 90\nresend = 5\n"


def found(network, count, rounds=3, table=TABLE):
    """A server that is up and members that have joined, by the files that people carry."""
    app = network.place(0) / "banks"
    write_app(app, count)
    text = (app / "federation.toml").read_text()
    text = text[: text.index("[federation]")].replace("rounds = 20", f"rounds = {rounds}") + table
    (app / "federation.toml").write_text(text)
    network.federation(0, "up", "--app", "banks", "--address", network.public, "--listen", network.address(0))
    for host, name in enumerate(NAMES[:count], 1):
        network.federation(0, "invite", name, "--app", "banks")
        network.send(f"{name}.invitation", 0, host)
        asked = network.federation(host, "join", f"{name}.invitation")
        assert asked["state"] == "requested"
        network.send(f"{name}.request", host, 0)
        network.federation(0, "approve", f"{name}.request", "--app", "banks", "--fingerprint", asked["fingerprint"])
        assert network.federation(host, "join", "--app", name)["state"] == "up, accepted by the server"
    return app


def begin(network, rounds):
    """A run that is past its first round."""
    began = time.time()
    running = network.begin(0, "run", "--app", "banks", "--new", "--rounds", rounds)
    while True:
        told = read_status(Site.inside(network.app).folder / "server")
        if told is not None and told["time"] > began and told["round"] >= 1:
            return running
        assert running.poll() is None, running.communicate()  # it ended, and the first round did not come
        time.sleep(0.1)


def finish(process, seconds=200):
    out, err = process.communicate(timeout=seconds)
    print(out, err)
    assert process.returncode == 0, err
    return json.loads(out.splitlines()[-1])
