"""The files of rows, and the role of each of their columns."""

import dataclasses
from pathlib import Path

from performative._base.checks import nearest
from performative.audit.files import KINDS, Table, open_table
from performative.audit.schema import LogError, Settings

INDEX = ("", "Unnamed: 0", "__index_level_0__")


@dataclasses.dataclass(frozen=True)
class Columns:
    """The column for each role; None if there is none. `passed` are columns ignored by default."""

    features: tuple[str, ...]
    deployment: str
    client: str | None
    label: str | None
    score: str | None
    accepted: str | None
    group: str | None
    propensity: str | None = None
    passed: tuple[str, ...] = ()

    @property
    def numbers(self) -> list[str]:
        return [*self.features, *(c for c in (self.label, self.score, self.propensity) if c)]

    @property
    def texts(self) -> list[str]:
        return [c for c in (self.deployment, self.client, self.accepted, self.group) if c]


def data_tables(folder: Path, settings: Settings) -> list[Table]:
    """The files of rows, sorted by name."""
    single = [folder / f"data{kind}" for kind in KINDS if (folder / f"data{kind}").is_file()]
    inside = sorted(p for p in (folder / "data").rglob("*") if p.suffix in KINDS) if (folder / "data").is_dir() else []
    if len(single) + bool(inside) > 1:
        found = [p.name for p in single] + (["data/"] if inside else [])
        raise LogError(f"there are rows in more than one place: {', '.join(found)}; keep one.", folder)
    if not single and not inside:
        raise LogError("needs rows of people: data/*.csv, data/*.parquet, data.csv or data.parquet.", folder)
    return [open_table(path, folder, settings.delimiter, settings.decimal) for path in single or inside]


def assign_columns(tables: list[Table], settings: Settings, groups: str | None) -> Columns:
    """Assign roles by name; columns without a role are features. All files must agree."""
    first, names = tables[0], settings.names
    found: dict[str, str | None] = {}
    for role in ("client", "label", "score", "accepted", "group", "propensity"):
        asked = groups if role == "group" and groups else names[role]
        if asked != role or (role == "group" and groups):
            first.require(asked)
        found[role] = asked if asked in first.columns else None
    # If dates define the deployments, the time column determines which one a row belongs to.
    key = names["time"] if settings.dated else names["deployment"]
    first.require(key)
    taken = {*names.values(), *found.values(), *settings.ignore}
    for name in (*(settings.features or ()), *settings.categories):
        first.require(name)
    spare = names["group"] if groups and groups != names["group"] else None
    # An index column written by pandas looks like a numeric feature but is not one.
    aside = {names["time"], names["scoring"], spare} - {key}
    passed = tuple(c for c in first.columns if c in INDEX or c in aside)
    features = settings.features or tuple(c for c in first.columns if c not in taken and c not in INDEX)
    if not features:
        raise LogError(f"there are no features: all columns ({', '.join(first.columns)}) have a role.", first.name)
    columns = Columns(features=tuple(c for c in features if c != groups), deployment=key, **found, passed=passed)
    for table in tables[1:]:
        for name in (*columns.numbers, *columns.texts):
            if name not in table.columns:
                near = nearest(name, table.columns)
                raise LogError(f"there is no column {name!r}, which {first.name} has.{near}", table.name)
        extra = [c for c in table.columns if c not in (*first.columns, *taken, *INDEX)]
        if extra and not settings.features:
            raise LogError(
                f"is not in {first.name}; name it under `ignore` in audit.toml.", table.name, column=extra[0]
            )
    return columns
