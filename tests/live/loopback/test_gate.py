"""The gate before Flower's services: this user on this machine, nobody else; and no body that fills the memory."""

import contextlib
import http.client
import os
import socket
import threading

import pytest

pytest.importorskip("flwr", reason="the extra performative[flower] is not installed")
import uvicorn

from performative.live.loopback import gate, upstream
from performative.live.loopback.gate import Gate, is_ours
from performative.live.loopback.process_table import wait_for
from performative.live.membership.sockets import listening

NOBODY = 65534


async def service(scope, receive, send):
    """Answers with the length of what it was sent."""
    if scope["type"] == "lifespan":
        for kind in ("startup", "shutdown"):
            await receive()
            await send({"type": f"lifespan.{kind}.complete"})
        return
    body, more = b"", True
    while more:
        message = await receive()
        if message["type"] == "http.disconnect":
            return
        body, more = body + message.get("body", b""), message.get("more_body", False)
    await send({"type": "http.response.start", "status": 200, "headers": [(b"x-length", str(len(body)).encode())]})
    await send({"type": "http.response.body", "body": b""})


@pytest.fixture
def port(monkeypatch):
    monkeypatch.setenv("FORWARDED_ALLOW_IPS", "")  # as `guard` sets it
    server = uvicorn.Server(
        uvicorn.Config(Gate(service, "/v1/fleet/"), host="127.0.0.1", port=0, log_level="warning", ws="none")
    )
    thread = threading.Thread(target=server.run)
    thread.start()
    assert wait_for(lambda: server.started, 20.0)
    yield server.servers[0].sockets[0].getsockname()[1]
    server.should_exit = True
    thread.join()


@contextlib.contextmanager
def as_user(number):
    """Sockets that are made inside are this user's."""
    if os.geteuid() != 0:
        pytest.skip("only root can open a socket of another user")
    os.seteuid(number)
    try:
        yield
    finally:
        os.seteuid(0)


def ask(port, path, body=b"", user=None, **headers):
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=10)
    with as_user(user) if user is not None else contextlib.nullcontext():
        connection.connect()
    with contextlib.closing(connection):
        connection.request("POST", path, body, {name.replace("_", "-"): value for name, value in headers.items()})
        answer = connection.getresponse()
        return answer.status, answer.getheader("x-length")


def test_the_same_user_may_ask_for_everything(port):
    assert ask(port, "/v1/control/start-run", b"abc") == (200, "3")
    assert ask(port, "/v1/fleet/pull", b"abcd") == (200, "4")


def test_another_user_of_the_machine_may_ask_for_the_fleet_alone(port):
    assert ask(port, "/v1/control/start-run", user=NOBODY)[0] == 403
    assert ask(port, "/health", user=NOBODY)[0] == 403
    assert ask(port, "/v1/fleet/pull", b"abcd", user=NOBODY) == (200, "4")
    assert ask(port, gate.SIGN, user=NOBODY)[0] == 204


def test_a_header_does_not_make_another_user_ours(port):
    """A proxy's word for where a request comes from would be believed; the port of a socket of ours is no secret."""
    with socket.create_connection(("127.0.0.1", port)) as mine:
        forged = "{}:{}".format(*mine.getsockname())
        assert ask(port, "/health", X_Forwarded_For=forged)[0] == 200
        assert ask(port, "/health", user=NOBODY, X_Forwarded_For=forged)[0] == 403


def test_flowers_services_are_told_to_believe_no_proxy(monkeypatch):
    monkeypatch.setenv("FORWARDED_ALLOW_IPS", "*")
    upstream.guard("flwr-clientapp")
    config = uvicorn.Config(service)
    assert config.forwarded_allow_ips == ""


def test_a_connection_from_elsewhere_has_no_owner_here():
    assert not is_ours(("192.0.2.7", 4321), ("127.0.0.1", 80))
    assert not is_ours(None, ("127.0.0.1", 80)) and not is_ours(("127.0.0.1", 0), ("127.0.0.1", 80))


def test_a_socket_that_was_closed_counts_as_nobodys():
    with socket.create_server(("127.0.0.1", 0)) as listener:
        mine = socket.create_connection(listener.getsockname())
        client, server = mine.getsockname(), listener.getsockname()
        accepted, _ = listener.accept()
        with accepted:
            assert is_ours(client, server)
            mine.close()  # the system shows user 0 from now on
            assert not is_ours(client, server)


def test_a_long_body_is_refused_before_it_is_read(port, monkeypatch):
    monkeypatch.setattr(gate, "LARGEST", 1000)
    assert ask(port, "/v1/fleet/push", b"x" * 1000) == (200, "1000")
    assert ask(port, "/v1/fleet/push", b"x" * 1001)[0] == 413
    assert ask(port, "/v1/fleet/push", b"x", Content_Length="-1")[0] in (400, 413)
    pieces = (b"x" * 100 for _ in range(11))  # without a length, in chunks
    assert ask(port, "/v1/fleet/push", pieces) == (500, None)  # the service is told that the sender hung up


def test_ports_are_found_with_their_process(port):
    assert (os.getpid(), "127.0.0.1", port) in listening([os.getpid()])
    assert not listening([])


@pytest.mark.parametrize("name", ["flower-superlink", "flower-supernode"])
def test_what_upstream_would_leave_open(name, monkeypatch):
    """Flower's own service answers a stranger; where it does not any more, the gate can go."""
    import asyncio

    import flwr.superlink.main
    import flwr.supernode.main

    module = flwr.superlink.main if name == "flower-superlink" else flwr.supernode.main
    monkeypatch.setattr(module, "create_app", module.create_app)
    monkeypatch.setenv("FORWARDED_ALLOW_IPS", "")

    async def status(app):
        sent = []

        async def receive():
            return {"type": "http.request", "body": b"", "more_body": False}

        async def send(message):
            sent.append(message)

        scope = {
            "type": "http", "method": "GET", "path": "/docs", "raw_path": b"/docs", "query_string": b"", "headers": [],
            "client": ("192.0.2.7", 5), "server": ("127.0.0.1", 80), "scheme": "http", "http_version": "1.1",
            "asgi": {"version": "3.0"}, "root_path": "",
        }  # fmt: skip
        await app(scope, receive, send)
        return sent[0]["status"]

    assert asyncio.run(status(module.create_app())) == 200
    upstream.guard(name)
    assert asyncio.run(status(module.create_app())) == 403
