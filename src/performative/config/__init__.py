"""Experiments described in a TOML file."""

from performative.config.document import Experiment, load_experiment
from performative.config.errors import ConfigError

__all__ = ["ConfigError", "Experiment", "load_experiment"]
