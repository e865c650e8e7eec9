"""Batches from a table of a database, a deployment each: rows stay in the engine until their deployment is over."""

from typing import Any

import ibis

from performative.audit.people import People
from performative.audit.queries import arrow, fetch
from performative.audit.reading import opening
from performative.watch.source import AbstractBatches, Found, Given

# Engines whose numbers of rows stay with their rows: there, rows that come late are told from those that were read.
_NUMBERED = ("duckdb", "sqlite")
_ROLES = ("client", "label", "score", "accepted", "group")


class TableBatches(AbstractBatches):
    """The deployments of a table as batches, by the roles that audit.toml gives its columns.

    A deployment is due once a later one has rows: who meets the newest model may still come. Models are those of the
    table of deployments, or as audit.toml says.

    Args:
        where: a .duckdb or .sqlite file, a database's URL, a Parquet data set, or an Ibis table
        map: audit.toml where it does not lie beside the data
        trust: whether models may be unpickled
    """

    def __init__(self, where: Any, map: Any = None, trust: bool = False):
        self.where, self.map, self.trust = where, map, trust
        with opening(where, map, trust) as source:  # what is wrong with it is said at once
            self._name = source.named_table or source.tables[0].name
            source.people()
        self.newest: str | None = None

    @property
    def name(self) -> str:
        return self._name

    def refresh(self) -> None:
        """The connection is made anew at each pass: one that was lost comes back."""

    def found(self) -> list[Found]:
        with opening(self.where, self.map, self.trust) as source:
            people = source.people()
            rows = people.rows.filter(people.rows.known)
            counted = fetch(rows.group_by("deployment").agg(n=rows.count()))
        counts = dict(zip(map(str, counted["deployment"]), map(int, counted["n"]), strict=True))
        there = [name for name in people.deployments.names if counts.get(name)]
        self.newest = there[-1] if there else None
        return [Found(name, (counts[name], 0)) for name in there]

    def settled(self, found: Found) -> bool:
        return found.id != self.newest

    def read(self, found: Found) -> list[Given]:
        with opening(self.where, self.map, self.trust) as source:
            people = source.people()
            frame = arrow(_named(people, found.id, source.connection.name in _NUMBERED)).to_pandas()
        at = people.deployments.names.index(found.id)
        theta = people.deployments.theta[at].tolist()
        about = {"theta": dict(zip(people.deployments.parameters, theta, strict=True)), "deployment": found.id,
                 "time": float(people.deployments.time[at])}  # fmt: skip
        return [Given(found.id, frame, about)]


def _named(people: People, deployment: str, numbered: bool) -> Any:
    """The rows of one deployment, under the names that a watch knows."""
    rows, columns = people.rows, people.columns
    rows = rows.filter(rows.known & (rows.deployment == ibis.literal(deployment)))
    made = {name: rows[f"f{j}"] for j, name in enumerate(columns.features)}
    made |= {role: rows[role] for role in _ROLES if getattr(columns, role) or (role == "accepted" and people.decides)}
    if numbered and people.row is not None:
        made["row"] = rows[people.row]
        return rows.select(**made).order_by("row")
    return rows.select(**made)
