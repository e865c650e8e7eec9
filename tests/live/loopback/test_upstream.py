"""What we work around in Flower is still so; a test that fails here says that a workaround can go, or must change."""

import importlib
import inspect
import re
import subprocess

import pytest

pytest.importorskip("flwr", reason="the extra performative[flower] is not installed")
from flwr.supercore.constant import FLWR_IN_MEMORY_DB_NAME, ExecutorType, TaskType
from flwr.supercore.superexec.executor import get_executor, subprocess_executor
from flwr.supercore.superexec.executor.types import ExecutionSpec
from flwr.supercore.superexec.run_superexec import run_superexec
from flwr.superlink.config_loader import get_federation_manager, get_objectstore_linkstate_factories
from flwr.supernode import start_client_internal
from sqlalchemy import text

from performative.live.loopback import upstream


def test_flower_still_starts_a_process_for_each_message(monkeypatch):
    """So nodes fork warm ones (`fork_server`, `shims`). Its own warm processes are not what a SuperNode uses."""
    assert inspect.signature(run_superexec).parameters["executor_type"].default is ExecutorType.SUBPROCESS
    started = []
    monkeypatch.setattr(subprocess, "Popen", lambda words, **_: started.append(words))
    executor = get_executor(ExecutorType.SUBPROCESS, executor_config=None, insecure=True, root_certificates_path=None)
    told = {name: None for name in inspect.signature(ExecutionSpec).parameters}
    told |= {"task_type": TaskType.CLIENT_APP, "runtime_api_address": "127.0.0.1:1", "token": "t"}
    told |= {"insecure": True, "task_id": 1}
    for _ in range(2):
        executor.launch(ExecutionSpec(**told))
    assert [words[0] for words in started] == ["flwr-clientapp"] * 2


def test_a_killed_node_would_stay_away():
    """So `deregister_node` says it off: Flower takes no second node with a key that counts as online."""
    manager = get_federation_manager(is_simulation=False)
    _, factory = get_objectstore_linkstate_factories(FLWR_IN_MEMORY_DB_NAME, manager)
    state = factory.state()
    node = state.create_node("owner", "name", b"key", 30)
    assert state.activate_node(node, 30)
    assert not state.activate_node(node, 30)
    assert state.deactivate_node(node) and state.activate_node(node, 30)


@pytest.mark.filterwarnings("ignore:No path_separator:DeprecationWarning")  # of a library that Flower uses
def test_the_database_waits_for_its_turn(tmp_path, guarded_for_now):
    """Flower's gives up while a large model is written; where it waits longer by itself, `DATABASE` can go."""
    from flwr.supercore import sql_mixin

    assert int(dict(sql_mixin.SQLITE_PRAGMAS)["busy_timeout"]) == 5000
    upstream.guard("flower-superlink")
    manager = get_federation_manager(is_simulation=False)
    _, factory = get_objectstore_linkstate_factories(str(tmp_path / "superlink.db"), manager)
    state = factory.state()
    with state.session() as session:
        told = {name: session.execute(text(f"PRAGMA {name}")).scalar() for name in upstream.DATABASE}
    # SQLite answers a pragma of a timeout in milliseconds too.
    assert {name: str(value) for name, value in told.items()} == upstream.DATABASE


def test_a_node_asks_more_often_while_messages_come():
    """Flower's sleeps 3 s where there is no message, and half a second where its own processes are at work."""
    source = inspect.getsource(start_client_internal)
    assert re.findall(r"\btime\.(\w+\([\d.]*)", source) == ["sleep(3", "sleep(0.5", "sleep(0.5"]
    slept = []
    pace = upstream.Pace(slept.append)
    for _ in range(9):
        pace.sleep(3)
    assert slept[0] == 0.2 and slept == sorted(slept) and slept[-1] == 3 and sum(slept) < 20
    pace.sleep(0.5)
    pace.sleep(3)
    assert slept[-2:] == [0.1, 0.2]


def test_what_hides_a_token_runs_wherever_a_superexec_is_started(guarded_for_now, monkeypatch):
    monkeypatch.delenv(upstream.FORK_SERVER, raising=False)
    started = []
    for name in ("flower-superlink", "flower-supernode"):
        upstream.guard(name)
    superlink = importlib.import_module("flwr.superlink.cli.flower_superlink")
    with monkeypatch.context() as patch:
        patch.setattr(subprocess, "Popen", started.append)
        start_client_internal.subprocess.Popen(["flower-superexec"])
    started.append(superlink._get_superexec_command("127.0.0.1:1", None, None, 1, False))
    assert [words[:4] for words in started] == [upstream.changed(["flower-superexec"])] * 2
    assert "subprocess.Popen(command)" in inspect.getsource(start_client_internal)
    upstream.guard("flower-superexec")
    assert subprocess_executor.subprocess is not subprocess


def test_a_token_is_in_no_argument(tmp_path, monkeypatch):
    """Flower's own executor puts it there; ours hands it over as a file that has no name."""
    script = tmp_path / "task"
    script.write_text(f'#!/bin/sh\necho "$@" > {tmp_path}/said; cat "$4" > {tmp_path}/token\n')
    script.chmod(0o755)
    monkeypatch.setitem(subprocess_executor.TASK_TYPE_TO_COMMAND, TaskType.CLIENT_APP, str(script))
    spec = ExecutionSpec(
        task_type=TaskType.CLIENT_APP, runtime_api_address="127.0.0.1:1", token="secret", insecure=True,
        root_certificates_path=None, runtime_dependency_install=False, parent_pid=None, suppress_output=False,
        task_id=1, fab_hash=None,
    )  # fmt: skip
    began, start = [], subprocess.Popen

    class Awaited(start):
        def __init__(self, *words, **options):
            super().__init__(*words, **options)
            began.append(self)

    monkeypatch.setattr(subprocess, "Popen", Awaited)
    monkeypatch.setattr(subprocess_executor, "subprocess", subprocess)
    for ours in (False, True):
        if ours:
            upstream.hide_token()
        subprocess_executor.SubprocessExecutor().launch(spec)
        began.pop().wait(20)
        assert ("secret" in (tmp_path / "said").read_text()) != ours
    assert (tmp_path / "token").read_text() == "secret"
