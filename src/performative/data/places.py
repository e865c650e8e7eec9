"""Locate a data set's files, and read them with checksum verification."""

import gzip
import hashlib
import os
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from performative.data.catalog import DataSet, File, data_set

VARIABLE = "PERFORMATIVE_DATA"
CIFAR_TRAIN = tuple(f"data_batch_{i}" for i in range(1, 6))
CIFAR_TEST = ("test_batch", "test_first_1000")


class NotHereError(FileNotFoundError):
    """A folder or a data set that was not found."""


class ChecksumError(ValueError):
    """A file that is not the published one."""


@dataclass(frozen=True)
class Place:
    """The folder with a data set's files, and how it was found. Only cached files may be removed by the library."""

    folder: Path
    kind: Literal["bundled", "path", "cached"]


def cache_folder() -> Path:
    """$XDG_CACHE_HOME/performative/data, by default below ~/.cache. It need not exist."""
    base = os.environ.get("XDG_CACHE_HOME", "")
    # The XDG specification says to ignore relative paths.
    root = Path(base) if os.path.isabs(base) else Path.home() / ".cache"
    return root / "performative" / "data"


def find(name: str, path: str | Path | None = None) -> Place | None:
    """Find a data set in `path`, in PERFORMATIVE_DATA, bundled, or in the cache; None if it is not available.

    Only file names are checked. If `path` is given, no other place is searched.
    """
    entry = data_set(name)
    if not entry.downloaded:
        import sklearn.datasets

        return Place(Path(sklearn.datasets.__file__).parent / "data", "bundled")
    for label, root in (("path", path), (VARIABLE, os.environ.get(VARIABLE) or None)):
        if root is None:
            continue
        if not Path(root).is_dir():
            raise NotHereError(f"{label}: there is no folder {root}; name the folder that contains the data.")
        if (folder := _inside(entry, Path(root))) is not None:
            return Place(folder, "path")
        if label == "path":
            raise NotHereError(
                f"path: {root} does not contain {name}: expected {expected_files(entry)}, there or in {entry.folder}/. "
                "Omit path to use the cache or a download."
            )
    cached = cache_folder() / entry.folder
    return Place(cached, "cached") if has_files(entry, cached, whole=True) else None


def has_files(entry: DataSet, folder: Path, whole: bool = False) -> bool:
    """Whether a folder contains the files, compressed or not. For CIFAR-10 one batch is enough, unless `whole`.

    In the cache it is not: a download killed between two files must not pass for the whole set.
    """
    if entry.name == "cifar10" and whole:
        return all(batch_file(folder, batch) is not None for batch in (*CIFAR_TRAIN, "test_batch"))
    if entry.name == "cifar10":
        return any(batch_file(folder, batch) is not None for batch in (*CIFAR_TRAIN, *CIFAR_TEST))
    return all(_stored(folder, file.name) is not None for file in entry.files)


def batch_file(folder: Path, batch: str) -> Path | None:
    """A batch of CIFAR-10: the official binary file, or differences in an .npz."""
    for suffix in (".bin", ".npz"):
        if (file := folder / f"{batch}{suffix}").is_file():
            return file
    return None


def expected_files(entry: DataSet) -> str:
    """The expected file names, as text."""
    if entry.name == "cifar10":
        return "data_batch_1.bin .. data_batch_5.bin, test_batch.bin (the official binary version)"
    return ", ".join(file.name for file in entry.files) + " (or .gz)"


def read(place: Place, file: File) -> bytes:
    """Read a file's decompressed content; raise if its sha256 is not the published one."""
    stored = _stored(place.folder, file.name)
    if stored is None:
        raise NotHereError(f"{place.folder / file.name} has disappeared; load the data set again.")
    with refusing(place, stored):
        try:
            content = gzip.decompress(stored.read_bytes()) if stored.suffix == ".gz" else stored.read_bytes()
        except (EOFError, gzip.BadGzipFile, zlib.error) as error:
            raise ChecksumError(f"{stored}: expected a complete gzip file; got a truncated one ({error}).") from None
        check(content, file, str(stored))
    return content


def check(content: bytes, file: File, where: str) -> None:
    """Raise if the content is not the published one."""
    came = hashlib.sha256(content).hexdigest()
    if came not in file.sha256:
        raise ChecksumError(
            f"{where}: expected {file.name} with sha256 {file.sha256[0]} ({file.size} bytes); "
            f"got sha256 {came} ({len(content)} bytes)."
        )


@contextmanager
def refusing(place: Place, stored: Path) -> Iterator[None]:
    """Remove a wrong file from the cache; leave one in a user's folder alone. Either way, say what to do."""
    seen = stored.stat()
    try:
        yield
    except ChecksumError as error:
        if place.kind != "cached":
            raise ChecksumError(f"{error} Put the published file there, or remove the folder.") from None
        with locked(place.folder):
            # Another process may have replaced it with a good one in the meantime.
            if stored.exists() and stored.stat().st_ino == seen.st_ino:
                stored.unlink()
        raise ChecksumError(f"{error} It was removed from the cache: load again to download it again.") from None


@contextmanager
def locked(folder: Path) -> Iterator[None]:
    """Allow one process at a time; the lock is released when its process ends. POSIX only."""
    import fcntl

    folder.mkdir(parents=True, exist_ok=True)
    with open(folder / ".lock", "wb") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def _stored(folder: Path, name: str) -> Path | None:
    for file in (folder / name, folder / f"{name}.gz"):
        if file.is_file():
            return file
    return None


def _inside(entry: DataSet, root: Path) -> Path | None:
    """A data set's subfolder of a folder, or the folder itself, or the one created by CIFAR-10's archive."""
    extra = "cifar-10-batches-bin" if entry.name == "cifar10" else ""
    for folder in (root / entry.folder, root, *((root / entry.folder / extra, root / extra) if extra else ())):
        if has_files(entry, folder):
            return folder
    return None
