"""What the tests of changes to Flower share."""

import importlib

import pytest

# What `upstream.guard` puts into Flower's modules.
CHANGED = (
    ("flwr.supercore.sql_mixin", "SQLITE_PRAGMAS"),
    ("flwr.superlink.main", "create_app"),
    ("flwr.superlink.cli.flower_superlink", "_get_superexec_command"),
    ("flwr.supernode.main", "create_app"),
    ("flwr.supernode.start_client_internal", "time"),
    ("flwr.supernode.start_client_internal", "subprocess"),
    ("flwr.supernode.start_client_internal", "http_request_response"),
    ("flwr.supernode.fleet_http_connection", "FleetHttpClient"),
    ("flwr.supercore.superexec.executor.subprocess_executor", "subprocess"),
)


@pytest.fixture
def guarded_for_now(monkeypatch):
    """Flower is as it was once the test has ended."""
    for name, attribute in CHANGED:
        module = importlib.import_module(name)
        monkeypatch.setattr(module, attribute, getattr(module, attribute))
    monkeypatch.setenv("FORWARDED_ALLOW_IPS", "")
