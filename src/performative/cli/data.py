"""`performative data list|get|path`."""

from typing import Annotated, Any

import typer

from performative.cli.output import EXIT_CODES, Exit, Failure, Json, failing, reporting

data = typer.Typer(
    name="data",
    help="List, locate and download data sets.",
    epilog=EXIT_CODES,
    no_args_is_help=True,
)


@data.command("list", epilog=EXIT_CODES)
def list_sets(as_json: Json = False) -> None:
    """List the data sets with their size, license and location."""
    with reporting(as_json) as reporter:
        from rich.table import Table

        from performative.data.catalog import data_sets
        from performative.data.places import has_files

        grid = Table(show_edge=False, pad_edge=False)
        for column in ("name", "rows x columns", "license", "where"):
            grid.add_column(column, no_wrap=column in ("name", "where"))
        rows = []
        for name, entry in data_sets().items():
            place = _find(name)
            where = place.kind if place else "not here"
            complete = place is not None and has_files(entry, place.folder, whole=True)
            part = ", partial" if place and not complete else ""
            grid.add_row(name, " x ".join(f"{n:,}" for n in entry.shape), entry.license, where + part)
            told = {key: getattr(entry, key) for key in ("title", "shape", "license", "source")}
            path = str(place.folder) if place else None
            rows.append({"name": name, **told, "where": where, "complete": complete, "path": path})
        reporter.show(grid)
        reporter.result({"status": "completed", "sets": rows})


@data.command("get", epilog=EXIT_CODES)
def get_set(name: Annotated[str, typer.Argument(help="The data set.")], as_json: Json = False) -> None:
    """Download a data set unless it is already here, check it, and print its folder."""
    with reporting(as_json) as reporter:
        from performative import data as sets
        from performative.data.catalog import data_set

        with failing():
            data_set(name)
        if name not in sets.DATA_SETS:
            raise Failure(f"{name} comes from an installed package; load it with that package.", Exit.BAD_INPUT)
        with failing((sets.NotHereError,), (sets.ChecksumError, sets.DownloadError)):
            place = sets.get(name)
            # Loading checks the files.
            table = getattr(sets, name)(**({"split": "all"} if name in _SPLIT else {}))
        reporter.path("path", place.folder)
        if not table.complete:
            reporter.show(f"partial: {len(table):,} of {sets.DATA_SETS[name].shape[0]:,} rows.")
        told = {"name": name, "where": place.kind, "path": str(place.folder)}
        reporter.result({"status": "completed", **told, "rows": len(table), "complete": table.complete})


@data.command("path", epilog=EXIT_CODES)
def show_path(
    name: Annotated[str | None, typer.Argument(help="The data set; by default, the cache.")] = None,
    as_json: Json = False,
) -> None:
    """Print the folder of a data set, or of the cache. Downloads nothing."""
    with reporting(as_json) as reporter:
        from performative.data import cache_folder

        if name is None:
            folder, where = cache_folder(), "cache"
        else:
            place = _find(name)
            if place is None:
                raise Failure(f"{name} is not here; download it with `performative data get {name}`.", Exit.FAILED)
            folder, where = place.folder, place.kind
        reporter.path("path", folder)
        reporter.result({"status": "completed", "name": name, "where": where, "path": str(folder)})


_SPLIT = ("adult", "fashion_mnist", "cifar10")


def _find(name: str) -> Any:
    from performative.data import NotHereError, find

    with failing((ValueError, NotHereError)):
        return find(name)
