"""Batches from a database table, one per deployment: rows stay in the engine until their deployment is over."""

from typing import Any

import ibis

from performative.audit.people import People
from performative.audit.queries import arrow, fetch
from performative.audit.reading import opening
from performative.watch.source import AbstractBatches, Found, Given

# Engines with stable row numbers, which distinguish late rows from those already read.
_NUMBERED = ("duckdb", "sqlite")
_ROLES = ("client", "label", "score", "accepted", "group")


class TableBatches(AbstractBatches):
    """The deployments of a table as batches, with column roles from audit.toml.

    A deployment is complete once a later one has rows: the newest may still get more. Models come from the table of
    deployments, or as specified in audit.toml.

    Args:
        where: a .duckdb or .sqlite file, the URL of a database, a Parquet data set, or an Ibis table
        map: path of audit.toml if it is not next to the data
        trust: whether models may be unpickled
    """

    def __init__(self, where: Any, map: Any = None, trust: bool = False):
        self.where, self.map, self.trust = where, map, trust
        with opening(where, map, trust) as source:  # report faults immediately
            self._name = source.named_table or source.tables[0].name
            source.people()
        self.newest: str | None = None

    @property
    def name(self) -> str:
        return self._name

    def refresh(self) -> None:
        """Nothing to do: each pass opens a new connection, so a lost one recovers."""

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
    """The rows of one deployment, under the names that a watch uses."""
    rows, columns = people.rows, people.columns
    rows = rows.filter(rows.known & (rows.deployment == ibis.literal(deployment)))
    made = {name: rows[f"f{j}"] for j, name in enumerate(columns.features)}
    made |= {role: rows[role] for role in _ROLES if getattr(columns, role) or (role == "accepted" and people.decides)}
    if numbered and people.row is not None:
        made["row"] = rows[people.row]
        return rows.select(**made).order_by("row")
    return rows.select(**made)
