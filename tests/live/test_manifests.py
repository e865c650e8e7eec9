"""Manifests of a federation: valid by the tools of those who run them, confined, and without a secret in them."""

import contextlib
import http.client
import importlib.util
import json
import os
import re
import shutil
import signal
import socket
import ssl
import subprocess
import sys
from pathlib import Path

import pytest
import yaml
from typer.testing import CliRunner

from performative.cli.app import app
from performative.live.app import write_app
from performative.live.export import KINDS, export
from performative.live.flower import build_app

SERVER = "federation.bank.example:9443"
NOBODY = 65534


@pytest.fixture
def keys(tmp_path):
    from performative.live.loopback.certificates import make_key

    for client in range(2):
        make_key(tmp_path / "keys" / f"member-{client}.key")
    return tmp_path / "keys"


def written(tmp_path, kind, **options):
    export(kind, tmp_path / kind, 2, server=SERVER, **options)
    return tmp_path / kind


def documents(path):
    return list(yaml.safe_load_all(path.read_text()))


@pytest.mark.parametrize("name", ["compose-server.yaml", "compose-member-1.yaml"])
def test_compose_files_meet_the_compose_specification(name, tmp_path):
    if importlib.util.find_spec("check_jsonschema") is None:
        pytest.skip("check-jsonschema is not installed")
    path = written(tmp_path, "compose") / name
    command = [sys.executable, "-m", "check_jsonschema", "--builtin-schema", "vendor.compose-spec"]
    ended = subprocess.run([*command, str(path)], capture_output=True, text=True)
    assert ended.returncode == 0, ended.stdout + ended.stderr
    path.write_text(path.read_text().replace("read_only: true", "read_only: [1]"))
    assert subprocess.run([*command, str(path)], capture_output=True).returncode == 1  # the tool does look


@pytest.mark.parametrize("name", ["kubernetes-server.yaml", "kubernetes-member-1.yaml"])
def test_kubernetes_files_meet_its_schemas(name, tmp_path):
    validate = pytest.importorskip("kubernetes_validate", reason="kubernetes-validate is not installed")
    found = documents(written(tmp_path, "kubernetes") / name)
    for document in found:
        validate.validate(document, "1.30", strict=True)
    found[0]["spec"]["template"]["spec"]["runAsRoot"] = True
    with pytest.raises(validate.ValidationError):
        validate.validate(found[0], "1.30", strict=True)


def test_units_meet_systemd(tmp_path):
    if shutil.which("systemd-analyze") is None:
        pytest.skip("systemd-analyze is not installed")
    commands = tmp_path / "bin"
    commands.mkdir()
    for name in ("flower-superlink", "flower-supernode", "python"):
        (commands / name).write_text("#!/bin/sh\n")
        (commands / name).chmod(0o755)
    folder = written(tmp_path, "systemd", bin=str(commands))
    for unit in folder.glob("*.service"):  # nginx need not be installed where this is tested
        unit.write_text(unit.read_text().replace("/usr/sbin/nginx", str(commands / "python")))
    units = sorted(map(str, folder.glob("*.service")))
    ended = subprocess.run(["systemd-analyze", "verify", *units], capture_output=True, text=True)
    ours = [line for line in ended.stderr.splitlines() if "performative-" in line]
    assert len(units) == 4 and not ours, ended.stderr
    broken = folder / "performative-server.service"
    broken.write_text(broken.read_text().replace("ProtectSystem=strict", "ProtectSystem=much"))
    ended = subprocess.run(["systemd-analyze", "verify", str(broken)], capture_output=True, text=True)
    assert "protect system value" in ended.stderr


def test_the_gate_is_a_configuration_of_nginx(tmp_path):
    nginx = shutil.which("nginx") or shutil.which("nginx", path="/usr/sbin")
    if nginx is None:
        pytest.skip("nginx is not installed")
    from performative.live.loopback.certificates import make_certificates

    make_certificates(tmp_path / "secrets")
    path = written(tmp_path, "kubernetes") / "gate.conf"
    path.write_text(
        path.read_text().replace("/secrets/", f"{tmp_path}/secrets/").replace("/tmp/gate", f"{tmp_path}/gate")
    )
    ended = subprocess.run([nginx, "-t", "-c", str(path), "-e", "stderr"], capture_output=True, text=True)
    assert ended.returncode == 0, ended.stderr


def test_the_dockerfile_meets_its_linter(tmp_path):
    if shutil.which("hadolint") is None:
        pytest.skip("hadolint, a binary of its own, is not installed")
    ended = subprocess.run(
        ["hadolint", str(written(tmp_path, "compose") / "Dockerfile")], capture_output=True, text=True
    )
    assert ended.returncode == 0, ended.stdout


def test_containers_are_confined(tmp_path):
    """What is promised to a reviewer, of every container that is ever made."""
    folder, seen = written(tmp_path, "compose"), 0
    for path in folder.glob("compose-*.yaml"):
        (file,) = documents(path)
        for name, service in file["services"].items():
            seen += 1
            assert service["user"] == ("10002:10002" if name == "gate" else "10001:10001")
            assert service["read_only"] is True
            assert service["cap_drop"] == ["ALL"] and service["security_opt"] == ["no-new-privileges:true"]
            assert {"mem_limit", "cpus", "pids_limit", "healthcheck"} <= service.keys()
            assert "environment" not in service and "privileged" not in service
            assert ("ports" in service) == (name == "gate")
            assert all(volume.endswith(":ro") or volume == "state:/state" for volume in service["volumes"])
    folder = written(tmp_path, "kubernetes")
    for path in folder.glob("kubernetes-*.yaml"):
        files = documents(path)
        assert [file["kind"] for file in files if file["kind"] == "NetworkPolicy"]
        pod = files[0]["spec"]["template"]["spec"]
        assert pod["securityContext"]["runAsNonRoot"] is True and pod["automountServiceAccountToken"] is False
        for container in pod["containers"]:
            seen += 1
            own = {"runAsUser": 10002, "runAsGroup": 10002} if container["name"] == "gate" else {}
            assert container["securityContext"] == own | {
                "allowPrivilegeEscalation": False,
                "readOnlyRootFilesystem": True,
                "capabilities": {"drop": ["ALL"]},
            }
            assert {"livenessProbe", "resources"} <= container.keys() and "limits" in container["resources"]
            assert "env" not in container and "envFrom" not in container
            mounts = {mount["name"]: mount for mount in container["volumeMounts"]}
            assert all(mounts[name]["readOnly"] for name in mounts.keys() & {"data", "secrets", "config", "app"})
    assert seen == 8
    for unit in written(tmp_path, "systemd").glob("*.service"):
        lines = unit.read_text().splitlines()
        for line in ("DynamicUser=yes", "NoNewPrivileges=yes", "CapabilityBoundingSet=", "ProtectSystem=strict"):
            assert line in lines
        assert any(line.startswith("MemoryMax=") for line in lines)
        assert any(line.startswith("LoadCredential=") for line in lines)


def test_the_gate_is_another_user_than_the_server(tmp_path):
    """The server tells its operator from others by the user: what is open to the world must not count as that one."""
    (compose,) = documents(written(tmp_path, "compose") / "compose-server.yaml")
    services = compose["services"]
    assert len({service["user"] for service in services.values()}) == 2
    assert "state:/state" not in services["gate"]["volumes"]
    pod = documents(written(tmp_path, "kubernetes") / "kubernetes-server.yaml")[0]["spec"]["template"]["spec"]
    users = {one["name"]: pod["securityContext"] | one["securityContext"] for one in pod["containers"]}
    for name in ("runAsUser", "runAsGroup"):
        assert (users["superlink"][name], users["gate"][name]) == (10001, 10002)
    (gate,) = [one for one in pod["containers"] if one["name"] == "gate"]
    (server,) = [one for one in pod["containers"] if one["name"] == "superlink"]
    mounts = {mount["mountPath"]: mount["name"] for mount in gate["volumeMounts"]}
    assert mounts.keys() == {"/secrets", "/config/gate.conf", "/tmp"}  # not the keys of members, nor the operator's
    assert mounts["/tmp"] not in {mount["name"] for mount in server["volumeMounts"]}
    assert pod["securityContext"]["fsGroup"] == 10001  # the gate reads its certificate by this group
    folder = written(tmp_path, "systemd")
    users = [re.search("^User=(.*)$", unit.read_text(), re.M)[1] for unit in folder.glob("*.service")]
    assert len(set(users)) == len(users) == 4


@pytest.mark.parametrize("kind", KINDS)
def test_no_secret_and_no_placeholder_is_left_in_a_file(kind, tmp_path, keys):
    private = {line for path in keys.glob("*.key") for line in path.read_text().splitlines()}
    folder = written(tmp_path, kind, keys=keys)
    for path in filter(Path.is_file, folder.rglob("*")):
        text = path.read_text()
        assert not re.search(r"@[A-Z]+@|--insecure|PRIVATE KEY", text)
        assert not private & set(text.splitlines())
    registry = json.loads((folder / "operator" / "registry.json").read_text())
    from performative.live.flower import read_registry

    assert sorted(read_registry(folder / "operator" / "registry.json").values()) == [0, 1]
    assert registry["1"]["public_key"].startswith("-----BEGIN PUBLIC KEY-----")


@pytest.mark.parametrize("kind", KINDS)
def test_members_come_to_the_gate_and_no_further(kind, tmp_path):
    folder = written(tmp_path, kind)
    gate = (folder / "gate.conf").read_text()
    assert re.findall(r"location (.*) \{", gate) == ["/v1/fleet/", "= /gate", "/"]
    member = next(folder.glob("*member-1.*")).read_text()
    assert SERVER in member and "client=1 " in member
    shell = subprocess.run(["sh", "-n", str(folder / "operator" / "operator.sh")], capture_output=True, text=True)
    assert shell.returncode == 0, shell.stderr


def test_flower_is_started_behind_the_gate_alone(tmp_path):
    """Wherever one of Flower's services is started, by any of the manifests."""
    seen = 0
    for kind in KINDS:
        for path in written(tmp_path, kind, largest=123456789).iterdir():
            words = path.read_text().replace("\\\n", " ").split() if path.is_file() else []
            words = [word.strip('-"') for word in words if word != "-"]
            for at in [at for at, word in enumerate(words) if word in ("flower-superlink", "flower-supernode")]:
                seen += 1
                pinned = ["app", words[at - 3]] if words[at] == "flower-supernode" else []
                assert words[at - 4 - len(pinned) : at] == [
                    "m", "performative.live.loopback.upstream", *pinned, "largest", "123456789",
                ]  # fmt: skip
                assert not pinned or Path(pinned[1]).name == "app.fab"
            assert path.name != "gate.conf" or "client_max_body_size 123456789;" in path.read_text()
    assert seen == 9


@pytest.fixture
def running(tmp_path):
    """What the Compose files start, with the paths of a test: ports of the server and of member 1."""
    from performative.live.loopback.certificates import make_certificates, make_key
    from performative.live.loopback.process_table import wait_for
    from performative.live.loopback.processes import free_port

    write_app(tmp_path / "app", 2)
    folder = written(tmp_path, "compose", largest=1 << 20, app=build_app(tmp_path / "app"))
    secrets = tmp_path / "secrets"
    make_certificates(secrets)
    make_key(secrets / "member.key")
    ports, started = {}, []
    try:
        for name, service in (("server", "superlink"), ("member-1", "supernode")):
            (tmp_path / name).mkdir()
            port = ports[service] = free_port()
            (file,) = documents(folder / f"compose-{name}.yaml")
            at = {"/run/secrets": str(secrets), "/state": str(tmp_path / name), "--host=0.0.0.0": "--host=127.0.0.1"}
            # A node that nobody hears keeps trying; one that is refused, for its key is not registered, ends.
            at |= {"/app.fab": str(folder / "app.fab")}
            at |= {SERVER: f"127.0.0.1:{free_port()}", "--port=9091": f"--port={port}", "--port=9094": f"--port={port}"}
            words = file["services"][service]["command"]
            assert words[0] == "python"
            for there, here in at.items():
                words = [word.replace(there, here) for word in words]
            environ = {"PATH": f"{Path(sys.executable).parent}:/usr/bin:/bin", "HOME": str(tmp_path / name)}
            environ |= {"FLWR_HOME": str(tmp_path / name), "FLWR_TELEMETRY_ENABLED": "0"}
            environ |= {"FLWR_DISABLE_UPDATE_CHECK": "1", "PYTHONPATH": str(Path(__file__).parents[2] / "src")}
            with open(tmp_path / name / "log", "wb") as log:
                started.append(subprocess.Popen(words, env=environ, stdout=log, stderr=log, start_new_session=True))

            def answers(port=port):
                with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port)):
                    return True
                return False

            assert wait_for(answers, 240.0), (tmp_path / name / "log").read_text()
        yield ports, ssl.create_default_context(cafile=str(secrets / "ca.pem"))
    finally:
        for process in started:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()


def test_another_user_of_the_machine_does_not_reach_flower(running):
    """The containers' own commands, for real: what they listen on is for their own user."""
    if os.geteuid() != 0:
        pytest.skip("only root can open a socket of another user")
    ports, trusted = running

    def status(service, path, user, body=b""):
        with_tls = {"context": trusted} if service == "superlink" else {}
        kind = http.client.HTTPSConnection if with_tls else http.client.HTTPConnection
        line = kind("127.0.0.1", ports[service], timeout=20, **with_tls)
        os.seteuid(user)
        try:
            line.connect()
        finally:
            os.seteuid(0)
        with contextlib.closing(line):
            line.request("POST" if body else "GET", path, body)
            return line.getresponse().status

    for service in ("superlink", "supernode"):
        assert status(service, "/health", 0) == 200
        assert status(service, "/health", NOBODY) == 403
        assert status(service, "/v1/runtime/acquire-task", NOBODY) == 403
    assert status("superlink", "/v1/control/list-runs", NOBODY) == 403
    assert status("superlink", "/v1/fleet/none", NOBODY) == 404
    assert status("superlink", "/v1/fleet/push-object", NOBODY, b"x" * 70_000) == 401
    assert status("superlink", "/v1/fleet/push-object", 0, b"x" * ((1 << 20) + 1)) == 413


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"server": "bank.example"}, "--server must be host:port"),
        ({"server": "bank.example:443"}, "unprivileged port, 1024 or above"),
        ({"server": "a b:9443"}, "--server must be host:port"),
        ({"image": "x; rm"}, "--image must be a name"),
        ({"bin": "relative/bin"}, "--bin must be an absolute path"),
    ],
)
def test_what_is_refused(options, says, tmp_path):
    with pytest.raises(ValueError, match=says):
        export("systemd", tmp_path, 1, **options)
    assert not list(tmp_path.iterdir())


def test_keys_that_do_not_do(tmp_path, keys):
    with pytest.raises(FileNotFoundError, match=r"there is no .*member-2\.pub"):
        export("compose", tmp_path / "out", 3, keys=keys)
    shutil.copy(keys / "member-0.pub", keys / "member-1.pub")
    with pytest.raises(ValueError, match=r"two members .* have the same key"):
        export("compose", tmp_path / "out", 2, keys=keys)
    (keys / "member-1.pub").write_text("ssh-rsa AAAA")
    with pytest.raises(ValueError, match="is not an OpenSSH public key"):
        export("compose", tmp_path / "out", 2, keys=keys)


def test_the_command(tmp_path):
    write_app(tmp_path / "app", 3)
    words = ["federation", "export", "--app", str(tmp_path / "app"), "--out", str(tmp_path / "deploy")]
    result = CliRunner().invoke(app, words)
    assert result.exit_code == 2 and "pass one of --compose, --kubernetes and --systemd" in result.output
    result = CliRunner().invoke(app, [*words, "--systemd", "--json"])
    assert result.exit_code == 0, result.output
    assert len(list((tmp_path / "deploy").glob("performative-member-*.service"))) == 3
    assert (tmp_path / "deploy" / "app.fab").read_bytes() == build_app(tmp_path / "app")
    result = CliRunner().invoke(app, [*words, "--systemd"])
    assert result.exit_code == 2 and "already exists" in result.output


def test_the_operator_runs_the_app_that_members_agreed_to(tmp_path):
    """Also from a config map, which Kubernetes mounts as links into a hidden folder."""
    write_app(tmp_path / "app", 2)
    hidden = tmp_path / "mounted" / "..2026_11_19"
    shutil.copytree(tmp_path / "app", hidden)
    (tmp_path / "mounted" / "..data").symlink_to(hidden.name)
    for path in hidden.iterdir():
        (tmp_path / "mounted" / path.name).symlink_to(f"..data/{path.name}")
    script = (written(tmp_path, "kubernetes") / "operator" / "operator.sh").read_text()
    (tmp_path / "operator.sh").write_text(script.replace('"/app"', f'"{tmp_path}/mounted"'))
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "flwr").write_text(f'#!/bin/sh\ncp -R "$2" "{tmp_path}/sent"\n')
    (tmp_path / "bin" / "flwr").chmod(0o755)
    environ = os.environ | {"PATH": f"{tmp_path}/bin:{os.environ['PATH']}"}
    subprocess.run(["sh", str(tmp_path / "operator.sh"), "run"], env=environ, check=True, capture_output=True)
    assert build_app(tmp_path / "sent") == build_app(tmp_path / "app")


def steps(dockerfile):
    """The RUN lines of the first stage."""
    stage = dockerfile.split("\nFROM ")[1]
    return [line.removeprefix("RUN ") for line in stage.splitlines() if line.startswith("RUN ")]


@pytest.mark.slow
def test_the_steps_of_the_dockerfile_build_an_environment_that_works(tmp_path):
    """Each RUN of the stage that builds, in a clean environment of this machine."""
    checkout = Path(__file__).parents[2]
    source = tmp_path / "source"  # what a build leaves behind stays out of the checkout
    shutil.copytree(checkout / "src", source / "src", ignore=shutil.ignore_patterns("__pycache__", "*.egg-info"))
    for name in ("pyproject.toml", "README.md", "LICENSE", "MANIFEST.in"):
        shutil.copy(checkout / name, source)
    wheel = [sys.executable, "-m", "build", "--wheel", "--outdir", str(tmp_path), str(source)]
    subprocess.run(wheel, check=True, capture_output=True)
    shutil.copy(checkout / "constraints.txt", tmp_path)
    found = steps((written(tmp_path, "compose") / "Dockerfile").read_text())
    assert len(found) == 3
    for step in found:
        command = step.replace("/opt/performative", str(tmp_path / "env")).replace(
            "python -m venv", f"{sys.executable} -m venv"
        )
        ended = subprocess.run(["sh", "-euc", command], cwd=tmp_path, capture_output=True, text=True)
        assert ended.returncode == 0, ended.stderr
    for name in ("flower-superlink", "flower-supernode", "flwr", "performative"):
        assert (tmp_path / "env" / "bin" / name).exists()
