"""Where a data set's files are, and reading them with their checksums."""

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
    """A folder or a data set that is not where it was looked for."""


class ChecksumError(ValueError):
    """A file that is not the published one."""


@dataclass(frozen=True)
class Place:
    """The folder that holds a data set's files, and how it was found. Only what is cached is ours to remove."""

    folder: Path
    kind: Literal["bundled", "path", "cached"]


def cache_folder() -> Path:
    """$XDG_CACHE_HOME/performative/data, by default below ~/.cache. It need not exist."""
    base = os.environ.get("XDG_CACHE_HOME", "")
    # The XDG rules say to ignore a path that is not absolute.
    root = Path(base) if os.path.isabs(base) else Path.home() / ".cache"
    return root / "performative" / "data"


def find(name: str, path: str | Path | None = None) -> Place | None:
    """Where the data set is now: in `path`, in PERFORMATIVE_DATA, bundled, or in the cache; None where it is not here.

    Looks at names alone. `path` given, nowhere else is looked.
    """
    entry = data_set(name)
    if not entry.downloaded:
        import sklearn.datasets

        return Place(Path(sklearn.datasets.__file__).parent / "data", "bundled")
    for label, root in (("path", path), (VARIABLE, os.environ.get(VARIABLE) or None)):
        if root is None:
            continue
        if not Path(root).is_dir():
            raise NotHereError(f"{label}: there is no folder {root}; name the folder that holds the data.")
        if (folder := _inside(entry, Path(root))) is not None:
            return Place(folder, "path")
        if label == "path":
            raise NotHereError(
                f"path: {root} does not hold {name}: expected {expected_files(entry)}, there or in {entry.folder}/. "
                "Leave path out to use the cache or a download."
            )
    cached = cache_folder() / entry.folder
    return Place(cached, "cached") if has_files(entry, cached, whole=True) else None


def has_files(entry: DataSet, folder: Path, whole: bool = False) -> bool:
    """Whether a folder holds the files, compressed or not. Of CIFAR-10 a batch is enough, unless `whole`.

    In the cache it is not: a download that was killed between two files must not pass for the set.
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
    """The names to look for, in words."""
    if entry.name == "cifar10":
        return "data_batch_1.bin .. data_batch_5.bin, test_batch.bin (the official binary version)"
    return ", ".join(file.name for file in entry.files) + " (or .gz)"


def read(place: Place, file: File) -> bytes:
    """A file's content, decompressed; refused where its sha256 is not the published one."""
    stored = _stored(place.folder, file.name)
    if stored is None:
        raise NotHereError(f"{place.folder / file.name} has gone; load the data set again.")
    with refusing(place, stored):
        try:
            content = gzip.decompress(stored.read_bytes()) if stored.suffix == ".gz" else stored.read_bytes()
        except (EOFError, gzip.BadGzipFile, zlib.error) as error:
            raise ChecksumError(f"{stored}: expected a whole gzip file; got one that breaks off ({error}).") from None
        check(content, file, str(stored))
    return content


def check(content: bytes, file: File, where: str) -> None:
    """Refuse content that is not the published one."""
    came = hashlib.sha256(content).hexdigest()
    if came not in file.sha256:
        raise ChecksumError(
            f"{where}: expected {file.name} with sha256 {file.sha256[0]} ({file.size} bytes); "
            f"got sha256 {came} ({len(content)} bytes)."
        )


@contextmanager
def refusing(place: Place, stored: Path) -> Iterator[None]:
    """A wrong file in the cache is removed; one in a folder of the user's is left alone. Either way, say what to do."""
    seen = stored.stat()
    try:
        yield
    except ChecksumError as error:
        if place.kind != "cached":
            raise ChecksumError(f"{error} Put the published file there, or take the folder away.") from None
        with locked(place.folder):
            # Another process may have removed it and put a good one in its place since.
            if stored.exists() and stored.stat().st_ino == seen.st_ino:
                stored.unlink()
        raise ChecksumError(f"{error} It was removed from the cache: load again to download it again.") from None


@contextmanager
def locked(folder: Path) -> Iterator[None]:
    """One process at a time; the lock goes with the process that holds it. POSIX alone."""
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
    """The folder of a data set in a folder of many, or that folder itself, or the one that CIFAR-10's archive makes."""
    extra = "cifar-10-batches-bin" if entry.name == "cifar10" else ""
    for folder in (root / entry.folder, root, *((root / entry.folder / extra, root / extra) if extra else ())):
        if has_files(entry, folder):
            return folder
    return None
