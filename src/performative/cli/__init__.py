"""The command line: `performative demo | run FILE.toml | bench`."""

from performative.cli.app import app, main

__all__ = ["app", "main"]
