"""The app that Flower runs: what is learned, where rows come from, and which models may be deployed."""

from pathlib import Path

from performative.live import load
from performative.live.flower import client_app, server_app


def before_deploy(theta, report):
    """Called on the server before a new model is deployed. Return False, or a reason, to reject it."""
    return True


def federation():
    """The federation, the same on the server and on every client."""
    return load(Path(__file__).with_name("federation.toml"), before_deploy=before_deploy)


client = client_app(federation, __file__)
server = server_app(federation)
