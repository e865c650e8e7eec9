"""Columns of rows by role: their values are checked first, and faults are reported with their location."""

import dataclasses
from collections.abc import Sequence
from typing import Any

import ibis
import numpy as np

from performative.audit.files import FILE, ROW, ROWS_OF_A_FILE, Table, first_fault
from performative.audit.queries import engine_name, fetch
from performative.audit.roles import Columns
from performative.audit.schema import LogError, Settings
from performative.audit.values import flag, is_empty, number, truth, word

_ENCODE = "Encode it as numbers, name it under [categories] or under `ignore` in audit.toml"


def typed_rows(
    raws: Sequence[Any], tables: Sequence[Table], columns: Columns, settings: Settings
) -> tuple[Any, Columns]:
    """One table of all rows, numbers in double precision, the rest as text; and the columns, categories expanded."""
    levels = {name: _levels(raws, name, settings) for name in columns.features if name in settings.categories}
    named = {f"{name}={level}": (name, level) for name in levels for level in levels[name]}
    features = [made for name in columns.features for made in _spelt(name, levels)]
    parts = []
    for raw in raws:
        flags = _checked(raw, tables, columns, settings)
        parts.append(_typed(raw, columns, settings, features, named, flags))
    whole = parts[0] if len(parts) == 1 else ibis.union(*parts, distinct=False)
    return whole, dataclasses.replace(columns, features=tuple(features))


def _spelt(name: str, levels: dict[str, list[str]]) -> list[str]:
    return [f"{name}={level}" for level in levels[name]] if name in levels else [name]


def _levels(raws: Sequence[Any], name: str, settings: Settings) -> list[str]:
    """The most common values of a column, except the most common one, whose share is implied by the others."""
    words = ibis.union(*[raw.select(level=word(raw[name])) for raw in raws], distinct=False) if len(raws) > 1 else (
        raws[0].select(level=word(raws[0][name]))
    )  # fmt: skip
    words = words.filter(words.level.notnull())
    counted = words.group_by("level").agg(n=words.count())
    found = fetch(counted.order_by([ibis.desc("n"), "level"]).limit(settings.levels + 1))["level"].tolist()
    if len(found) > settings.levels:
        raise LogError(
            f"contains more than {settings.levels} distinct values; raise [categories] most, or name it under `ignore` "
            "in audit.toml.", column=name,
        )  # fmt: skip
    return sorted(found[1:]) or found


def refuse_text(raw: Any, tables: Sequence[Table], columns: Sequence[str], settings: Settings) -> None:
    """Refuse columns that contain anything but numbers."""
    features = Columns(tuple(columns), deployment="", client=None, label=None, score=None, accepted=None, group=None)
    _checked(raw, tables, features, dataclasses.replace(settings, categories=()))


def _checked(raw: Any, tables: Sequence[Table], columns: Columns, settings: Settings) -> set[str]:
    """Numeric columns that contain yes and no as text; refuses other text."""
    engine, asked = engine_name(raw), {}
    numbers = [name for name in columns.numbers if name not in settings.categories]
    for j, name in enumerate(numbers):
        column, kind = raw[name], raw[name].type()
        if kind.is_string():
            # Run the slow checks only on text that is not a number.
            lost = column.notnull() & number(column, engine, settings.decimal).isnull()
            asked[f"wrong{j}"] = ibis.ifelse(lost, ~is_empty(column), False).sum()
            asked[f"strange{j}"] = ibis.ifelse(lost, ~is_empty(column) & flag(column).isnull(), False).sum()
        elif not (kind.is_numeric() or kind.is_boolean() or kind.is_null()):
            raise LogError(f"must be numeric; got {kind}. {_ENCODE}.", _name(raw, tables), column=name)
    if columns.accepted:
        accepted = raw[columns.accepted]
        there = ~is_empty(accepted) if accepted.type().is_string() else accepted.notnull()
        asked["undecided"] = (there & flag(accepted, settings.accepted_word).isnull()).sum()
    if not asked:
        return set()
    found = {name: float(np.nan_to_num(values[0])) for name, values in fetch(raw.agg(**asked)).items()}
    flags = set()
    for j, name in enumerate(numbers):
        if found.get(f"wrong{j}"):
            if found[f"strange{j}"] and not (name == columns.label and settings.label_one):
                _refuse_text(raw, name, tables, int(found[f"wrong{j}"]), engine, settings)
            flags.add(name)
    if found.get("undecided"):
        _refuse_decision(raw, columns.accepted or "", tables, settings)
    return flags


def _name(raw: Any, tables: Sequence[Table]) -> str:
    """The file that a table was read from, if there is one."""
    if FILE not in raw.columns or len(tables) == 1:
        return tables[0].name
    return str(fetch(raw.limit(1).select(FILE))[FILE][0])


def _refuse_text(raw: Any, name: str, tables: Sequence[Table], rows: int, engine: str, settings: Settings) -> None:
    where = _name(raw, tables)
    for table in tables:
        if table.name == where and table.is_csv:
            raise first_fault(table, [name]) or LogError(f"must be numeric. {_ENCODE}.", where, column=name)
    column = raw[name]
    bad = raw.filter(~is_empty(column) & number(column, engine, settings.decimal).isnull())
    example = fetch(bad.select(name).limit(1))[name][0]
    raise LogError(
        f"must be numeric; got strings: {rows} rows are not numbers, such as {example!r}. {_ENCODE}.", where,
        column=name,
    )  # fmt: skip


def _refuse_decision(raw: Any, name: str, tables: Sequence[Table], settings: Settings) -> None:
    column = raw[name]
    there = ~is_empty(column) if column.type().is_string() else column.notnull()
    bad = raw.filter(there & flag(column, settings.accepted_word).isnull())
    placed = FILE in raw.columns and ROW in raw.columns
    shown = bad.select(came=column.cast("string"), **{n: raw[n] for n in (FILE, ROW) if placed})
    found = fetch(shown.order_by([FILE, ROW]).limit(1) if placed else shown.limit(1))
    row, where = "", tables[0].name
    if placed:
        table = next(table for table in tables if table.name == found[FILE][0])
        where, row = table.name, table.row(int(found[ROW][0]) % ROWS_OF_A_FILE)
    raise LogError(f"must be 0 or 1; got {found['came'][0]!r}.", where, row, name)


def _typed(
    raw: Any, columns: Columns, settings: Settings, features: Sequence[str], named: dict[str, tuple[str, str]],
    flags: set[str],
) -> Any:  # fmt: skip
    engine = engine_name(raw)
    made: dict[str, Any] = {}
    for name in (*features, *(c for c in (columns.label, columns.score, columns.propensity) if c)):
        if name in named:
            column, level = named[name]
            text = word(raw[column])
            made[name] = truth(text == level)
        elif name == columns.label and (settings.label_one or name in flags):
            made[name] = flag(raw[name], settings.label_one)
        else:
            whole = name in features
            made[name] = flag(raw[name]) if name in flags else number(raw[name], engine, settings.decimal, whole)
    for text_column in (columns.client, columns.group):
        if text_column:
            made[text_column] = word(raw[text_column])
    made[columns.deployment] = settings.period.of(raw) if settings.period else word(raw[columns.deployment])
    if columns.accepted:
        made[columns.accepted] = flag(raw[columns.accepted], settings.accepted_word)
    return raw.select(**made, **{name: raw[name] for name in (FILE, ROW) if name in raw.columns})
