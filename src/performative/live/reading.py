"""A federation from a TOML file: the tables of `performative run`, and [federation] for the network settings."""

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

from performative.config.build import Builder
from performative.config.document import load_experiment, parse
from performative.config.errors import ConfigError, blame
from performative.live.federation import Federation
from performative.live.member_logs import MemberLogs
from performative.live.sources.tables import TableSource

# Entries of [run] that a federation shares with a simulation.
_SHARED = ("rounds", "theta", "seed", "dtype", "privacy")
_NOT_IN_TABLE = ("problem", "algorithm", *_SHARED, "source", "before_deploy", "audit")


def load(
    path: str | os.PathLike[str],
    *,
    source: Callable[[int], Any] | None = None,
    before_deploy: Callable[[Any, dict[str, Any]], Any] | None = None,
) -> Federation:
    """The federation that a file describes. `performative run` simulates the same file.

    If it has a [data], rows stay in the members' own tables and are replaced by zeros here; relative paths are looked
    up in the member's data folder, or otherwise next to the file.

    An [audit] sets where the members' logs are: see `MemberLogs`. Entries of [run] that apply only to a simulation
    (repeats, risk, ...) are ignored. If the file has a [federation], deploy = "round" is the default.
    """
    file = Path(path)
    # Callbacks of the file apply only to a simulation.
    experiment = load_experiment(file, {"callbacks": []}, read_tables=False)
    try:
        if experiment.data is not None:
            if source is not None:
                raise ConfigError("both [data] and source= define where rows come from; keep one of them.", "data")
            source = TableSource(experiment.data, file.parent)
        table = parse(file).get("federation", {})
        keywords = Builder(file.parent).keywords(Federation, table, "federation", leave_out=_NOT_IN_TABLE)
        audit = None
        if (logs := parse(file).get("audit")) is not None:
            audit = _read_logs(logs, file.parent)
        shared = {name: experiment.options[name] for name in _SHARED if name in experiment.options}
        with blame("federation", {**keywords, **shared}):
            return Federation(
                experiment.problem,
                experiment.algorithm,
                source=source,
                before_deploy=before_deploy,
                audit=audit,
                **shared,
                **keywords,
            )
    except ConfigError as error:
        raise ConfigError(error.message, error.key, file) from error.__cause__


def _read_logs(table: dict[str, Any], folder: Path) -> MemberLogs:
    keywords = Builder(folder).keywords(MemberLogs, table, "audit", leave_out=("beside",))
    with blame("audit", keywords):
        return MemberLogs(**keywords, beside=str(folder))
