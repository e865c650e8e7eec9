"""Members on hosts of their own, in network namespaces: joining, bad lines, kills, partitions, moves, expulsions."""

import json
import subprocess
import sys
import time

import numpy as np
import pytest
from hosts import PORT, Network, need_namespaces
from joined import NAMES, begin, finish, found

import performative as pf
from performative.history import History
from performative.live import load, read_events, read_journal
from performative.live.loopback.site import Site

pytest.importorskip("flwr", reason="the extra performative[flower] is not installed")
# Optimized as the processes of the federation are: otherwise the last bits differ.
pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("optimized_programs")]


def is_simulated(app, rounds):
    """Whether the model is that of `pf.run` to the bit, every round of it."""
    made = load(app / "federation.toml")
    run = pf.run(made.problem, made.algorithm, rounds=rounds, dtype="float64", seed=made.seed, executor="loop")
    return np.array_equal(History.load(Site.inside(app).folder / "server" / "history.nc").theta, run.theta)


def read_lines(app, name):
    return [json.loads(line) for line in (Site.inside(app).folder / "server" / name).read_text().splitlines()]


@pytest.fixture(scope="module")
def network(tmp_path_factory):
    need_namespaces()
    with Network(tmp_path_factory.mktemp("hosts"), 3) as made:
        made.app = found(made, 3)
        yield made


def test_over_a_line_that_is_slow_and_loses(network):
    network.line(delay=0.02, stall=0.03, reset=0.005)
    network.federation(0, "run", "--app", "banks", "--new")
    network.line(delay=0.0, stall=0.0, reset=0.0)
    assert is_simulated(network.app, 3)
    assert network.federation(0, "verify", "--app", "banks")["lines"] > 10


def test_a_host_without_power_comes_back_within_the_round(network):
    running = begin(network, 4)
    network.kill(network.place(2) / "south")
    time.sleep(2)
    network.federation(2, "join", "--app", "south")
    assert finish(running)["round"] == 4
    assert is_simulated(network.app, 4)


def test_a_partition_that_heals_within_the_round(network):
    running = begin(network, 4)
    network.line(cut=[network.address(3)])
    time.sleep(12)
    network.line(cut=[])
    assert finish(running)["round"] == 4
    assert is_simulated(network.app, 4)


def test_after_a_partition_of_minutes_the_member_is_heard_again(network):
    """Longer than a round waits, and than Flower counts a silent node as there: rounds go on without it."""
    running = begin(network, 4)
    network.line(cut=[network.address(3)])
    time.sleep(150)
    network.line(cut=[])
    assert finish(running, 300)["round"] == 4
    heard = [told["heard"] for told in read_lines(network.app, "rounds.jsonl")]
    assert heard[0] == 3 and 2 in heard and heard[-1] == 3
    assert network.federation(3, "status", "--app", "west")["member"]["state"] == "up, accepted by the server"


def test_nothing_is_open_but_the_server_to_members(network):
    server = (network.address(0), PORT)
    for host in network.hosts:
        wide = {place for place in network.listening(host) if place[0] != "127.0.0.1"}
        assert wide == ({server} if host == 0 else set())
    probe = (
        "import ssl, sys, urllib.request as r\n"
        "c = ssl._create_unverified_context()\n"
        "for path in ('health', 'docs', 'v1/control/list-runs', 'v1/runtime/acquire-task', 'v1/fleet/none'):\n"
        "    try:\n"
        "        print(path, r.urlopen(f'https://{sys.argv[1]}/{path}', context=c, timeout=10).status)\n"
        "    except r.HTTPError as error:\n"
        "        print(path, error.code)\n"
    )
    for host, there in ((1, network.public), (0, f"{network.address(0)}:{PORT}")):
        words = network.words(host, sys.executable, "-c", probe, there)
        said = subprocess.run(words, capture_output=True, text=True, check=True, timeout=60).stdout.split()
        found = dict(zip(said[::2], said[1::2], strict=True))
        assert found.pop("v1/fleet/none") == "404"
        # The server's own user may; from another host nobody.
        assert set(found.values()) == ({"403"} if host else {"200", "405"})


def test_an_app_that_a_member_did_not_agree_to_is_not_run(network):
    """Around our own check on the server: the member's is the one that counts."""
    app, registry = network.app, Site.inside(network.app).folder / "registry.json"
    before, known = (app / "app.py").read_text(), registry.read_text()
    mark = network.place(1) / "ran"
    try:
        (app / "app.py").write_text(f"open({str(mark)!r}, 'w').close()\n{before}")
        entries = json.loads(known)
        registry.write_text(json.dumps({i: {k: v for k, v in e.items() if k != "app"} for i, e in entries.items()}))
        said = network.federation(0, "run", "--app", "banks", "--new", "--rounds", "1", code=1)
    finally:
        (app / "app.py").write_text(before)
        registry.write_text(known)
    assert "this member agreed to run the app" in said["error"]["message"]
    assert not mark.exists()


def test_the_server_moves(network):
    network.federation(0, "run", "--app", "banks", "--new", "--rounds", "2")
    network.federation(0, "down", "--app", "banks")
    network.federation(0, "up", "--app", "banks", "--address", network.moved, "--listen", network.address(0))
    network.federation(0, "invite", "north", "--app", "banks", "--out", "moved")
    network.send("moved", 0, 1)
    network.federation(1, "join", "moved", "--app", "north")  # a file that the server signed
    for host in (2, 3):
        network.federation(host, "join", "--app", NAMES[host - 1], "--address", network.moved)
    network.federation(0, "run", "--app", "banks", "--resume", "--rounds", "4")
    assert is_simulated(network.app, 4)


def test_a_new_certificate_is_noticed_by_nobody(network):
    network.federation(0, "rotate", "--app", "banks")
    network.federation(0, "run", "--app", "banks", "--new", "--rounds", "2")
    assert is_simulated(network.app, 2)


def test_the_doctor_finds_both_sides_well(network):
    for host, folder in ((0, "banks"), (1, "north"), (2, "south")):
        checks = network.federation(host, "doctor", "--app", folder)["checks"]
        assert {check["name"] for check in checks} >= {"permissions", "disk", "clock", "versions", "server", "ports"}


def test_one_is_expelled_in_the_middle_of_a_run_and_one_leaves(network):
    running = begin(network, 6)
    network.federation(0, "expel", "south", "--app", "banks")
    assert finish(running)["round"] == 6
    gone = {event["client"] for event in read_events(Site.inside(network.app).folder / "server") if "client" in event}
    assert gone == {1}
    assert network.federation(2, "status", "--app", "south")["member"]["state"].startswith("rejected")
    network.federation(2, "join", "--app", "south", code=1)
    network.federation(3, "leave", "--app", "west")
    network.send("west.leave", 3, 0)
    assert network.federation(0, "approve", "west.leave", "--app", "banks")["what"] == "left"
    network.federation(3, "join", "--app", "west", code=2)
    lines = [entry["what"] for entry in read_journal(Site.inside(network.app).folder / "server")]
    assert "expelled" in lines and lines[-1] == "left"
    assert network.federation(0, "verify", "--app", "banks")["line"] is None


def test_eight_hosts(tmp_path):
    need_namespaces()
    with Network(tmp_path, 8) as network:
        app = found(network, 8, rounds=2)
        network.line(delay=0.01, stall=0.02)
        network.federation(0, "run", "--app", "banks")
        assert is_simulated(app, 2)
