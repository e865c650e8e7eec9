"""Secure aggregation between hosts: the sums are those of a simulation, and hosts that lose power are recovered."""

import json
import shutil
import time

import numpy as np
import pytest
from federations import transport
from hosts import Network, need_namespaces
from joined import NAMES, begin, finish, found

import performative as pf
from performative.history import History
from performative.live import load, read_events, serve
from performative.live.loopback.site import Site
from performative.live.secure.roster import provision
from performative.live.wire import decode

pytest.importorskip("flwr", reason="the extra performative[flower] is not installed")
pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("optimized_programs")]
TABLE = "[federation]\ntimeout = 120\nresend = 10\nsecure = true\n"
CLIENTS, STEP = 5, 2.0**-32


def state_of(network, client):
    return Site.inside(network.place(client + 1) / NAMES[client]).state(client)


@pytest.fixture(scope="module")
def network(tmp_path_factory):
    """Five members, whose owners have sent each other their identities."""
    need_namespaces()
    with Network(tmp_path_factory.mktemp("hosts"), CLIENTS) as made:
        made.app = found(made, CLIENTS, table=TABLE)
        folders = {client: state_of(made, client) for client in range(CLIENTS)}
        roster = {str(i): (folder / "identity.pub").read_text().strip() for i, folder in folders.items()}
        assert not (Site.inside(made.app).folder / "clients" / "0").exists()  # the server has no part in it
        for folder in folders.values():
            (folder / "roster.json").write_text(json.dumps(roster))
        yield made


def history_of(network):
    return History.load(Site.inside(network.app).folder / "server" / "history.nc").theta[0]


def test_the_model_is_that_of_the_simulation(network):
    network.line(delay=0.01, stall=0.02)
    network.federation(0, "run", "--app", "banks", "--new")
    network.line(delay=0.0, stall=0.0)
    made = load(network.app / "federation.toml")
    run = pf.run(made.problem, made.algorithm, rounds=3, dtype="float64", seed=made.seed, executor="loop")
    apart = np.abs(history_of(network) - run.theta[0])
    assert apart[1].max() <= 0.5 * STEP + 1e-14
    assert 0 < apart.max() <= 3 * 0.5 * STEP + 1e-14  # rounds shrink what came before
    events = read_events(Site.inside(network.app).folder / "server")
    assert not events, events


def lose_power(network, client):
    """Between the first and the third step of a round; `begin` has seen the first round end."""
    path = state_of(network, client) / "secure.bin"
    deadline = time.monotonic() + 900
    while time.monotonic() < deadline:
        marks = decode(path.read_bytes())[0]["marks"] if path.exists() else {}
        if "keys" in marks and "masked" not in marks:
            return network.kill(network.place(client + 1) / NAMES[client])
        time.sleep(0.02)
    raise AssertionError("no further round came")


def dropped(network):
    """{(round, client): step at which it was gone}, as the server noticed."""
    gone = {}
    for event in read_events(Site.inside(network.app).folder / "server"):
        if "client" in event:
            reason = str(event.get("reason", ""))
            gone[event["round"], event["client"]] = (
                reason.split()[1].rstrip(":") if reason.startswith("step") else "keys"
            )
    return gone


def without(network, gone, folder):
    """The same federation in one process, whose clients are gone at these steps."""
    shutil.copytree(network.app, folder / "app", ignore=shutil.ignore_patterns(".federation"))
    made = load(folder / "app" / "federation.toml")
    provision({i: folder / "clients" / str(i) for i in range(CLIENTS)})

    def wrap(client, answer):
        def listen(request):
            about = decode(request)[0]
            if gone.get((about["round"], client)) == about["step"]:
                raise RuntimeError("no power")
            return answer(request)

        return listen

    carrier = transport(made, folder, wrap)
    try:
        return serve(made, carrier, folder / "server").theta[0]
    finally:
        carrier.close()


def test_a_host_that_loses_power_in_a_round_is_recovered(network, tmp_path):
    """Four of five are as many as it takes: the sum is that of all whose vectors came."""
    running = begin(network, 3)
    lose_power(network, 2)
    assert finish(running, 500)["round"] == 3
    gone = dropped(network)
    assert gone and {client for _, client in gone} == {2}
    model = history_of(network)
    assert np.array_equal(model, without(network, gone, tmp_path))
    assert all(not np.array_equal(model[at], model[at + 1]) for at in range(3))
    network.federation(3, "join", "--app", NAMES[2])


def test_with_fewer_than_the_threshold_the_model_stays(network):
    running = begin(network, 3)
    lose_power(network, 2)
    network.kill(network.place(5) / NAMES[4])
    finish(running, 500)
    model = history_of(network)
    assert not np.array_equal(model[0], model[1]) and np.array_equal(model[-2], model[-1])
    reasons = [
        event["reason"] for event in read_events(Site.inside(network.app).folder / "server") if "reason" in event
    ]
    assert any("step" in reason for reason in reasons), reasons
