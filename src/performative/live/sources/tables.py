"""A client's own table as a source: rows that do not react, or that react like the problem's population."""

import dataclasses
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from performative.config.member_data import fill_one
from performative.live.sources.deployment import Deployed
from performative.live.telling import TableFailed
from performative.populations import AbstractPopulation
from performative.problem import Problem
from performative.tables.members import MemberTables, TableRefused


@dataclasses.dataclass(frozen=True)
class TableSource:
    """source(client) for a [data]; `folder` is the base of relative paths on this machine."""

    tables: MemberTables
    folder: Path

    def inside(self, folder: str | os.PathLike[str]) -> "TableSource":
        """The same tables, looked up in another folder."""
        return TableSource(self.tables, Path(folder))

    def __call__(self, client: int) -> "ClientTable":
        return ClientTable(self.tables, self.folder, client)


class ClientTable:
    """One client's table. It is opened when the client is asked, and read again only if the file has changed."""

    def __init__(self, tables: MemberTables, folder: Path, client: int):
        self.tables, self.folder, self.client = tables, folder, client
        self._stamp: tuple[int, ...] | None = None
        self._rows: tuple[np.ndarray, np.ndarray] | None = None

    def people(self, deployed: Deployed, problem: Problem) -> AbstractPopulation:
        """The client's rows as a population of one; they replace the problem's placeholder rows."""
        try:
            x, y = self._read()
            people = fill_one(problem.population, self.client, x, y)
            dataclasses.replace(problem, population=people, weights=None)  # the loss checks the labels
            return people
        except TableRefused as error:
            raise TableFailed(error.sentence, str(error)) from error
        except ValueError as error:
            raise TableFailed("the client's rows do not fit the loss or the population", str(error)) from error

    def _read(self) -> tuple[np.ndarray, np.ndarray]:
        path = self.folder / self.tables.file_name(self.client)
        stamp = None
        if self.tables.sql is None and path.is_file():
            now = path.stat()
            stamp = (now.st_ino, now.st_size, now.st_mtime_ns)
        if stamp is None or self._rows is None or stamp != self._stamp:
            self._stamp, self._rows = stamp, self.tables.read(self.client, self.folder)
        return self._rows


def open_source(source: Callable[[int], Any] | None, client: int, data: str | os.PathLike[str] | None = None) -> Any:
    """A client's source, None if the problem's population generates the data. `data`: its folder of tables."""
    if source is None:
        return None
    return source.inside(data)(client) if data is not None and isinstance(source, TableSource) else source(client)
