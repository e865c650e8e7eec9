"""Atomic file writes, tamper detection, and locks for one process at a time."""

import contextlib
import functools
import hashlib
import os
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

# A sealed file: this marker, the sha256 of the content, and the content.
_SEAL = b"PFS1"
_DIGEST = 32
# Attempts before a lock counts as held: another process may only be testing it.
_TRIES, _PAUSE = 10, 0.05


def read_target(path: str | os.PathLike[str], what: str) -> Path:
    """The path of a file to write; raises if it is a folder, or its folder does not exist."""
    target = Path(path)
    if target.is_dir() or not target.absolute().parent.is_dir():
        wrong = "this is a folder" if target.is_dir() else f"there is no folder {target.absolute().parent}"
        raise ValueError(f"path={str(target)!r}: {wrong}; give the name of {what} to write.")
    return target


def write_by(path: Path, write: Callable[[Any], object], private: bool = False) -> None:
    """Write to a temporary file, flush to disk, rename, and flush the containing folder.

    A `private` file is never readable by other users.
    """
    part = path.with_name(f".{path.name}.part")
    if private:  # an existing file may be readable by others
        part.unlink(missing_ok=True)
    opener = functools.partial(os.open, mode=0o600 if private else 0o666)
    try:
        with open(part, "xb" if private else "wb", opener=opener) as file:
            write(file)
            file.flush()
            os.fsync(file.fileno())
        os.replace(part, path)
    except Exception:
        part.unlink(missing_ok=True)
        raise
    folder = os.open(path.parent, os.O_RDONLY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)


def write_whole(path: Path, content: bytes, private: bool = False) -> None:
    """The same for bytes already in memory."""
    write_by(path, lambda file: file.write(content), private)


class Damaged(ValueError):
    """A file does not contain the bytes that were written."""


def write_sealed(path: Path, content: bytes, private: bool = False) -> None:
    """Write atomically, with a digest in front."""
    write_whole(path, _SEAL + hashlib.sha256(content).digest() + content, private)


def read_sealed(path: Path) -> bytes:
    """Read what `write_sealed` wrote; raises `Damaged` if a single bit has changed."""
    stored = path.read_bytes()
    digest, content = stored[len(_SEAL) : len(_SEAL) + _DIGEST], stored[len(_SEAL) + _DIGEST :]
    if not stored.startswith(_SEAL) or hashlib.sha256(content).digest() != digest:
        raise Damaged(f"{path} was altered or damaged since it was written: its digest does not match.")
    return content


def digest_of(content: bytes) -> str:
    """sha256 in hexadecimal."""
    return hashlib.sha256(content).hexdigest()


@contextlib.contextmanager
def in_turn(folder: Path) -> Iterator[None]:
    """Wait for the folder's lock and hold it, whichever process or thread has it now."""
    import fcntl

    with open(folder / "lock", "a") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


@contextlib.contextmanager
def only_one(folder: Path, refusal: str) -> Iterator[None]:
    """Hold the folder's lock, or raise ValueError with `refusal`.

    The operating system releases the lock when the process ends, however it ends, so no lock outlives its owner. On
    systems without such locks, nothing is locked.
    """
    folder.mkdir(parents=True, exist_ok=True)
    try:
        import fcntl
    except ImportError:  # not a POSIX system
        yield
        return
    with open(folder / "lock", "a+") as file:
        for left in reversed(range(_TRIES)):
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                if not left:
                    file.seek(0)
                    owner = file.read(20).strip()
                    raise ValueError(refusal + (f" (process {owner})" if owner.isdigit() else "")) from None
                time.sleep(_PAUSE)
        file.truncate(0)
        file.write(str(os.getpid()))
        file.flush()
        yield
