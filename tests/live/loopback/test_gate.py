"""The gate before Flower's services: this user on this machine, nobody else; and no long body from strangers."""

import contextlib
import http.client
import os
import socket
import threading

import pytest

pytest.importorskip("flwr", reason="the extra performative[flower] is not installed")
import uvicorn

from performative.live.limits import LARGEST
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


MEMBER = {"Flwr-Public-Key": "known"}


def caller(headers):
    return b"key" if headers.get(b"flwr-public-key") == b"known" else None


@pytest.fixture
def port(monkeypatch):
    monkeypatch.setenv("FORWARDED_ALLOW_IPS", "")  # as `guard` sets it
    monkeypatch.setenv(LARGEST, "200000")
    made = Gate(service, "/v1/fleet/", caller)
    server = uvicorn.Server(uvicorn.Config(made, host="127.0.0.1", port=0, log_level="warning", ws="none", http="h11"))
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


def test_a_long_body_is_refused_by_what_it_claims(port):
    """Nothing of it is sent here: the answer comes all the same, and says what to change."""
    with socket.create_connection(("127.0.0.1", port), timeout=10) as line:
        line.sendall(b"POST /v1/fleet/push HTTP/1.1\r\nHost: x\r\nContent-Length: 200001\r\n\r\n")
        said = b"".join(iter(lambda: line.recv(65536), b""))  # until the gate hangs up
    assert said.startswith(b"HTTP/1.1 413")
    assert b"has 200001 bytes, and this federation accepts at most 200000; to raise the limit, set `size`" in said


def test_a_body_without_a_length_is_refused(port):
    with socket.create_connection(("127.0.0.1", port), timeout=10) as line:
        line.sendall(b"POST /v1/fleet/push HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n")
        assert line.recv(65536).startswith(b"HTTP/1.1 411")
    assert ask(port, "/v1/fleet/push", b"x", Content_Length="-1")[0] == 400


def test_long_bodies_are_taken_from_members_alone(port):
    assert ask(port, "/v1/fleet/push", b"x" * gate.SMALL) == (200, str(gate.SMALL))
    assert ask(port, "/v1/fleet/push", b"x" * (gate.SMALL + 1))[0] == 401
    assert ask(port, "/v1/fleet/push", b"x" * 200_000, **MEMBER) == (200, "200000")
    assert ask(port, "/v1/fleet/push", b"x" * 200_001, **MEMBER)[0] == 413


def test_a_member_has_few_long_bodies_under_way(port):
    """Others are not held up by those that it leaves hanging, and neither are its own short ones."""
    head = b"POST /v1/fleet/push HTTP/1.1\r\nHost: x\r\nFlwr-Public-Key: known\r\nContent-Length: 200000\r\n\r\n"
    with contextlib.ExitStack() as lines:
        for _ in range(gate.AT_ONCE):
            line = lines.enter_context(socket.create_connection(("127.0.0.1", port), timeout=10))
            line.sendall(head + b"x")
        waiting = http.client.HTTPConnection("127.0.0.1", port, timeout=1)
        with contextlib.closing(waiting), pytest.raises(TimeoutError):
            waiting.request("POST", "/v1/fleet/push", b"x" * 200_000, MEMBER)
            waiting.getresponse()
        assert ask(port, "/v1/fleet/push", b"x", **MEMBER) == (200, "1")
    assert ask(port, "/v1/fleet/push", b"x" * 200_000, **MEMBER) == (200, "200000")


def test_what_hangs_is_given_up(port, monkeypatch):
    monkeypatch.setattr(gate, "_NEXT", 0.2)
    with socket.create_connection(("127.0.0.1", port), timeout=10) as line:
        line.sendall(b"POST /v1/fleet/push HTTP/1.1\r\nHost: x\r\nFlwr-Public-Key: known\r\n")
        line.sendall(b"Content-Length: 200000\r\n\r\nxx")
        assert line.recv(65536).startswith(b"HTTP/1.1 500")  # the service is told that the sender hung up


def test_ports_are_found_with_their_process(port):
    assert (os.getpid(), "127.0.0.1", port) in listening([os.getpid()])
    assert not listening([])


@pytest.mark.parametrize("name", ["flower-superlink", "flower-supernode"])
def test_what_upstream_would_leave_open(name, guarded_for_now):
    """Flower's own service answers a stranger; where it does not any more, the gate can go."""
    import asyncio

    import flwr.superlink.main
    import flwr.supernode.main

    module = flwr.superlink.main if name == "flower-superlink" else flwr.supernode.main

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


@pytest.fixture
def listener():
    """Listens as whoever asks for it, accepts in a thread, and says what it was sent."""
    heard, open_ones = [], []

    def begin(user):
        with as_user(user) if user else contextlib.nullcontext():
            made = socket.create_server(("127.0.0.1", 0))
        open_ones.append(made)

        def accept():
            with contextlib.suppress(OSError):
                line = made.accept()[0]
                if user:
                    os.fchown(line.fileno(), user, user)
                heard.append(line.recv(10))
                line.close()

        threading.Thread(target=accept, daemon=True).start()
        return made.getsockname(), heard

    yield begin
    for made in open_ones:
        made.close()


@pytest.mark.parametrize("user", [0, NOBODY])
def test_who_accepts_must_be_this_user(listener, user, monkeypatch):
    if user and os.geteuid() != 0:
        pytest.skip("only root can listen as another user")
    monkeypatch.setattr(socket, "create_connection", socket.create_connection)  # put back afterwards
    (host, port), heard = listener(user)
    upstream.talk_to_ours(f"{host}:{port}", seconds=20.0)
    if user:
        with pytest.raises(ConnectionRefusedError, match=rf"user {NOBODY} listens at {host}:{port}"):
            socket.create_connection((host, port))
        assert wait_for(lambda: heard == [b""], 20.0)
    else:
        with socket.create_connection((host, port)) as line:
            line.sendall(b"hello")
        assert wait_for(lambda: heard == [b"hello"], 20.0)
