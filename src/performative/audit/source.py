"""Sources of logs: a folder, a Parquet data set, a DuckDB or SQLite file, a database, or an Ibis table."""

import dataclasses
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import ibis

from performative._base.checks import nearest
from performative.audit.deployments import Deployments, listed_deployments, read_deployments, read_small
from performative.audit.files import FILE, KINDS, ROW, ROWS_OF_A_FILE, Table, embedded, load, open_table, settled
from performative.audit.models import models_of
from performative.audit.people import People
from performative.audit.periods import find_periods
from performative.audit.queries import arrow
from performative.audit.roles import Columns, assign_columns, data_tables
from performative.audit.schema import LogError, Settings, read_settings
from performative.audit.typed import typed_rows

DATABASES = (".duckdb", ".ddb", ".db", ".sqlite", ".sqlite3")
# Tables used if audit.toml names none.
_ROWS, _MODELS = ("data", "decisions", "rows", "logs", "people"), "deployments"


@dataclasses.dataclass(frozen=True, eq=False)
class Source:
    """Logs that were located, before any rows are read.

    Attributes:
        name: the folder, file or database, without a password
        mapping: audit.toml, checked
        tables: the files or the table of rows, with their columns
        connection: Ibis's, to the engine that holds the rows
        folder: base of paths in audit.toml and in tables, None if there is none
        rows: the Ibis table if rows are not files
        listed: the table of deployments if they are not a file
        trust: whether models may be unpickled
        named_table: the database table that contains the rows
    """

    name: str
    mapping: Settings
    tables: list[Table]
    connection: Any
    folder: Path | None = None
    rows: Any = None
    listed: Any = None
    trust: bool = False
    named_table: str | None = None

    @property
    def table(self) -> Any:
        """The raw rows as an Ibis table; several files must share the columns of the first."""
        if self.rows is not None:
            return self.rows
        found = load(self.connection, self.tables, self.tables[0].columns)
        if len(found) == 1:
            return found[0]
        return ibis.union(*found, distinct=False)

    def close(self) -> None:
        """Close the connection."""
        self.connection.disconnect()

    def columns(self, groups: str | None = None) -> Columns:
        """The column for each role."""
        return assign_columns(self.tables, self.mapping, groups)

    def people(self, groups: str | None = None) -> People:
        """The rows by role, and the models they were collected under."""
        columns, settings = self.columns(groups), self.mapping
        raws = [self.rows]
        if self.rows is None:
            wanted = [*columns.numbers, *columns.texts]
            raws = load(self.connection, self.tables, list(dict.fromkeys(wanted)))
        if settings.dated:
            found = find_periods(raws, columns.deployment, settings.every, settings.starts, self.tables[0].name)
            settings = dataclasses.replace(settings, period=found)
        typed, columns = typed_rows(raws, self.tables, columns, settings)
        if any(table.is_csv for table in self.tables):
            typed = self.connection.create_table(ibis.util.gen_name("typed"), typed, temp=True)
        for name in settings.clip:
            if name not in columns.features:
                raise LogError(f"clip: there is no feature {name!r}.{nearest(name, columns.features)}", "audit.toml")
        return People(typed, columns, self._deployments(typed, columns, settings), settings)

    def _deployments(self, typed: Any, columns: Columns, settings: Settings) -> Deployments:
        if settings.model_files or settings.registry or settings.logged_scores:
            return models_of(typed, columns, settings, self.folder, self.trust, self.tables[0].name)
        if self.listed is not None:
            table = Table(settings.models_table or _MODELS, tuple(self.listed.columns))
            return listed_deployments(table, read_small(table, arrow(self.listed)), self.folder, settings)
        if self.folder is None:
            raise LogError(_NO_MODELS, self.name)
        return read_deployments(self.folder, settings)


_NO_MODELS = (
    "the models are missing: provide a table of deployments with theta_<name> ([source] models), or specify under "
    "[models] of audit.toml where they are: files, registry, or scores = true."
)


def open_source(where: Any, *, map: Any = None, trust: bool = False) -> Source:
    """Locate logs and read audit.toml; the rows stay where they are.

    Args:
        where: a folder, a .parquet, .csv, .duckdb or .sqlite file, a URL that Ibis supports (postgres://...), or an
            Ibis table
        map: path of audit.toml if it is not next to the data
        trust: whether models may be unpickled
    """
    file = None if map is None else Path(map)
    if file is not None and not file.is_file():
        raise LogError("there is no such file; it maps columns to roles.", file)
    if hasattr(where, "get_backend"):
        return _of_table(where, file, trust)
    if "://" in str(where):
        return _of_database(str(where), file, trust)
    path = Path(where)
    if path.is_file() and path.suffix in DATABASES:
        return _of_database(path, file, trust)
    if path.is_file() and path.suffix in KINDS:
        settings = read_settings(file or path.parent / "audit.toml")
        table = open_table(path, path.parent, settings.delimiter, settings.decimal)
        return Source(str(path), settings, [table], embedded(), path.parent, trust=trust)
    if not path.is_dir():
        raise LogError(
            "there is no such folder." if not path.exists() else f"this is a file, not a folder, nor one of "
            f"{', '.join((*KINDS, *DATABASES))}.", path,
        )  # fmt: skip
    settings = read_settings(file or path / "audit.toml")
    if settings.table is None and _is_data_set(path):
        return _of_data_set(path, settings, trust)
    if not (settings.model_files or settings.registry or settings.logged_scores):
        read_deployments(path, settings)  # before rows: a folder without models is not a folder of logs
    return Source(str(path), settings, data_tables(path, settings), embedded(), path, trust=trust)


def open_for_look(where: str) -> Source:
    """A source whose audit.toml does not exist yet: DATABASE#TABLE names the table of a database."""
    place, _, table = where.partition("#")
    path = Path(place)
    if "://" in place or (path.is_file() and path.suffix in DATABASES):
        return _of_database(place if "://" in place else path, None, False, Settings(table=table or None))
    if path.is_dir() and not _is_data_set(path):
        return Source(str(path), Settings(), data_tables(path, Settings()), embedded(), path,
                      listed=next(iter(path.glob("deployments.*")), None))  # fmt: skip
    return _of_data_set(path, Settings(), False) if path.is_dir() else open_source(path)


def _is_data_set(folder: Path) -> bool:
    """Whether the folder has Parquet files, partitioned or not, and is not a folder of logs."""
    return not any((folder / f"data{kind}").exists() for kind in (*KINDS, "")) and bool(_partitions(folder))


def _partitions(folder: Path) -> list[Path]:
    return sorted(path for path in folder.rglob("*.parquet") if path != folder / "deployments.parquet")


def _of_data_set(folder: Path, settings: Settings, trust: bool) -> Source:
    connection = embedded()
    paths = ", ".join("'" + str(path).replace("'", "''") + "'" for path in _partitions(folder))
    name = f"substr({FILE}, {len(str(folder)) + 2})"
    rows = connection.sql(
        f"SELECT * EXCLUDE ({FILE}, file_row_number), {name} AS {FILE}, "
        f"(md5_number_lower({name}) % 1048576)::BIGINT * {ROWS_OF_A_FILE} + file_row_number AS {ROW} "
        f"FROM read_parquet([{paths}], filename='{FILE}', file_row_number=true, hive_partitioning=true, "
        "union_by_name=true)"
    )
    columns = tuple(name for name in rows.columns if name not in (FILE, ROW))
    return Source(str(folder), settings, [Table(folder.name, columns)], connection, folder, rows, trust=trust)


def _of_table(table: Any, file: Path | None, trust: bool) -> Source:
    settings = read_settings(file) if file else Settings()
    name = table.get_name() if hasattr(table.op(), "name") else "table"
    connection = table.get_backend()
    listed = None
    if (settings.models_table or _MODELS) in connection.list_tables():
        listed = connection.table(settings.models_table or _MODELS)
    folder = file.parent if file else None
    columns = tuple(c for c in table.columns if c not in (FILE, ROW))
    return Source(name, settings, [Table(name, columns)], connection, folder, table, listed, trust)


def _of_database(where: str | Path, file: Path | None, trust: bool, settings: Settings | None = None) -> Source:
    connection, shown = _connect(where)
    remedy = "Set [source] table = ... in audit.toml" if settings is None else f"Name one, as {shown}#TABLE"
    beside = where.parent / "audit.toml" if isinstance(where, Path) else None
    if settings is None:
        place = file or beside
        settings = read_settings(place) if place else Settings()
    names = connection.list_tables()
    table = settings.table or next((name for name in _ROWS if name in names), None)
    if table is None or table not in names:
        asked = f"there is no table {table!r}.{nearest(table, names)}" if table else "which table contains the rows?"
        raise LogError(f"{asked} {remedy}; there are: {', '.join(names) or 'none'}.", shown)
    models = settings.models_table or _MODELS
    if settings.models_table and models not in names:
        raise LogError(f"[source] models: there is no table {models!r}.{nearest(models, names)}", shown)
    rows = _numbered(connection, table)
    columns = tuple(name for name in rows.columns if name != ROW)
    folder = (file or beside).parent if file or beside else None  # type: ignore[union-attr]  # one of them is there
    listed = connection.table(models) if models in names else None
    return Source(shown, settings, [Table(table, columns)], connection, folder, rows, listed, trust, table)


def _connect(where: str | Path) -> tuple[Any, str]:
    """A connection, and a name for it without a password."""
    if isinstance(where, Path):
        if where.read_bytes()[:15] == b"SQLite format 3":
            return ibis.sqlite.connect(where), str(where)
        return settled(ibis.duckdb.connect(where, read_only=True)), str(where)
    parts = urlsplit(where)
    shown = f"{parts.scheme}://{parts.hostname or ''}{parts.path}"
    url = where.replace("postgresql://", "postgres://", 1)
    try:
        return ibis.connect(url), shown
    except ImportError as error:
        raise LogError(f"the driver of {parts.scheme!r} is not installed: {error}.", shown) from error
    except Exception as error:  # drivers have no common error class; whatever it is, there is no connection
        first = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise LogError(f"no connection: {first.replace(parts.password or chr(0), '***')}", shown) from error


def _numbered(connection: Any, table: str) -> Any:
    """The table with row numbers if the engine has them, so that a sample of rows is reproducible."""
    if connection.name in ("duckdb", "sqlite"):
        rows = connection.table(table)
        try:
            return rows.mutate(**{ROW: rows.rowid()})
        except Exception:  # views have none
            return rows
    if connection.name == "postgres" and table in connection.list_tables():
        name = '"' + table.replace('"', '""') + '"'
        place = "(ctid::text::point)[0]::bigint * 65536 + (ctid::text::point)[1]::bigint"
        try:
            return connection.sql(f"SELECT *, {place} AS {ROW} FROM {name}")
        except Exception:  # views have no ctid
            return connection.table(table)
    return connection.table(table)
