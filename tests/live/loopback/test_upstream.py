"""What we work around in Flower is still so; a test that fails here says that a workaround can go, or must change."""

import inspect
import subprocess

import pytest

pytest.importorskip("flwr", reason="the extra performative[flower] is not installed")
from flwr.supercore.constant import FLWR_IN_MEMORY_DB_NAME, ExecutorType, TaskType
from flwr.supercore.superexec.executor import get_executor
from flwr.supercore.superexec.executor.types import ExecutionSpec
from flwr.supercore.superexec.run_superexec import run_superexec
from flwr.superlink.config_loader import get_federation_manager, get_objectstore_linkstate_factories


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
