"""Which processes are ours, what they are started with, and what is refused, without a federation."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

pytest.importorskip("flwr", reason="the extra performative[flower] is not installed")

from performative.live import app as apps
from performative.live.loopback import processes
from performative.live.loopback.commands import environment, tail
from performative.live.loopback.interrupts import interrupts_held
from performative.live.loopback.process_table import living, members, send, started, wait_for
from performative.live.loopback.site import Site
from performative.live.server_store import ServerStore, rounds_size
from performative.live.transport import VACANT


def test_a_recycled_pid_is_never_signalled():
    child = subprocess.Popen(["sleep", "60"])
    try:
        mine = {"pid": child.pid, "started": started(child.pid)}
        other = mine | {"started": str(int(mine["started"]) - 1)}  # what had this pid before
        assert living(mine) == child.pid and living(other) is None
        assert not send(other, signal.SIGKILL) and child.poll() is None
        assert send(mine, signal.SIGKILL)
    finally:
        child.kill()
        child.wait()
    assert living(mine) is None and not send(mine, signal.SIGKILL)


def test_a_zombie_does_not_live():
    child = subprocess.Popen(["true"])
    os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)  # ended, not yet reaped
    assert started(child.pid) is None
    child.wait()


def test_processes_of_a_site_are_found_by_their_mark(tmp_path):
    site = Site(tmp_path / "site")
    script = "sleep 60 & sleep 60"
    marked = subprocess.Popen(["sh", "-c", script], env=os.environ | {"PERFORMATIVE_SITE": str(site.folder)})
    other = subprocess.Popen(["sleep", "60"], env=os.environ | {"PERFORMATIVE_SITE": f"{site.folder}2"})
    try:
        assert wait_for(lambda: len(members(site)) == 3, 5.0)  # the shell and both that it started
        assert other.pid not in {process["pid"] for process in members(site)}
    finally:
        for process in members(site):
            send(process, signal.SIGKILL)
        other.kill()
        marked.wait()
        other.wait()


@pytest.mark.slow
def test_a_process_that_outlives_its_command_is_not_warned_of(tmp_path):
    site = Site(tmp_path / "site")
    site.prepare()
    code = (
        "import sys\n"
        "from performative.live.loopback.commands import spawn\n"
        "from performative.live.loopback.site import Site\n"
        "print(spawn(['sleep', '60'], Site(sys.argv[1]), 'sleeper').pid)"
    )
    words = [sys.executable, "-W", "always", "-c", code, str(site.folder)]
    ended = subprocess.run(words, capture_output=True, text=True, check=True, timeout=100)
    os.kill(int(ended.stdout), signal.SIGKILL)
    assert "ResourceWarning" not in ended.stderr


def test_the_end_of_a_log_has_no_colors(tmp_path):
    path = tmp_path / "node.log"
    path.write_text("\x1b[92mINFO \x1b[0m: it began\n")
    assert tail(path).splitlines()[1:] == ["INFO : it began"]


def test_a_round_says_why_a_client_was_not_heard(tmp_path):
    lines = [
        {"round": 0, "what": "failed", "client": 1, "reason": "an earlier round"},
        {"round": 1, "what": "memory lost", "client": 0, "reason": "it was reset"},
        {"round": 1, "what": "failed", "client": 2, "reason": "there is no column 'debt' in the client's table"},
    ]
    (tmp_path / "events.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    told = apps._with_cause(tmp_path, {"round": 2, "missing": 1, "rejected": 0})
    assert told["trouble"] == "client 2 failed: there is no column 'debt' in the client's table"
    assert "trouble" not in apps._with_cause(tmp_path, {"round": 2, "missing": 0, "rejected": 0})
    vacant, silent = (
        {"what": "failed", "client": 0, "reason": VACANT},
        {"what": "silent", "client": 5, "reason": "slow"},
    )
    with open(tmp_path / "events.jsonl", "a") as file:
        file.write("".join(json.dumps({"round": 2, **line}) + "\n" for line in (vacant, silent)))
    assert apps._with_cause(tmp_path, {"round": 3, "missing": 2})["trouble"] == "client 5 was silent: slow"


def test_every_round_is_told_however_fast_they_come(tmp_path, monkeypatch):
    store = ServerStore(tmp_path / "server", {}, resume=False)
    store.tell_round(run="before", round=9, state="running")
    monkeypatch.setattr(apps.processes, "running", lambda site: {"superlink": 1})
    monkeypatch.setattr(apps.processes, "run_status", lambda *_: pytest.fail("a server that writes is not asked about"))
    at = rounds_size(store.folder)
    for number in (1, 2, 3):
        store.tell_round(run="now", round=number, state="running")
    store.tell(run="now", round=3, state="completed")
    told = []
    end = apps._wait_for_end(Site.inside(tmp_path), 1, store.folder, time.time() - 60, at, told.append)
    assert [one["round"] for one in told] == [1, 2, 3] and end["state"] == "completed"


def test_status_of_nodes_whose_server_is_gone():
    found = {"nodes": {}, "events": {}, "last_events": [], "versions": [], "members": [], "certificates": []}
    found |= {"run": None, "processes": {"client-0": 7}}
    assert "no server" in apps.status_lines(found)[0]
    assert apps.status_lines(found | {"processes": {}})[0] == "federation down"


def test_the_environment_has_no_proxy_telemetry_or_foreign_setting(tmp_path, monkeypatch):
    for name in ("HTTPS_PROXY", "http_proxy", "ALL_PROXY", "FLWR_DATABASE", "PERFORMATIVE_SITE"):
        monkeypatch.setenv(name, "http://somewhere")
    made = environment(Site(tmp_path))
    assert "http://somewhere" not in made.values()
    assert made["FLWR_TELEMETRY_ENABLED"] == "0" and made["FLWR_DISABLE_UPDATE_CHECK"] == "1"
    assert made["FLWR_HOME"] == str(tmp_path / "flwr-home")
    assert made["PATH"].split(os.pathsep)[0] == os.path.dirname(sys.executable)


@pytest.mark.parametrize(
    ("given", "message"),
    [({"clients": 0}, "clients"), ({"clients": True}, "clients"), ({"clients": 1, "deadline": 0.0}, "deadline")],
)
def test_start_refuses_what_makes_no_sense(tmp_path, given, message):
    with pytest.raises(ValueError, match=message):
        processes.start(Site(tmp_path / "site"), **given)
    assert not (tmp_path / "site").exists()


@pytest.mark.parametrize("value", [float("nan"), float("inf"), None, [1], b"x"])
def test_a_run_configuration_that_toml_cannot_say_is_refused(tmp_path, value):
    site = Site(tmp_path / "site")
    site.prepare()
    with pytest.raises(ValueError, match="rate"):
        processes.submit(site, tmp_path, {"rate": value})


def test_run_configuration_reaches_toml_unchanged():
    import tomllib

    values = {"a": True, "b": -3, "c": 1e-300, "d": 'quote " back \\ line \n tab \t bell \x07 del \x7f é', "e.f": ""}
    text = "\n".join(f"{json.dumps(name)} = {processes._toml(name, value)}" for name, value in values.items())
    assert tomllib.loads(text) == values


def test_stop_of_a_site_that_never_was_does_nothing(tmp_path):
    processes.stop(Site(tmp_path / "nowhere"))
    assert not (tmp_path / "nowhere").exists()


def interrupt():
    os.kill(os.getpid(), signal.SIGINT)


def test_an_interrupt_is_held_until_what_was_begun_is_done():
    done = []
    with pytest.raises(KeyboardInterrupt), interrupts_held():
        interrupt()
        done.append("finished")
    assert done == ["finished"]
    with interrupts_held():
        pass
    with pytest.raises(ValueError, match="its own"), interrupts_held():  # an error of what is inside goes first
        interrupt()
        raise ValueError("its own")


def test_an_interrupt_during_submit_stops_the_run(tmp_path, monkeypatch):
    stopped = []
    monkeypatch.setattr(processes, "running", lambda site: {"superlink": 1})

    def submit(site, app, config):
        interrupt()
        return 7

    monkeypatch.setattr(processes, "submit", submit)
    monkeypatch.setattr(processes, "stop_run", lambda site, number: stopped.append(number))
    with pytest.raises(KeyboardInterrupt):
        apps.run(tmp_path, resume=False, rounds=None, tell=print)
    assert stopped == [7]


def test_an_interrupted_start_takes_back_what_it_started(tmp_path, monkeypatch):
    site = Site(tmp_path / "site")
    children = []

    def superlink(site, largest):
        mark = os.environ | {"PERFORMATIVE_SITE": str(site.folder)}
        children.append(subprocess.Popen(["sleep", "60"], env=mark, start_new_session=True))
        interrupt()
        return True

    monkeypatch.setattr(processes, "_start_superlink", superlink)
    with pytest.raises(KeyboardInterrupt):
        processes.start(site, 2, timeout=5.0)
    (child,) = children
    assert child.wait(10) == -signal.SIGTERM and not members(site)


def test_an_interrupt_during_imports_is_one_line(tmp_path):
    (tmp_path / "jax.py").write_text("raise KeyboardInterrupt\n")
    root = str(Path(processes.__file__).parents[3])
    run = [sys.executable, "-c", "import performative_command; performative_command.main()", "--version"]
    ended = subprocess.run(
        run, env=os.environ | {"PYTHONPATH": os.pathsep.join([str(tmp_path), root])}, capture_output=True, text=True
    )
    assert (ended.returncode, ended.stderr) == (130, "error: interrupted.\n")
