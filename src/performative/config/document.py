"""One TOML file describes one experiment: [problem], [algorithm], [run], and [privacy] for a privacy ledger."""

import dataclasses
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from performative._base.checks import nearest
from performative._base.messages import warn
from performative._engine.checkpoint import Checkpoint, read_checkpoint
from performative._engine.options import RECORD_NAMES
from performative.algorithm import Algorithm
from performative.config.build import Builder
from performative.config.errors import ConfigError, blame, shown
from performative.config.frame import read_frame_table
from performative.config.member_data import fill_all, read_members
from performative.config.overrides import replaced
from performative.config.registry import recipes
from performative.game import Game
from performative.privacy.promise import Privacy
from performative.problem import Problem
from performative.record import Record
from performative.tables.members import MemberTables

# Arguments of `run` that have their own tables, or none; resuming is requested on the command line.
_NOT_IN_RUN = ("problem", "algorithm", "privacy", "record", "checkpoint")

_TABLES_OF_PEOPLE = (".csv", ".tsv", ".parquet", ".gz")
# Tables that a run does not use: --set refuses them.
NOT_RUN = ("plan", "design", "audit", "federation")


@dataclasses.dataclass(frozen=True)
class Experiment:
    """What a file describes: `pf.run(problem, algorithm, **options)`. `data`: the members' tables, from [data]."""

    file: Path
    title: str
    problem: Problem
    algorithm: Algorithm
    options: dict[str, Any]
    data: MemberTables | None = None

    def run(self, resume: bool = False, **more: Any) -> Any:
        """Solve for the points that the file requests, then run. With `resume`, continue from the checkpoint."""
        from performative._engine.run import run

        options = {**self.options, **more}
        if resume and (kept := read_checkpoint(options.get("checkpoint"))) is not None:
            options["checkpoint"] = dataclasses.replace(kept, resume=True)
        try:
            for name in ("stable", "optimal"):
                if isinstance(getattr(options["record"], name), str):
                    with blame(f"run.record.{name}"):
                        options["record"] = dataclasses.replace(options["record"], **{name: self._solve(name)})
            with blame("run", options, (ValueError,)):
                return run(self.problem, self.algorithm, **options)
        except ConfigError as error:
            raise ConfigError(error.message, error.key, self.file) from error.__cause__

    def _solve(self, name: str) -> Any:
        from performative.solve import optimal_point, stable_point

        solvers: dict[str, Any] = {"stable": stable_point, "optimal": optimal_point}
        return solvers[name](self.problem, start=self.options.get("theta"))


def load_experiment(
    path: str | Path,
    overrides: Mapping[str, Any] | None = None,
    read_tables: bool = True,
    unread: tuple[str, ...] = NOT_RUN,
) -> Experiment:
    """Read and check a file, and build the parts. `overrides` replace entries of [run], except where None.

    With `read_tables=False` the tables of [data] are not opened: zeros replace the members' rows. `unread`: tables that
    the caller does not use, which --set therefore refuses.
    """
    file = Path(path)
    try:
        document = _check_tables(parse(file, unread))
        document["run"] |= {name: value for name, value in (overrides or {}).items() if value is not None}
        return _build(document, file, read_tables)
    except ConfigError as error:
        raise ConfigError(error.message, error.key, file) from error.__cause__


def parse(file: Path, unread: tuple[str, ...] = ()) -> dict[str, Any]:
    """Parse a TOML file. `unread`: tables that --set must not set, as they would have no effect."""
    if not file.is_file():
        raise ConfigError("there is no such file." if not file.exists() else "this is a folder, not a TOML file.")
    if file.suffix.lower() in _TABLES_OF_PEOPLE:
        raise ConfigError(f"a table, not a TOML file; `performative init {file}` writes one for it.")
    try:
        document = tomllib.loads(file.read_text(encoding="utf-8"))
    except tomllib.TOMLDecodeError as error:
        raise ConfigError(f"not valid TOML: {error}") from error
    except UnicodeDecodeError as error:
        raise ConfigError(f"not UTF-8 text: {error.reason} at byte {error.start}.") from error
    except RecursionError:
        raise ConfigError("lists or tables are nested too deeply.") from None
    except ValueError:  # Python limits the number of digits of an integer
        raise ConfigError("a number has more than a few thousand digits.") from None
    except OSError as error:
        raise ConfigError(f"cannot be read: {error.strerror}.") from error
    return replaced(document, unread)


def _check_tables(raw: dict[str, Any]) -> dict[str, Any]:
    """Check the outline of the file. The contents of the tables are checked against the parts' signatures."""
    import pydantic

    class Recipe(pydantic.BaseModel, extra="allow", strict=True):
        recipe: str

    class Document(pydantic.BaseModel, extra="forbid", strict=True):
        title: str = ""
        problem: dict[str, Any]
        algorithm: Recipe
        run: dict[str, Any]
        privacy: dict[str, Any] | None = None
        plan: dict[str, Any] | None = None  # for `performative plan`
        design: dict[str, Any] | None = None  # for `performative design`
        federation: dict[str, Any] | None = None  # for `performative federation`
        data: dict[str, Any] | None = None  # tables that stay with the members of a federation
        audit: dict[str, Any] | None = None  # logs that stay there, for `performative federation audit`

    try:
        return Document.model_validate(raw).model_dump()
    except pydantic.ValidationError as invalid:
        # A misspelled table is both unknown and missing: the first error is more informative.
        error = min(invalid.errors(), key=lambda error: error["type"] != "extra_forbidden")
        *parents, name = (str(part) for part in error["loc"])
        key = ".".join(parents)
        if error["type"] == "extra_forbidden":
            raise ConfigError(f"unknown key {name!r}.{nearest(name, Document.model_fields)}", key) from None
        if error["type"] == "missing":
            missing = f"[{name}] is missing." if not parents else f"needs {name} = ..."
            raise ConfigError(missing, key) from None
        rule = "a table" if error["type"] in ("dict_type", "model_type") else "text"
        raise ConfigError(f"expected {rule}; got {shown(error['input'])}.", f"{key}.{name}".lstrip(".")) from None


def _build(document: dict[str, Any], file: Path, read_tables: bool) -> Experiment:
    from performative._engine.run import run

    builder = Builder(file.parent)
    problem, data = read_all(builder, document, read_tables)
    if data is not None and problem.population.model_shape() is None:
        document["run"].setdefault(
            "theta", [0.0] * data.width
        )  # any model fits; by default, one linear in the features
    if document["federation"] is not None or data is not None:  # a model sent over a network is deployed once per round
        document["algorithm"].setdefault("deploy", "round")
    known, name = recipes(), document["algorithm"].pop("recipe")
    if name not in known:
        raise ConfigError(f"there is no recipe {name!r}.{nearest(name, known)}", "algorithm.recipe")
    algorithm = builder.call(known[name], document["algorithm"], "algorithm", rest=Algorithm)
    table, record, folder = _records(document["run"])
    options = builder.keywords(run, table, "run", leave_out=_NOT_IN_RUN)
    options["record"] = builder.call(Record, record, "run.record")
    for name in ("stable", "optimal"):
        point = getattr(options["record"], name)
        if isinstance(point, str) and point != "solve":
            raise ConfigError(f'expected numbers or "solve"; got {point!r}.', f"run.record.{name}")
    if folder:
        options["checkpoint"] = builder.call(Checkpoint, folder, "run.checkpoint", leave_out=("resume",))
    if document["privacy"] is not None:
        options["privacy"] = builder.call(Privacy, document["privacy"], "privacy")
    _check_fit(problem, algorithm, options)
    return Experiment(file, document["title"], problem, algorithm, options, data)


def _records(table: dict[str, Any]) -> tuple[dict[str, Any], dict[str, Any], dict[str, Any]]:
    """[run] without its records and checkpoint, [run.record], [run.checkpoint]; old keys move to their new tables."""
    rest, record, folder = dict(table), table.get("record", {}), table.get("checkpoint", {})
    if not isinstance(record, dict):
        raise ConfigError(f"expected a table such as {{every = 10}}; got {shown(record)}.", "run.record")
    folder = folder if isinstance(folder, dict) else {"folder": folder}
    for name in ("record", "checkpoint"):
        rest.pop(name, None)
    moved = [name for name in rest if name in (*RECORD_NAMES, "checkpoint_every", "at_once")]
    record = record | {RECORD_NAMES[name]: rest.pop(name) for name in moved if name in RECORD_NAMES}
    folder = folder | ({"every": rest.pop("checkpoint_every")} if "checkpoint_every" in moved else {})
    rest |= {"clients_at_once": rest.pop("at_once")} if "at_once" in moved else {}
    if moved:
        where = "[run.record], [run.checkpoint] and clients_at_once"
        warn(
            "old-keyword",
            f"[run]: {' and '.join(moved)} {'has' if len(moved) == 1 else 'have'} moved to {where}.",
        )
    return rest, record, folder


def read_all(
    builder: Builder, document: dict[str, Any], read_tables: bool = True
) -> tuple[Problem, MemberTables | None]:
    """The problem of [problem], and of [data] if the members of a federation provide the rows."""
    if document.get("data") is None:
        return read_problem(builder, document["problem"]), None
    data, problem = read_members(builder, document["data"], document["problem"])
    return fill_all(problem, data, builder.folder) if read_tables else problem, data


def read_problem(builder: Builder, table: dict[str, Any]) -> Problem:
    """A problem from its parts, a ready-made case, or a table of people."""
    ready = [name for name in ("frame", "case") if name in table]
    if not ready:
        return builder.call(Problem, table, "problem", leave_out=("columns",))
    rest = {name: value for name, value in table.items() if name not in (ready[0], "domain")}
    if rest:
        raise ConfigError(f"{ready[0]} defines the whole problem; drop {', '.join(rest)}.", "problem")
    if ready[0] == "frame":
        problem = read_frame_table(builder, table["frame"])
    else:
        problem = builder.value(table["case"], Any, "problem.case", "cases")
        if isinstance(problem, Game):
            raise ConfigError("games cannot be run from a file; use pf.run(game, algorithm, rounds).", "problem.case")
        if not isinstance(problem, Problem):
            raise ConfigError(f'expected a case such as "credit", by name; got {table["case"]!r}.', "problem.case")
    if "domain" not in table:
        return problem
    from performative.domains import AbstractDomain

    with blame("problem.domain"):
        domain = builder.value(table["domain"], AbstractDomain, "problem.domain", "domains")
        return dataclasses.replace(problem, domain=domain)


def _check_fit(problem: Problem, algorithm: Algorithm, options: dict[str, Any]) -> None:
    """Raise what `run` would raise later, with the key that causes it."""
    import jax.numpy as jnp

    from performative._engine.prepare import check_fit, check_rows, on_device, read_theta

    weights = np.asarray(problem.client_weights)
    with blame("algorithm.participation"):
        algorithm.participation.check(weights)
    with blame("algorithm.aggregator"):
        algorithm.aggregator.check(weights, algorithm.participation)
    with blame("algorithm.batch"):
        check_rows(problem, algorithm)
    with blame("run.theta"):
        start = read_theta(problem, options.get("theta"), jnp.float32)
    with blame("problem"):
        check_fit(on_device(problem, jnp.float32), start)
