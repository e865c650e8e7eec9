"""Processes that are flooded in tests: Flower's own server behind the gate, and a member's client.

python flooding.py serve PORT CERTIFICATES DATABASE KEY    with one registered key
python flooding.py pull PORT                               asks once for each line of standard input
"""

import sys
from pathlib import Path


def serve(port, certificates, database, key):
    from flwr.superlink import main as superlink
    from flwr.superlink.cli.flower_superlink import flower_superlink

    from performative.live.loopback import upstream

    create = superlink.create_app

    def create_with_member(*arguments, **options):
        service = create(*arguments, **options)
        service.state.linkstate_factory.state().create_node("owner", "name", Path(key).read_bytes(), 30)
        return service

    superlink.create_app = create_with_member
    upstream.guard("flower-superlink")
    sys.argv = [
        "flower-superlink", "--host", "127.0.0.1", "--port", port, "--ssl-ca-certfile", f"{certificates}/ca.pem",
        "--ssl-certfile", f"{certificates}/server.pem", "--ssl-keyfile", f"{certificates}/server.key",
        "--database", database, "--enable-supernode-auth", "--isolation", "process",
    ]  # fmt: skip
    flower_superlink()


def pull(port):
    """Ask as a SuperNode does, and say what came of it."""
    from flwr.proto.message_pb2 import PullObjectRequest
    from flwr.supernode import fleet_http_connection

    from performative.live.loopback import upstream

    upstream.guard("flower-supernode")
    client = fleet_http_connection.FleetHttpClient.from_server_address(f"127.0.0.1:{port}", True, None, [])
    print("ready", flush=True)
    for _ in sys.stdin:
        try:
            print(f"taken {len(client.PullObject(PullObjectRequest()).object_content)}", flush=True)
        except Exception as error:
            print(f"{type(error).__name__}: {error}", flush=True)


if __name__ == "__main__":
    {"serve": serve, "pull": pull}[sys.argv[1]](*sys.argv[2:])
