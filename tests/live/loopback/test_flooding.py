"""A server and a member that are sent more than they take: it is refused, and their memory stays as it was."""

import contextlib
import gzip
import os
import socket
import ssl
import subprocess
import sys
import threading
from base64 import b64encode
from pathlib import Path

import pytest

pytest.importorskip("flwr", reason="the extra performative[flower] is not installed")
from performative.live.limits import LARGEST
from performative.live.loopback.certificates import make_certificates, make_key
from performative.live.loopback.gate import AT_ONCE
from performative.live.loopback.process_table import wait_for
from performative.live.loopback.processes import free_port

MB = 1 << 20
LIMIT = 8 * MB
# The most that a process may grow by; what it is sent is several times as much.
MOST = 96 * MB
SENT = 384 * MB
FLOODING = Path(__file__).with_name("flooding.py")


def resident(pid):
    line = next(line for line in Path(f"/proc/{pid}/status").read_text().splitlines() if line.startswith("VmHWM"))
    return 1024 * int(line.split()[1])  # the most that it ever was


def start(*words, **options):
    environ = os.environ | {LARGEST: str(LIMIT), "FLWR_TELEMETRY_ENABLED": "0"}
    return subprocess.Popen([sys.executable, str(FLOODING), *map(str, words)], env=environ, text=True, **options)


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    """Port, process, authority and a way to sign as the member does."""
    folder = tmp_path_factory.mktemp("flooded")
    make_certificates(folder / "certificates")
    make_key(folder / "member.key")
    from cryptography.hazmat.primitives.serialization import load_ssh_private_key
    from flwr.supercore.primitives.asymmetric import public_key_to_bytes, sign_message

    private = load_ssh_private_key((folder / "member.key").read_bytes(), None)
    public = public_key_to_bytes(private.public_key())
    (folder / "member.bytes").write_bytes(public)
    port = free_port()
    words = ("serve", port, folder / "certificates", folder / "superlink.db", folder / "member.bytes")
    with open(folder / "log", "w") as log:
        process = start(*words, stdout=log, stderr=subprocess.STDOUT)

    def signed():
        from flwr.supercore.date import now

        time = now().isoformat()
        signature = sign_message(private, time.encode())
        return (
            f"flwr-public-key: {b64encode(public).decode()}\r\nflwr-signature: {b64encode(signature).decode()}\r\n"
            f"flwr-timestamp: {time}\r\n"
        )

    def line():
        context = ssl.create_default_context(cafile=str(folder / "certificates" / "ca.pem"))
        return context.wrap_socket(
            socket.create_connection(("127.0.0.1", port), timeout=20), server_hostname="127.0.0.1"
        )

    def answers():
        with contextlib.suppress(OSError), line():
            return True
        assert process.poll() is None, (folder / "log").read_text()
        return False

    try:
        assert wait_for(answers, 60.0), (folder / "log").read_text()
        yield line, process, signed
    finally:
        process.kill()
        process.wait()


def send(line, head, body=b"", times=0):
    """What the server says to a request, however much of its body it takes."""
    with line() as there:
        with contextlib.suppress(OSError):
            there.sendall(f"POST /v1/fleet/push-object HTTP/1.1\r\nHost: x\r\n{head}\r\n".encode())
            for _ in range(times):
                there.sendall(body)
        with contextlib.suppress(OSError):
            return b"".join(iter(lambda: there.recv(65536), b""))
    return b""


@pytest.mark.slow
def test_a_server_holds_nothing_of_what_it_refuses(server):
    line, process, signed = server
    send(line, f"Content-Length: {LIMIT}\r\n{signed()}", b"x" * MB, LIMIT // MB)  # first uses
    before = resident(process.pid)
    claimed = send(line, f"Content-Length: {SENT}\r\n{signed()}")
    assert claimed.startswith(b"HTTP/1.1 413") and f"at most {LIMIT}; to raise".encode() in claimed
    assert send(line, f"Content-Length: {LIMIT}\r\n").startswith(b"HTTP/1.1 401")
    send(line, f"Content-Length: {SENT}\r\n{signed()}", b"x" * MB, SENT // MB)
    piece = b"100000\r\n" + b"x" * MB + b"\r\n"
    send(line, f"Transfer-Encoding: chunked\r\n{signed()}", piece, SENT // MB)
    send(line, "", b"X-Long: " + b"x" * MB, SENT // MB)
    assert process.poll() is None
    assert resident(process.pid) < before + MOST


def test_a_member_that_leaves_bodies_hanging_holds_few(server):
    """As much as is allowed on each of many connections, all but the last byte."""
    line, process, signed = server
    before = resident(process.pid)
    with contextlib.ExitStack() as lines:
        for _ in range(SENT // LIMIT):
            there = lines.enter_context(line())
            there.settimeout(0.5)
            head = f"POST /v1/fleet/push-object HTTP/1.1\r\nHost: x\r\nContent-Length: {LIMIT}\r\n{signed()}\r\n"
            with contextlib.suppress(TimeoutError):  # it is not read any more
                there.sendall(head.encode() + b"x" * (LIMIT - 1))
        # A few bodies, and what each connection reads ahead.
        assert resident(process.pid) < before + MOST
    assert AT_ONCE * LIMIT < MOST


@contextlib.contextmanager
def hostile(answer):
    """A port at which each request is answered by what `answer` sends."""
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def serve():
            with contextlib.suppress(OSError):
                while True:
                    there, _ = listener.accept()
                    with there, contextlib.suppress(OSError):
                        there.recv(65536)
                        answer(there)

        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        yield listener.getsockname()[1]


OK = b"HTTP/1.1 200 OK\r\nContent-Type: application/x-protobuf\r\nConnection: close\r\n"


def claims(there):
    there.sendall(OK + f"Content-Length: {SENT}\r\n\r\n".encode())
    for _ in range(SENT // MB):
        there.sendall(b"x" * MB)


def goes_on(there):
    there.sendall(OK + b"Transfer-Encoding: chunked\r\n\r\n")
    for _ in range(SENT // MB):
        there.sendall(b"100000\r\n" + b"x" * MB + b"\r\n")


def swells(there):
    body = gzip.compress(bytes(SENT))
    there.sendall(OK + f"Content-Encoding: gzip\r\nContent-Length: {len(body)}\r\n\r\n".encode() + body)


def honest(there):
    from flwr.proto.message_pb2 import PullObjectResponse

    body = PullObjectResponse(object_found=True, object_available=True, object_content=b"x" * (LIMIT - 100))
    body = body.SerializeToString()
    there.sendall(OK + f"Content-Length: {len(body)}\r\n\r\n".encode() + body)


@pytest.mark.slow
def test_a_member_holds_nothing_of_what_it_refuses():
    now = {"answer": honest}
    with hostile(lambda there: now["answer"](there)) as port:
        member = start("pull", port, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        try:

            def ask(answer):
                now["answer"] = answer
                member.stdin.write("\n")
                member.stdin.flush()
                return member.stdout.readline().strip()

            assert member.stdout.readline().strip() == "ready"
            assert ask(honest) == f"taken {LIMIT - 100}"
            before = resident(member.pid)
            # The count begins anew with each message that is received; here it goes on.
            for answer in (claims, goes_on):
                said = ask(answer)
                assert said.startswith("TooLong: what the server sends") and f"at most {LIMIT}; to raise" in said
            assert ask(swells).startswith("TooLong: the server sends an answer compressed with 'gzip'")
            assert resident(member.pid) < before + MOST
        finally:
            member.kill()
            member.communicate()
