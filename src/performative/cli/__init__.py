"""The command line; `performative --help` lists the commands."""

from performative.cli.app import app, main

__all__ = ["app", "main"]
