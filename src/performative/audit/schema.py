"""The format of logs: a folder with this layout, or any table of rows with an audit.toml that describes its columns.

    FOLDER/deployments.csv|parquet    one row per deployment
        deployment      its id, unique
        time            optional: a number, or an ISO date (then days since the first); without it, order of the rows
        theta_<name>    parameters of the model, finite numbers; OR
        scoring         file (CSV or Parquet, relative to FOLDER) with features and the `score` that the model assigned
                        to them; the model is then summarized by a linear regression of the score (of its logit
                        if all scores lie strictly between 0 and 1) on the features
    FOLDER/data/*.csv|*.parquet, or FOLDER/data.csv|parquet     one row per person
        deployment      the deployment under which the row was collected
        client          optional: the client that the row belongs to (else all belong to one client)
        label           optional: a number; empty if the outcome is unknown
        score           optional: the model's score
        accepted        optional: 0 or 1
        propensity      optional: the probability, 0 to 1, of accepting this person (1 or 0 if the rule is
                        deterministic); rows are needed for everyone, not only for the accepted
        group           optional: the protected group
        any other       a feature: a number, or yes and no; other text goes under [categories] or `ignore`
    audit.toml (next to the data, or passed; optional for a folder with this layout)
        [source]    table = the table of rows of a database, models = its table of deployments (default: deployments)
        [columns]   deployment, client, label, score, accepted, group, propensity, time, scoring = "the name used in the
                    files";
                    features = [...] (default: every other column), ignore = [...]
        [model]     loss = "squared" | "logistic" | "ridge" (default: logistic for labels 0/1, ridge for other labels,
                    squared without labels), penalty = 0.0,
                    parameters = {feature = "parameter"} if theta_<name> and the feature's name differ
        [deployments]  every = "day" | "week" | "month" | "quarter" | "year", or starts = [dates]: periods of the rows'
                    `time` column are the deployments, named by their first day
        [models]    files = "path with {deployment}" or {deployment = "path"}: pickles, e.g. of scikit-learn models
                    (only if trusted), or ONNX; registry = an MLflow model, whose versions are the deployments;
                    scores = true: known only through the rows' `score` column
        [categories]  columns = [...] of strings; each value except the most common becomes a 0/1 feature; most = 20
                    values per column
        [labels]    missing = "auto" | "features" | "labeled": what to do with unlabeled rows; "features" drops the
                    label, "labeled" drops those rows, "auto" drops the rows if they are at most 1% and else behaves
                    as "features"; one = the value that is 1; delayed = "drop" | "keep": what to do with the last
                    deployments as long as they have no labels
        [decision]  threshold, accept = "above" | "below" (which scores are accepted), qualified = 1 | 0 (the label of
                    qualified people), movable = [features that people can change], accepted = the value for yes
        [clip]      feature = [lowest, highest]: values outside are clipped before means are taken, for columns in
                    which a few outliers hide all other rows; decisions and groups use the unclipped values
        [weights]   client = weight (any positive numbers; default: shares of rows)
        [files]     delimiter = ",", decimal = "."

Handling of faults. Refused: a missing file or column, an unparsable number, a duplicate column, a text feature, a
duplicate deployment, a time that is missing, unreadable or duplicate, a non-finite parameter, `accepted` other than 0
and 1. Dropped, counted and reported in `notes`: rows of unknown deployments, rows without deployment or client, rows
with a missing or infinite feature, an infinite label, deployments of a client with fewer than two rows, and constant
features. Sorted and reported: deployments that are not in order of time.
"""

import dataclasses
import datetime
import math
import tomllib
from pathlib import Path
from typing import Any

from performative._base.checks import nearest
from performative._deprecated import new_value

ROLES = ("deployment", "client", "label", "score", "accepted", "group", "propensity", "time", "scoring")
LOSSES = ("squared", "logistic", "ridge")
PREFIX = "theta_"
MISSING = ("auto", "features", "labeled")
PERIODS = ("day", "week", "month", "quarter", "year")


class LogError(ValueError):
    """`file: row: column: rule; what was received`."""

    def __init__(self, message: str, file: str | Path = "", row: str = "", column: str = ""):
        self.message, self.file, self.row, self.column = message, str(file), row, column
        where = (self.file, row, f"column {column!r}" if column else "", message)
        super().__init__(": ".join(part for part in where if part))


@dataclasses.dataclass(frozen=True)
class Decision:
    """Who is accepted: score >= threshold ("above") or score <= threshold ("below"); who should be: `qualified`."""

    threshold: float | None = None
    accept: str = "above"
    qualified: int = 1
    movable: tuple[str, ...] | None = None


@dataclasses.dataclass(frozen=True)
class Settings:
    """audit.toml, checked; see the top of this module. `names` maps a role to its column."""

    names: dict[str, str] = dataclasses.field(default_factory=lambda: {role: role for role in ROLES})
    features: tuple[str, ...] | None = None
    ignore: tuple[str, ...] = ()
    loss: str | None = None
    penalty: float = 0.0
    parameters: dict[str, str] = dataclasses.field(default_factory=dict)
    missing_labels: str = "auto"
    decision: Decision = Decision()
    weights: dict[str, float] | None = None
    clip: dict[str, tuple[float, float]] = dataclasses.field(default_factory=dict)
    delimiter: str = ","
    decimal: str = "."
    label_one: str | None = None
    delayed: str = "drop"
    accepted_word: str | None = None
    categories: tuple[str, ...] = ()
    levels: int = 20
    every: str | None = None
    starts: tuple[str, ...] = ()
    period: Any = None
    table: str | None = None
    models_table: str | None = None
    model_files: str | dict[str, str] | None = None
    registry: str | None = None
    logged_scores: bool = False

    @property
    def dated(self) -> bool:
        """Whether deployments are periods of time."""
        return self.every is not None or bool(self.starts)


def _text(value: Any) -> str | None:
    return None if isinstance(value, str) and value else "text"


def _texts(value: Any) -> str | None:
    good = isinstance(value, list) and bool(value) and all(isinstance(v, str) for v in value)
    return None if good and len(set(value)) == len(value) else "a list of different names"


def _number(value: Any) -> str | None:
    good = isinstance(value, (int, float)) and not isinstance(value, bool) and math.isfinite(value)
    return None if good else "a finite number"


def _one_of(*choices: Any) -> Any:
    return lambda v: None if v in choices and not isinstance(v, bool) else f"one of {', '.join(map(repr, choices))}"


def _mapping(value: Any) -> str | None:
    good = isinstance(value, dict) and all(isinstance(v, str) for v in value.values())
    return None if good and len(set(value.values())) == len(value) else "a table of feature = parameter, each once"


def _not_negative(value: Any) -> str | None:
    return _number(value) or (None if value >= 0 else "a number >= 0")


def _range(value: Any) -> str | None:
    good = isinstance(value, list) and len(value) == 2 and not any(_number(v) for v in value)
    return None if good and value[0] < value[1] else "[lowest, highest], two finite numbers in order"


def _dates(value: Any) -> str | None:
    good = isinstance(value, list) and len(value) > 1
    good = good and all(isinstance(v, str | datetime.date) for v in value)
    return None if good and list(map(str, value)) == sorted(set(map(str, value))) else "two or more dates, in order"


def _files(value: Any) -> str | None:
    pattern = isinstance(value, str) and "{deployment}" in value
    listed = isinstance(value, dict) and bool(value) and all(isinstance(v, str) for v in value.values())
    return None if pattern or listed else 'a path with {deployment} in it, or a table of deployment = "path"'


def _one_of_flags(value: Any) -> str | None:
    return None if isinstance(value, bool) else "true or false"


def _count(value: Any) -> str | None:
    return None if isinstance(value, int) and not isinstance(value, bool) and value > 0 else "a whole number > 0"


def _character(value: Any) -> str | None:
    return None if isinstance(value, str) and len(value) == 1 else "one character"


# Each rule returns None if a value is valid, else what it should have been.
_RULES: dict[str, dict[str, Any]] = {
    "columns": {**dict.fromkeys(ROLES, _text), "features": _texts, "ignore": _texts},
    "model": {"loss": _one_of(*LOSSES), "penalty": _not_negative, "parameters": _mapping},
    "labels": {
        "missing": lambda told: _one_of(*MISSING)(new_value("missing", told)),
        "one": _text, "delayed": _one_of("drop", "keep"),
    },
    "decision": {
        "accepted": _text,
        "threshold": _number, "accept": _one_of("above", "below"), "qualified": _one_of(0, 1), "movable": _texts,
    },
    "source": {"table": _text, "models": _text},
    "deployments": {"every": _one_of(*PERIODS), "starts": _dates},
    "models": {"files": _files, "registry": _text, "scores": _one_of_flags},
    "categories": {"columns": _texts, "most": _count},
    "weights": {},
    "clip": {},
    "files": {"delimiter": _character, "decimal": _one_of(".", ",")},
}  # fmt: skip


def read_settings(file: Path) -> Settings:
    """Read audit.toml; the defaults if there is none."""
    if not file.exists():
        return Settings()
    try:
        raw = tomllib.loads(file.read_text(encoding="utf-8"))
    except RecursionError:
        raise LogError("lists or tables are nested too deeply.", file) from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError, ValueError) as error:
        raise LogError(f"not valid TOML: {error}", file) from error
    for table, entries in raw.items():
        if table not in _RULES:
            raise LogError(f"unknown table [{table}].{nearest(table, _RULES)}", file)
        if not isinstance(entries, dict):
            raise LogError(f"{table} must be a table, [{table}]; got {entries!r}.", file)
        for key, value in entries.items():
            _check(file, table, key, value)
    return _settings(raw, file)


def _check(file: Path, table: str, key: str, value: Any) -> None:
    if table == "weights":
        wrong = _number(value) or (None if value > 0 else "a number > 0")
    elif table == "clip":
        wrong = _range(value)
    elif key not in _RULES[table]:
        raise LogError(f"[{table}] has no key {key!r}.{nearest(key, _RULES[table])}", file)
    else:
        wrong = _RULES[table][key](value)
    if wrong:
        raise LogError(f"{table}.{key} must be {wrong}; got {value!r}.", file)


def _settings(raw: dict[str, Any], file: Path) -> Settings:
    columns, model, decision = raw.get("columns", {}), raw.get("model", {}), raw.get("decision", {})
    names = {role: columns.get(role, role) for role in ROLES}
    # `time` and `scoring` are in another file than the rest, but one name for two roles is a mistake there too.
    twice = {name for name in names.values() if list(names.values()).count(name) > 1}
    if twice:
        raise LogError(f"[columns] gives {sorted(twice)[0]!r} two roles; each role needs its own column.", file)
    both = set(columns.get("features", ())) & (set(columns.get("ignore", ())) | set(names.values()))
    if both:
        raise LogError(f"[columns] features lists {sorted(both)[0]!r}, which has a role or is under ignore.", file)
    files = raw.get("files", {})
    delimiter, decimal = files.get("delimiter", ","), files.get("decimal", ".")
    if delimiter == decimal:
        raise LogError(f"files.delimiter and files.decimal must differ; both are {delimiter!r}.", file)
    movable, labels, categories = decision.get("movable"), raw.get("labels", {}), raw.get("categories", {})
    source, deployments, models = (raw.get(table, {}) for table in ("source", "deployments", "models"))
    if len(deployments) > 1:
        raise LogError("[deployments] accepts `every` or `starts`, not both.", file)
    if sum(map(bool, models.values())) > 1:
        raise LogError("[models] accepts one of `files`, `registry` and `scores`.", file)
    return Settings(
        names=names,
        features=tuple(columns["features"]) if "features" in columns else None,
        ignore=tuple(columns.get("ignore", ())),
        loss=model.get("loss"),
        penalty=float(model.get("penalty", 0.0)),
        parameters=dict(model.get("parameters", {})),
        missing_labels=new_value("missing", labels.get("missing", "auto")),
        decision=Decision(
            threshold=None if "threshold" not in decision else float(decision["threshold"]),
            accept=decision.get("accept", "above"),
            qualified=int(decision.get("qualified", 1)),
            movable=None if movable is None else tuple(movable),
        ),
        clip={name: (float(low), float(high)) for name, (low, high) in raw.get("clip", {}).items()},
        weights={name: float(w) for name, w in raw["weights"].items()} if raw.get("weights") else None,
        delimiter=delimiter,
        decimal=decimal,
        label_one=labels.get("one"),
        delayed=labels.get("delayed", "drop"),
        accepted_word=decision.get("accepted"),
        categories=tuple(categories.get("columns", ())),
        levels=categories.get("most", 20),
        every=deployments.get("every"),
        starts=tuple(str(day) for day in deployments.get("starts", ())),
        table=source.get("table"),
        models_table=source.get("models"),
        model_files=models.get("files"),
        registry=models.get("registry"),
        logged_scores=models.get("scores", False),
    )
