"""A first experiment file from a table: guess what each column is for, and write a commented TOML file."""

import dataclasses
import functools
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from performative.assess.columns import CATEGORIES, is_dates, is_identifier, stray_entry
from performative.config.document import load_experiment
from performative.config.errors import ConfigError
from performative.problem import Problem
from performative.tables.any_table import check_flat

_LABELS = ("label", "target", "default", "y", "outcome", "class", "churn", "fraud", "defaulted", "readmitted", "income")
_CLIENTS = ("client", "bank", "branch", "shop", "store", "hospital", "clinic", "site", "school", "region", "country")


@dataclasses.dataclass(frozen=True)
class Column:
    """What a column looks like: `kind` is "number", "two classes", "category", "text", "dates", "identifier" or
    "constant".

    `stray` is an entry that is not a number in a column of text that otherwise holds numbers.
    """

    name: str
    kind: str
    numeric: bool
    distinct: int
    missing: int
    example: str
    stray: str | None = None


@dataclasses.dataclass(frozen=True)
class Roles:
    """What the columns are for.

    Attributes:
        label: column of two classes
        positive: the class that is 1, None if they are called 0 and 1
        client: column that says which client a row belongs to, None if there is only one
        strategic: columns that people can change
        ignore: columns that are not used
    """

    label: str | None
    positive: Any
    client: str | None
    strategic: tuple[str, ...]
    ignore: tuple[str, ...]


def describe_columns(frame: Any) -> list[Column]:
    """One line per column of a pandas frame."""
    return [_describe(str(name), frame[name]) for name in frame.columns]


def guess_roles(columns: Sequence[Column], label: str | None = None, client: str | None = None) -> Roles:
    """The likely role of each column, by its name and its values; `label` and `client` if they are known."""
    two = [column.name for column in columns if column.kind == "two classes"]
    label = label or _named(two, _LABELS) or (two[-1] if two else None)
    few = [c.name for c in columns if c.distinct >= 2 and not c.missing and c.kind not in ("identifier", "dates")]
    client = client or _named([name for name in few if name != label], _CLIENTS)
    rest = [column for column in columns if column.name not in (label, client)]
    ignore = tuple(column.name for column in rest if column.kind in ("identifier", "constant", "text", "dates"))
    return Roles(label, None, client, tuple(c.name for c in rest if c.kind == "number"), ignore)


def write_experiment(out: Path, table: str, columns: Sequence[Column], roles: Roles, strength: float) -> Problem:
    """Write the file once the loader has read it; a file that the loader rejects never replaces another."""
    used = [column for column in columns if column.name not in (*roles.ignore, roles.label, roles.client)]
    prepare = any(not column.numeric or column.missing for column in used)
    prepare |= any(column.missing for column in columns if column.name == roles.label)
    text = functools.partial(_text, table=table, roles=roles, strength=strength, prepare=prepare)
    draft = out.with_name(f".{out.name}.part")  # next to the file: the path of the table is relative to it
    try:
        draft.write_text(text(rate=0.1, batch=1), encoding="utf-8")
        people: Any = load_experiment(draft).problem.population
        draft.write_text(text(rate=_safe_rate(people), batch=min(32, int(np.min(people.count)))), encoding="utf-8")
        problem = load_experiment(draft).problem
        draft.replace(out)
    except ConfigError as error:
        raise ValueError(error.message) from error
    finally:
        draft.unlink(missing_ok=True)
    return problem


def _describe(name: str, column: Any) -> Column:
    check_flat(column)
    values = column.dropna()
    distinct, numeric = int(values.nunique()), column.dtype.kind in "buif"
    odd = None if numeric else stray_entry(values)
    if distinct <= 1:
        kind = "constant"
    elif is_dates(column):
        kind = "dates"
    elif distinct == 2:
        kind = "two classes"
    elif is_identifier(column):
        kind = "identifier"
    elif numeric:
        kind = "number"
    else:
        # Numbers that are written as text are neither read as categories nor as numbers.
        kind = "category" if distinct <= CATEGORIES and not (odd and odd[1]) else "text"
    example = str(values.iloc[0]) if len(values) else ""
    return Column(name, kind, numeric, distinct, int(column.isna().sum()), example[:20], odd and odd[0])


def _named(names: Sequence[str], words: Sequence[str]) -> str | None:
    """The column with the first of these words as its name, or in it."""
    exact = [name for word in words for name in names if name.lower() == word]
    parts = [name for word in words for name in names if word in name.lower().replace("-", "_").split("_")]
    return next(iter([*exact, *parts]), None)


def _safe_rate(people: Any) -> float:
    """1 / L, rounded down to one digit: L = max_i lambda_max(X_i' X_i / n_i) / 4 bounds the curvature."""
    curvature = 0.0
    for x, count in zip(np.asarray(people.x), np.asarray(people.count), strict=True):
        rows = x[:count]
        curvature = max(curvature, float(np.linalg.eigvalsh(rows.T @ rows / count)[-1]) / 4)
    rate = 1.0 / max(curvature, 1e-6)
    power = 10.0 ** np.floor(np.log10(rate))
    return float(f"{np.floor(rate / power) * power:.1g}")


def _text(*, table: str, roles: Roles, strength: float, prepare: bool, rate: float, batch: int) -> str:
    frame = {
        "path": (table, ""),
        "label": (roles.label, "column with two classes; 1 is the one people try to avoid"),
        "positive": (roles.positive, "the value of the label that counts as 1"),
        "client": (roles.client, "column that says which client a row belongs to"),
        "strategic": (list(roles.strategic), "columns that people can change"),
        "strength": (strength, "how far they move per unit of the model; 0: they do not react"),
        "ignore": (list(roles.ignore) or None, "columns that are not used"),
        "prepare": (
            prepare or None,
            "text becomes 0/1 columns, missing numbers the median; unlabeled rows are left out",
        ),
    }
    algorithm = {
        "recipe": ("p_fedavg", "or fedvarp, scaffold, profl, ...: `performative schema` lists all"),
        "rate": ({"name": "harmonic", "scale": 50 * rate, "offset": 50}, "step size scale / (offset + t)"),
        "local_steps": (5, "steps per round on each client"),
        "batch": ({"name": "Fixed", "n": batch}, "rows per step"),
        "deploy": ("round", 'people see the model after each round; "step": after each local step'),
    }
    run = {
        "rounds": (200, ""),
        "repeats": (4, "independent runs, side by side"),
        "seed": (0, ""),
        "record": ({"stable": "solve"}, "solve for the stable point, and record the distance to it"),
    }
    return f"""#:schema performative.schema.json
# Editors complete and check this file after: performative schema --out performative.schema.json
title = {_toml(f"Retraining on {Path(table).name}")}

# The people, one row per person. One table cannot show whether they react, or how strongly: try several strengths
# (performative run FILE --set problem.frame.strength=2), or audit your logs (performative audit).
[problem.frame]
{_entries(frame)}

# How the model is retrained. The first steps are 1 / L of the logistic loss on these data, or a little shorter.
[algorithm]
{_entries(algorithm)}
# participation = {{ name = "SchemeTwo", k = 2 }}   # k clients per round; by default all of them

[run]
{_entries(run)}
"""


def _entries(table: dict[str, tuple[Any, str]]) -> str:
    """Lines `key = value  # comment`, with the comments aligned; entries that are None are left out."""
    lines = [(f"{name} = {_toml(value)}", comment) for name, (value, comment) in table.items() if value is not None]
    width = min(max(len(line) for line, _ in lines), 60)
    return "\n".join(f"{line:<{width}}  # {comment}" if comment else line for line, comment in lines)


def _toml(value: Any) -> str:
    """Text, numbers, lists and tables of them on one line; JSON writes all but tables as TOML does."""
    if isinstance(value, dict):
        return f"{{ {', '.join(f'{name} = {_toml(entry)}' for name, entry in value.items())} }}"
    if isinstance(value, float):
        return f"{value:.12g}"
    return json.dumps(value.item() if isinstance(value, np.generic) else value, ensure_ascii=False)
