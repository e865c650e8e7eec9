"""Logs that are cut while somebody writes to them."""

import os
import subprocess
import sys

import pytest

pytest.importorskip("flwr", reason="the extra performative[flower] is not installed")
from performative.live.loopback import logs
from performative.live.loopback.process_table import wait_for
from performative.live.loopback.site import LET_IN, Site
from performative.live.loopback.supervisor import Kept, Supervisor


@pytest.fixture
def short(monkeypatch):
    monkeypatch.setattr(logs, "LONGEST", 1000)


def test_a_log_begins_anew_and_its_writer_goes_on(short, tmp_path):
    path = tmp_path / "node.log"
    with open(path, "ab") as writer:
        writer.write(b"x" * 1000)
        writer.flush()
        assert not logs.shorten(path)
        writer.write(b"y")
        writer.flush()
        assert logs.shorten(path) and not logs.shorten(path)
        writer.write(b"after")
    assert path.read_bytes() == b"after" and (tmp_path / "node.log.1").read_bytes() == b"x" * 1000 + b"y"


def test_a_node_that_was_let_in_is_still_let_in(short, tmp_path, monkeypatch):
    site = Site(tmp_path / "site")
    site.prepare(1)
    supervisor = Supervisor(site, 0, {"worker": []}, {}, lambda *_: None)
    supervisor.kept["supernode"] = Kept(int, pid=os.getpid())
    log = site.log("client-0")
    log.write_bytes(b"of the node before\n" + LET_IN + b"1\n")
    supervisor.log_from = log.stat().st_size
    with open(log, "ab") as file:
        file.write(b"starting\nINFO: " + LET_IN + b"123\n" + b"message\n" * 200)
    with open(log, "ab") as file:
        monkeypatch.setattr(os, "write", lambda _, said: file.write(said))
        supervisor.shorten_log()
    assert log.read_bytes() == b"INFO: " + LET_IN + b"123\n" == supervisor.let_in()
    from performative.live.loopback.processes import connected

    assert connected(site, 0)


def test_a_process_looks_after_its_own_output(tmp_path):
    program = (
        "import time\nfrom performative.live.loopback import logs\nlogs.LONGEST, logs._LOOK = 1000, 0.05\n"
        "logs.keep_output_short()\nfor _ in range(2000):\n    print('x' * 99, flush=True)\n    time.sleep(0.01)\n"
    )
    path = tmp_path / "out.log"
    with open(path, "ab") as file, subprocess.Popen([sys.executable, "-c", program], stdout=file) as writing:
        try:
            assert wait_for(lambda: (tmp_path / "out.log.1").exists() or writing.poll() is not None, 60.0)
            assert writing.poll() is None and path.stat().st_size < 100_000
        finally:
            writing.kill()
