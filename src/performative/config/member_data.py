"""[data]: a problem whose rows stay with the members, and the same problem when all rows are available."""

import dataclasses
from pathlib import Path
from typing import Any

import jax
import numpy as np

from performative._base.client_axis import client_axes
from performative.config.build import Builder
from performative.config.errors import ConfigError, blame, shown
from performative.losses import Logistic
from performative.partition import pad_tables
from performative.populations import AbstractPopulation
from performative.problem import Problem
from performative.tables.members import MemberTables, TableRefused


def read_members(builder: Builder, table: dict[str, Any], problem: dict[str, Any]) -> tuple[MemberTables, Problem]:
    """The record of [data], and the problem with zeros instead of people's rows: all that a server knows."""
    tables: MemberTables = builder.call(MemberTables, table, "data")
    settled = [name for name in ("frame", "case") if name in problem]
    if settled:
        raise ConfigError(f"both [data] and {settled[0]} provide the rows; keep one of them.", f"problem.{settled[0]}")
    given = problem.get("population", "Static")
    given = {"name": given} if isinstance(given, str) else given
    if not isinstance(given, dict):
        raise ConfigError(f'expected a population such as "Static"; got {shown(given)}.', "problem.population")
    twice = [name for name in ("x", "y", "count") if name in given]
    if twice:
        raise ConfigError(f"[data] provides {twice[0]}; remove it.", "problem.population")
    zero = 0.0 if tables.labels == "real" else 0
    rows = {"x": [[[0.0] * tables.width]] * tables.count, "y": [[zero]] * tables.count}
    population = {**given, **_columns(given, tables), **rows}
    with blame("problem.population"):
        made = builder.call(Problem, {**problem, "population": population}, "problem", leave_out=("columns",))
    kind = type(made.population)
    if "count" not in {field.name for field in dataclasses.fields(kind)}:
        raise ConfigError(f'{kind.__name__} has no rows; use "Static" or "Strategic".', "problem.population")
    x = np.zeros((tables.count, tables.rows, tables.width))
    y = np.zeros((tables.count, tables.rows), np.float64 if tables.labels == "real" else np.int32)
    loss = made.loss
    if tables.intercept and isinstance(loss, Logistic) and loss.intercept is None:
        loss = dataclasses.replace(loss, intercept=tables.width - 1)  # it is never penalized, as in from_frame
    stand_in = dataclasses.replace(made.population, x=x, y=y, count=np.full(tables.count, tables.rows))
    return tables, dataclasses.replace(made, loss=loss, population=stand_in, columns=tables.described)


def _columns(given: dict[str, Any], tables: MemberTables) -> dict[str, Any]:
    """The indices of the columns that people can change; never the intercept."""
    if given.get("name") != "Strategic":
        return {}
    wanted = given.get("features", tables.features)
    if not isinstance(wanted, list) or not set(wanted) <= set(tables.features):
        raise ConfigError(f"expected names among data.features; got {shown(wanted)}.", "problem.population.features")
    return {"features": [tables.features.index(name) for name in wanted]}


def fill_all(problem: Problem, tables: MemberTables, folder: Path) -> Problem:
    """The problem with the rows of all members, for a simulation with access to their files."""
    found = []
    for client in range(tables.count):
        try:
            found.append(tables.read(client, folder))
        except TableRefused as error:
            raise ConfigError(f"client {tables.name(client)}: {error}", "data") from error
    x, count = pad_tables([x for x, _ in found])
    y, _ = pad_tables([y for _, y in found], labels=tables.labels == "whole")
    stand_in: Any = problem.population  # whose rows are replaced
    with blame("data"):
        return dataclasses.replace(problem, population=dataclasses.replace(stand_in, x=x, y=y, count=count))


def fill_one(stand_in: AbstractPopulation, client: int, x: np.ndarray, y: np.ndarray) -> AbstractPopulation:
    """The population of a single member, with its own rows and its reaction as set in the shared file."""
    mine = jax.tree.map(
        lambda leaf, axis: leaf if axis is None else leaf[client : client + 1],
        stand_in,
        client_axes(stand_in),
        is_leaf=lambda leaf: leaf is None,
    )
    people: AbstractPopulation = dataclasses.replace(mine, x=x[None], y=y[None], count=np.asarray([len(x)]))
    return people
