"""A real federation on loopback: Flower's own processes, killed, refused and healed."""

import contextlib
import os
import signal
import socket
import subprocess
import sys
import textwrap
import zipfile

import pytest

pytest.importorskip("flwr", reason="the extra performative[flower] is not installed")

from echoes import CLIENTS, DEADLINE, check_round, kill_and_wait, make_app, run

from performative.live.loopback import processes
from performative.live.loopback.certificates import make_certificates, make_key
from performative.live.loopback.commands import FederationError, command, environment
from performative.live.loopback.process_table import members, started, wait_for
from performative.live.loopback.shims import write_shims
from performative.live.loopback.site import Site


@pytest.fixture(scope="module")
def federation(tmp_path_factory):
    app = make_app(tmp_path_factory.mktemp("federation") / "echo")
    site = Site.inside(app)
    try:
        processes.start(site, CLIENTS, deadline=DEADLINE)
        yield site, app
    finally:
        processes.stop(site)


@pytest.fixture
def healed(federation):
    """The federation, with whatever the test before has killed started again."""
    site, app = federation
    processes.start(site, CLIENTS, deadline=DEADLINE)
    return site, app


@pytest.mark.slow
def test_a_shim_without_a_fork_server_is_the_real_command(tmp_path):
    site = Site(tmp_path / "site")
    site.prepare()
    write_shims(site, ["flwr-clientapp"])
    shim, words = str(site.shims / "flwr-clientapp"), ["--help"]
    for more in ({}, {"PERFORMATIVE_FORK_SERVER": str(tmp_path / "nobody")}):
        shown = subprocess.run([shim, *words], env=environment(site) | more, capture_output=True, text=True, timeout=60)
        assert shown.returncode == 0 and "--runtime-api-address" in shown.stdout
    refused = subprocess.run([shim, "--nonsense"], env=environment(site), capture_output=True, text=True, timeout=60)
    assert refused.returncode == 2


@pytest.mark.slow
def test_rounds_work_and_the_key_tells_the_client(healed):
    site, app = healed
    status, report = run(site, app, rounds=4)
    assert status.state == "completed"
    for one in report["rounds"]:
        check_round(site, one)
        assert all(answer["warm"] for answer in one["answers"].values())
    registered = {str(entry["node_id"]): entry["public_key"] for entry in site.registry().values()}
    assert report["nodes"] == registered


@pytest.mark.slow
def test_start_again_leaves_what_runs(healed):
    site, _ = healed
    before = processes.running(site)
    assert set(before) == {"superlink", "client-0", "client-0.supernode", "client-1", "client-1.supernode"}
    processes.start(site, CLIENTS)
    assert processes.running(site) == before


@pytest.mark.slow
def test_a_failed_run_is_seen_as_failed(healed):
    site, app = healed
    status, report = run(site, app, order="fail")
    assert status.state == "failed" and report is None


@pytest.mark.slow
def test_a_run_can_be_stopped(healed):
    site, app = healed
    number = processes.submit(site, app, {"report": str(site.folder / "report.json"), "rounds": 1000})
    assert not processes.run_status(site, number).over
    processes.stop_run(site, number)
    assert processes.run_status(site, number).state == "stopped"
    with pytest.raises(FederationError):
        processes.run_status(site, 12345)


@pytest.mark.slow
@pytest.mark.parametrize("order", ["raise", "kill", "leave", "hang"])
def test_a_client_that_fails_costs_its_own_answer_only(healed, order):
    site, app = healed
    status, report = run(site, app, rounds=2, order=order)
    assert status.state == "completed"
    broken, after = report["rounds"]
    assert list(broken["answers"]) == ["1"] and len(broken["errors"]) + broken["silent"] == 1
    check_round(site, after)
    if order == "raise":
        ((code, reason, _),) = broken["errors"]
        assert code == 2 and "as it was asked to" in reason
    if order == "hang":
        assert f"{DEADLINE:.0f}." in site.log("client-0").read_text().split("exceeded its deadline after ")[1]


@pytest.mark.slow
def test_jax_works_in_a_forked_client(healed):
    site, app = healed
    _, report = run(site, app, rounds=1, order="jax")
    assert report["rounds"][0]["answers"]["0"]["sum"] == 10.0


@pytest.mark.slow
def test_a_killed_supernode_comes_back_as_the_same_node(healed):
    site, app = healed
    for _ in range(2):
        kill_and_wait(site, "client-0.supernode")
    assert processes.node_status(site) == {0: "online", 1: "online"}
    _, report = run(site, app, rounds=1)
    check_round(site, report["rounds"][0])  # node ids are those of the registry


@pytest.mark.slow
def test_a_killed_superlink_is_started_again_with_the_same_nodes(healed):
    site, app = healed
    port, registry = site.port(), site.registry()
    number = processes.submit(site, app, {"report": str(site.folder / "lost.json"), "rounds": 1000})
    os.kill(processes.running(site)["superlink"], signal.SIGKILL)
    processes.start(site, CLIENTS, deadline=DEADLINE)
    assert site.port() == port and site.registry() == registry
    _, report = run(site, app, rounds=1)
    check_round(site, report["rounds"][0])
    status = processes.run_status(site, number)
    print("the run that was cut:", status)
    if not status.over:
        processes.stop_run(site, number)


@pytest.mark.slow
def test_a_killed_supervisor_leaves_a_node_that_works_and_start_heals_it(healed):
    site, app = healed
    os.kill(processes.running(site)["client-1"], signal.SIGKILL)
    _, report = run(site, app, rounds=1)
    check_round(site, report["rounds"][0])
    assert not report["rounds"][0]["answers"]["1"]["warm"]  # the real command, started afresh
    left = processes.running(site)["client-1.supernode"]
    processes.start(site, CLIENTS, deadline=DEADLINE)
    assert processes.running(site)["client-1.supernode"] != left and started(left) is None
    _, report = run(site, app, rounds=1)
    check_round(site, report["rounds"][0])
    assert report["rounds"][0]["answers"]["1"]["warm"]


@pytest.mark.slow
def test_wrong_authority_no_key_unknown_key_and_plaintext_are_refused(healed, tmp_path):
    site, _ = healed
    make_certificates(tmp_path / "theirs")
    make_key(tmp_path / "stranger.key")
    authority = ["--root-certificates", str(site.authority)]
    key = ["--auth-supernode-private-key", str(tmp_path / "stranger.key")]
    member = ["--auth-supernode-private-key", str(site.key(0))]
    wrong = ["--root-certificates", str(tmp_path / "theirs" / "ca.pem")]
    attempts = {
        "wrong authority": ([*wrong, *member], "CERTIFICATE_VERIFY_FAILED"),
        "no key": (authority, "All SuperNodes must be registered"),
        "unknown key": ([*authority, *key], "Failed to activate SuperNode"),
        "plaintext": (["--insecure"], "Server disconnected without sending a response"),
        "plaintext with a key": (["--insecure", *member], "requires a secure TLS connection"),
    }
    before = processes.node_status(site)
    running = {}
    try:
        for name, (options, _) in attempts.items():
            address = ["--superlink", f"127.0.0.1:{site.port()}", "--max-retries", "1"]
            own = ["--host", "127.0.0.1", "--port", str(processes.free_port())]
            with open(tmp_path / name, "wb") as log:
                running[name] = subprocess.Popen(
                    [command("flower-supernode"), *address, *own, *options],
                    env=environment(site, tmp_path / "home"),
                    stdout=log,
                    stderr=subprocess.STDOUT,
                    start_new_session=True,
                )
        for name, (_, reason) in attempts.items():
            code = running[name].wait(timeout=60)
            said = (tmp_path / name).read_text()
            assert code == 1 and reason in said and "SuperNode ID" not in said, f"{name}: {said}"
    finally:
        for process in running.values():
            with contextlib.suppress(ProcessLookupError):  # a SuperExec may be left for a moment
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
    assert processes.node_status(site) == before


@pytest.mark.slow
def test_the_bundle_holds_the_app_and_nothing_of_the_site(healed, tmp_path):
    site, app = healed
    subprocess.run(
        [command("flwr"), "build", "--app", str(app)], env=environment(site), cwd=tmp_path, check=True, timeout=60
    )
    (bundle,) = tmp_path.glob("*.fab")
    with zipfile.ZipFile(bundle) as packed:
        assert sorted(packed.namelist()) == [".info/CONTENT", "echo_app.py", "pyproject.toml"]


@pytest.mark.slow
def test_stop_leaves_nothing_and_another_start_finds_everything(healed):
    site, app = healed
    registry, port = site.registry(), site.port()
    processes.stop(site)
    assert processes.running(site) == {} and members(site) == []
    processes.start(site, CLIENTS, deadline=DEADLINE)
    assert site.registry() == registry and site.port() == port
    _, report = run(site, app, rounds=1)
    check_round(site, report["rounds"][0])


@pytest.mark.slow
def test_start_copes_with_a_port_that_was_taken_and_a_registration_that_was_not_written_down(healed):
    site, app = healed
    processes.stop(site)
    port, registry = site.port(), site.registry()
    registry[1]["node_id"] = None  # killed between registering and writing
    site.write_registry(registry)
    with socket.create_server(("127.0.0.1", port)):
        processes.start(site, CLIENTS, deadline=DEADLINE)
        assert site.port() != port
        assert site.registry()[0] == registry[0]
        assert site.registry()[1]["public_key"] != registry[1]["public_key"]
        _, report = run(site, app, rounds=1)
        check_round(site, report["rounds"][0])


@pytest.mark.slow
def test_without_the_door_the_same_with_a_worker_that_is_kept_alive(tmp_path):
    app = make_app(tmp_path / "echo")
    site = Site.inside(app)
    script = tmp_path / "worker.py"
    script.write_text(
        textwrap.dedent("""
            import os, pathlib, time
            folder = pathlib.Path(os.environ["PERFORMATIVE_SITE"]) / "clients" / os.environ["PERFORMATIVE_CLIENT"]
            with open(folder / "workers", "a") as file:
                print(os.getpid(), file=file)
            time.sleep(1000)
        """)
    )
    try:
        processes.start(site, CLIENTS, forks=False, worker=[sys.executable, str(script)])
        worker = processes.running(site)["client-1.worker"]
        os.kill(worker, signal.SIGKILL)
        assert wait_for(lambda: processes.running(site).get("client-1.worker") not in (None, worker), 10.0)
        status, report = run(site, app, rounds=4)
        assert status.state == "completed"
        for one in report["rounds"]:
            check_round(site, one)
            assert not any(answer["warm"] for answer in one["answers"].values())
        assert wait_for(lambda: len((site.state(1) / "workers").read_text().split()) == 2, 5.0)
    finally:
        processes.stop(site)
    assert members(site) == []
