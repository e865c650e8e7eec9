"""Sources of batches: files of a folder, sequentially as they appear."""

import dataclasses
import re
from abc import ABC, abstractmethod
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from performative._base.checks import nearest

KINDS = (".csv", ".parquet")
_DEPLOYMENTS = "deployments"


@dataclasses.dataclass(frozen=True)
class Found:
    """A possible batch: its id, a signature that changes when it does, and its path if it is a file."""

    id: str
    signature: tuple[int, int]
    path: Path | None = None


@dataclasses.dataclass(frozen=True, eq=False)
class Given:
    """A batch to take in: rows, and the other arguments of `Watch.update`."""

    id: str
    rows: Any
    about: dict[str, Any] = dataclasses.field(default_factory=dict)


class AbstractBatches(ABC):
    """A place where batches appear."""

    @property
    @abstractmethod
    def name(self) -> str:
        """Its name, without a password."""

    @abstractmethod
    def refresh(self) -> None:
        """Before a pass: reload what all batches share."""

    @abstractmethod
    def found(self) -> list[Found]:
        """All batches that are there, in order."""

    @abstractmethod
    def settled(self, found: Found) -> bool:
        """Whether a batch that was not read yet is complete."""

    @abstractmethod
    def read(self, found: Found) -> list[Given]:
        """Read it as one or more batches."""


def in_order(name: str) -> tuple[Any, ...]:
    """Sort key that orders numbers in names numerically: batch-2 before batch-10."""
    return tuple((1, int(part), "") if part.isdigit() else (0, 0, part) for part in re.split(r"(\d+)", name) if part)


def list_batches(place: Path) -> list[Found]:
    """Files of rows, sorted by name; hidden files and files being written (.part) are skipped."""
    if not place.exists():
        raise ValueError(f"{place}: there is no such folder or file; name one that contains batches.")
    if place.is_file():
        paths = [place]
    else:
        inside = place / "data" if (place / "data").is_dir() else place
        paths = [path for path in inside.iterdir() if path.suffix in KINDS and not path.name.startswith(".")]
        paths = [path for path in paths if path.stem != _DEPLOYMENTS]
    found = []
    for path in sorted(paths, key=lambda path: in_order(path.name)):
        try:
            status = path.stat()
        except OSError:  # gone since it was listed
            continue
        found.append(Found(path.name, (status.st_size, status.st_mtime_ns), path))
    return found


def read_rows(path: Path) -> Any:
    """Read one file as a table. For another source of rows, write another function with this signature."""
    import pyarrow.csv as pc
    import pyarrow.parquet as pq

    if path.suffix == ".parquet":
        return pq.read_table(path)
    if path.suffix == ".csv":
        return pc.read_csv(path)
    raise ValueError(f"{path.name}: only {' and '.join(KINDS)} are read.{nearest(path.suffix, KINDS)}")


class Models:
    """deployments.csv or .parquet next to the batches, as in an audit: reloaded whenever it changes."""

    def __init__(self, folder: Path):
        self.folder = folder
        self.file = f"{_DEPLOYMENTS}{KINDS[0]}"
        self.signature: tuple[int, int] | None = None
        self.theta: dict[str, dict[str, float]] = {}
        self.time: dict[str, Any] = {}

    def refresh(self) -> None:
        """Reload the file; if it cannot be read, keep what was known."""
        path = next((p for kind in KINDS if (p := self.folder / f"{_DEPLOYMENTS}{kind}").is_file()), None)
        if path is None:
            return
        status = path.stat()
        signature = (status.st_size, status.st_mtime_ns)
        if signature == self.signature:
            return
        frame = read_rows(path).to_pandas()
        if "deployment" not in frame:
            return
        names = [name for name in frame.columns if name.startswith("theta_")]
        keys = frame["deployment"].astype(str).str.strip()
        for key, row in zip(keys, frame[names].to_dict("records"), strict=True):
            self.theta[key] = {name.removeprefix("theta_"): value for name, value in row.items()}
        if "time" in frame:
            self.time = dict(zip(keys, frame["time"].tolist(), strict=True))
        self.file, self.signature = path.name, signature

    def complete(self, rows: Any) -> Any:
        """Add the columns theta_<name> and time of their deployments to rows that lack them."""
        frame = rows.to_pandas() if hasattr(rows, "to_pandas") else rows
        if "deployment" not in frame or not self.theta or any(name.startswith("theta_") for name in frame.columns):
            return frame
        keys = frame["deployment"].astype(str).str.strip()
        unknown = sorted(set(keys) - set(self.theta))
        if unknown:
            raise ValueError(f"deployment {unknown[0]!r} is not in {self.file}.{nearest(unknown[0], self.theta)}")
        parameters = next(iter(self.theta.values()))
        frame = frame.assign(**{f"theta_{name}": [self.theta[key][name] for key in keys] for name in parameters})
        return frame if "time" in frame or not self.time else frame.assign(time=[self.time[key] for key in keys])


def split_table(path: Path) -> Iterator[tuple[str, Any]]:
    """Split the rows of one file by their column `deployment`, in order of appearance: (id, rows)."""
    frame = read_rows(path).to_pandas()
    if "deployment" not in frame:
        yield path.name, frame
        return
    for name in dict.fromkeys(frame["deployment"].astype(str)):
        yield f"{path.name}/{name}", frame[frame["deployment"].astype(str) == name]


class FileBatches(AbstractBatches):
    """A folder of CSV and Parquet files, one batch each; or one file, split into batches by its column `deployment`.

    A file is complete once its size and time are the same in two listings.
    """

    def __init__(self, place: Path):
        self.place = place
        self.models = Models(place if place.is_dir() else place.parent)
        self.growing: dict[str, tuple[int, int]] = {}

    @property
    def name(self) -> str:
        return self.place.name

    def refresh(self) -> None:
        self.models.refresh()

    def found(self) -> list[Found]:
        return list_batches(self.place)

    def settled(self, found: Found) -> bool:
        if self.growing.get(found.id) == found.signature:
            self.growing.pop(found.id, None)
            return True
        self.growing[found.id] = found.signature
        return False

    def read(self, found: Found) -> list[Given]:
        assert found.path is not None
        if self.place.is_file():
            return [Given(id, self.models.complete(rows)) for id, rows in split_table(found.path)]
        return [Given(found.id, self.models.complete(read_rows(found.path)))]
