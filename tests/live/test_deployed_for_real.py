"""From CSV files to a run, in real processes: on loopback by our own commands, and by the exported units."""

import json
import os
import re
import shlex
import shutil
import ssl
import subprocess
import sys
import time
import urllib.error
import urllib.request
from pathlib import Path

import numpy as np
import pytest
from member_files import FILE, frames, problem, write
from typer.testing import CliRunner

import performative as pf
from performative.cli.app import app as commands
from performative.history import History
from performative.live import load, read_status
from performative.live.app import down, server_folder, write_app
from performative.live.export import export
from performative.live.flower import build_app
from performative.live.loopback.certificates import make_certificates, make_key
from performative.live.loopback.commands import COMMANDS
from performative.live.loopback.processes import free_port

pytest.importorskip("flwr", reason="the extra performative[flower] is not installed")
# Optimized as the processes of the federation are: otherwise the last bits differ.
pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("optimized_programs")]
ROUNDS = 2


def command(*words):
    result = CliRunner().invoke(commands, ["federation", *map(str, words)])
    print(result.output)
    return result


def simulated(made):
    return pf.run(problem(), made.algorithm, rounds=ROUNDS, dtype="float64", executor="loop").theta


def an_app(folder):
    """An app without a table in it; the tables lie elsewhere."""
    write_app(folder / "app", 2)
    write(folder / "data")
    (folder / "data" / "federation.toml").rename(folder / "app" / "federation.toml")
    (folder / "app" / "federation.toml").write_text(FILE.replace("rounds = 4", f"rounds = {ROUNDS}"))
    return folder / "app", folder / "data"


def test_from_csv_files_to_a_run_and_what_goes_wrong_on_the_way(tmp_path):
    app, data = an_app(tmp_path)
    assert command("rehearse", "--app", app, "--data", data).exit_code == 0
    try:
        assert command("up", "--app", app, "--data", data).exit_code == 0
        assert command("run", "--app", app).exit_code == 0
        theta = History.load(server_folder(app) / "history.nc").theta
        assert np.array_equal(theta, simulated(load(app / "federation.toml")))
        carried = [path for path in (app / ".federation" / "flwr-home").rglob("*") if path.name.startswith("bank-")]
        assert not carried  # Flower carried no table
        for client, frame in enumerate(frames()):
            frame.rename(columns={"debt": "Debt"}).to_csv(data / f"bank-{client}.csv", index=False)
        failed = command("run", "--app", app, "--new")
        assert failed.exit_code == 1
        assert "client 0 failed: there is no column 'debt' in the client's table" in failed.output.splitlines()[0]
        status = command("status", "--app", app)
        assert status.exit_code == 1 and status.output.startswith("the last run failed: ")
        assert "Traceback" not in status.output and "'Debt'" not in status.output
        assert "'Debt'" in command("status", "--app", app, "--logs").output  # here, where the client's own disk is
    finally:
        down(app)


class Units:
    """The commands of exported units, with their files moved below a folder."""

    def __init__(self, folder, moved, environ):
        self.folder, self.environ, self.running = folder, environ, []
        for path in filter(Path.is_file, folder.rglob("*")):
            text = path.read_text()
            for old, new in moved.items():
                text = text.replace(old, new)
            path.write_text(text)

    def start(self, unit, secrets):
        lines = (self.folder / unit).read_text().replace("\\\n", " ").splitlines()
        said = {key: value for key, _, value in (line.partition("=") for line in lines)}
        own = dict(
            pair.split("=", 1) for line in lines if line.startswith("Environment=") for pair in line[12:].split()
        )
        for place in (own.get("HOME"), own.get("FLWR_HOME")):
            Path(place or self.folder).mkdir(parents=True, exist_ok=True)
        words = shlex.split(said["ExecStart"].replace("${CREDENTIALS_DIRECTORY}", str(secrets)))
        with open(self.folder / f"{unit}.log", "wb") as log:
            process = subprocess.Popen(words, env=self.environ | own, stdout=log, stderr=log, start_new_session=True)
        self.running.append(process)
        if "ExecStartPost" in said:
            after = said["ExecStartPost"].replace("${CREDENTIALS_DIRECTORY}", str(secrets))
            subprocess.run(shlex.split(after), env=self.environ, check=True, timeout=120, capture_output=True)

    def stop(self):
        for process in reversed(self.running):
            process.terminate()
        for process in self.running:
            try:
                process.wait(20)
            except subprocess.TimeoutExpired:
                process.kill()


def test_exported_units_run_a_federation_through_the_gate(tmp_path):
    """The very commands of the units, by hand: server, gate, two members, and the operator's script."""
    nginx = shutil.which("nginx") or shutil.which("nginx", path="/usr/sbin")
    if nginx is None:
        pytest.skip("nginx, which is the gate, is not installed")
    app, data = an_app(tmp_path)
    make_certificates(tmp_path / "secrets")
    for client in range(2):
        make_key(tmp_path / "keys" / f"member-{client}.key")
        make_certificates(tmp_path / f"member-{client}")
        shutil.copy(tmp_path / "secrets" / "ca.pem", tmp_path / f"member-{client}" / "ca.pem")
        shutil.copy(tmp_path / "keys" / f"member-{client}.key", tmp_path / f"member-{client}" / "member.key")
    port, inner, first, second = free_port(), free_port(), free_port(), free_port()
    out = tmp_path / "deploy"
    bundle, server = build_app(app), f"localhost:{port}"
    export("systemd", out, 2, server=server, bin=str(COMMANDS), keys=tmp_path / "keys", app=bundle)
    shutil.copytree(app, out / "operator" / "app")
    shutil.move(out / "app.fab", tmp_path / "app.fab")
    environ = dict(os.environ) | {
        "PATH": f"{COMMANDS}{os.pathsep}{os.environ['PATH']}",
        "NO_PROXY": "localhost,127.0.0.1",
    }
    moved = {
        "/run/credentials/performative-gate.service": f"{tmp_path}/secrets",
        "/etc/performative/secrets": f"{tmp_path}/secrets",
        "/etc/performative/gate.conf": f"{out}/gate.conf",
        "/etc/performative/app.fab": f"{tmp_path}/app.fab",
        "/etc/performative": f"{out}/operator",
        "/var/lib": f"{tmp_path}/state",
        "/srv/performative/data": str(data),
        "/usr/sbin/nginx": nginx,
        "/tmp/gate": f"{tmp_path}/gate",
        "9091": str(inner),
        "--port 9094": f"--port {first}",
        ":9094/": f":{first}/",
        "--port 9095": f"--port {second}",
        ":9095/": f":{second}/",
        "events {": "events {" if os.getuid() else "user root;\nevents {",  # pytest's folder is root's alone
    }  # fmt: skip
    units, operator = Units(out, moved, environ), [str(out / "operator" / "operator.sh")]
    try:
        units.start("performative-server.service", tmp_path / "secrets")
        for client in range(2):
            public = str(tmp_path / "keys" / f"member-{client}.pub")
            subprocess.run([*operator, "register", public], env=environ, check=True, timeout=120, capture_output=True)
        units.start("performative-gate.service", tmp_path / "secrets")
        for client in range(2):
            units.start(f"performative-member-{client}.service", tmp_path / f"member-{client}")
        assert ask(port, "/gate", tmp_path) == 204
        for path in ("/v1/control/list-runs", "/v1/control/start-run", "/v1/runtime/pull-task-input", "/health", "/"):
            assert ask(port, path, tmp_path) == 403
        assert ask(inner, "/health", tmp_path) == 200
        ended = subprocess.run([*operator, "run"], env=environ, timeout=180, capture_output=True, text=True)
        assert ended.returncode == 0, ended.stdout + ended.stderr
        told = wait_for_end(tmp_path / "state" / "performative-server" / "server")
        assert told["state"] == "completed", json.dumps(told)
        theta = History.load(tmp_path / "state" / "performative-server" / "server" / "history.nc").theta
        assert np.array_equal(theta, simulated(load(app / "federation.toml")))
        kept = tmp_path / "state" / "performative-server" / "server"

        def refused():
            """Why the next run failed."""
            ended = subprocess.run([*operator, "run"], env=environ, timeout=180, capture_output=True, text=True)
            assert ended.returncode == 0, ended.stdout + ended.stderr
            told = wait_for_end(kept, after=told_before)
            assert told["state"] == "failed", json.dumps(told)
            return told["why"]

        told_before = read_status(kept)
        assert "already" in refused()
        # The server's app is changed; the members have not agreed to it.
        with open(out / "operator" / "app" / "app.py", "a") as file:
            file.write("\n# changed\n")
        kept.rename(tmp_path / "first run")
        told_before = None
        assert "agreed to run the app" in refused()
    finally:
        units.stop()
        for log in sorted(out.glob("*.log")):
            print(f"--- {log.name}\n{re.sub(chr(27), '', log.read_text(errors='replace'))[-3000:]}", file=sys.stderr)


def ask(port, path, tmp_path):
    """The status of an answer over TLS, by the certificate of our authority."""
    trusted = ssl.create_default_context(cafile=str(tmp_path / "secrets" / "ca.pem"))
    try:
        with urllib.request.urlopen(f"https://localhost:{port}{path}", timeout=10, context=trusted) as answer:
            return answer.status
    except urllib.error.HTTPError as error:
        error.close()
        return error.code


def wait_for_end(folder, after=None):
    for _ in range(2400):
        told = read_status(folder)
        if told not in (None, after) and told["state"] != "running":
            return told
        time.sleep(0.1)
    raise AssertionError(f"no end was written to {folder}: {read_status(folder)}")
