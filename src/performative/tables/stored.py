"""Tables of client data that are not arrays of floats: on disk, or packed into bytes.

They stand in a population's table fields (`pf.populations.Static(x=pf.tables.OnDisk("x.npy"), y=labels)`) and go
through every executor like arrays do. What a step costs in memory is the rows that it looks at.
"""

import dataclasses
import functools
import itertools
import math
import os
from collections.abc import Iterable
from pathlib import Path
from typing import Any, BinaryIO

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import DTypeLike
from jaxtyping import Array, Int

from performative._base.arguments import checked
from performative._base.checks import check_counts, check_finite, check_number, given
from performative._base.files import read_target, write_by
from performative.types import AbstractTable, ArrayLike, Counts, Numbers, as_array, as_numbers, number

__all__ = ["OnDisk", "Packed", "write"]

# Bytes read by one call to the system, and looked through at once by a check.
_BLOCK = 1 << 26
# Stands after the array in files of `write`, before the clients' numbers of rows; NumPy does not read that far.
_COUNTS = b"rows of each client"


@dataclasses.dataclass(frozen=True)
class RowFile:
    """A .npy file [N, m, ...] as it is now. It is part of compiled programs: a file that changes is another one.

    Descriptions tell it by its size and the time of its last change, not by its place: it may be moved.
    """

    path: Path  # not a string: `describe` then says only that there is one
    shape: tuple[int, ...]
    dtype: str
    offset: int
    size: int
    modified: int

    @functools.cached_property
    def width(self) -> int:
        """Bytes of one row."""
        return math.prod(self.shape[2:]) * np.dtype(self.dtype).itemsize

    def read(self, client: ArrayLike, sample: ArrayLike) -> np.ndarray:
        """Rows `sample` of clients `client` (whole numbers from 0 that broadcast), as they are stored.

        Each row is read once, in the order of the file; neighbors are read together. Reading, unlike a mapping of the
        file into memory, leaves nothing behind in the process, and a file cut short is an error, not a crash.
        """
        place = np.asarray(np.asarray(client, np.int64) * self.shape[1] + np.asarray(sample))
        each, back = np.unique(place, return_inverse=True)
        got = self._load(each)
        ordered = np.array_equal(each, place.ravel())
        return got.reshape(*place.shape, *self.shape[2:]) if ordered else got[back.reshape(place.shape)]

    def _load(self, rows: np.ndarray) -> np.ndarray:
        """Different rows of the file [N * m, ...], in ascending order."""
        out = np.empty((len(rows), *self.shape[2:]), self.dtype)
        flat = out.reshape(len(rows), self.width // out.itemsize)
        # A piece starts where the row before is not the neighbor, and again after every so many bytes.
        starts = np.arange(len(rows)) % max(1, _BLOCK // self.width) == 0
        starts[1:] |= rows[1:] != rows[:-1] + 1
        first = np.flatnonzero(starts)
        offsets = (self.offset + rows[first] * self.width).tolist()
        cuts = [*first.tolist(), len(rows)]
        pieces = [flat[a:b] for a, b in itertools.pairwise(cuts)]
        file = os.open(self.path, os.O_RDONLY)
        try:
            now = os.fstat(file)
            if (now.st_size, now.st_mtime_ns) != (self.size, self.modified):
                raise RuntimeError(
                    f"{self.path} has changed since the table was made; make it again by pf.tables.OnDisk(path)."
                )
            if hasattr(os, "posix_fadvise"):  # all are asked for at once, so that a disk works on many at a time
                for piece, offset in zip(pieces, offsets, strict=True):
                    os.posix_fadvise(file, offset, piece.nbytes, os.POSIX_FADV_WILLNEED)
            got = sum(map(os.preadv, itertools.repeat(file), zip(pieces, strict=True), offsets))
        finally:
            os.close(file)
        if got != out.nbytes:
            raise OSError(f"{self.path}: {out.nbytes} bytes were to be read, {got} came; was the file cut short?")
        return out

    def read_count(self) -> np.ndarray | None:
        """Rows that `write` was given of each client, which stand behind the table; None where another wrote it."""
        end = self.offset + math.prod(self.shape) * np.dtype(self.dtype).itemsize
        with open(self.path, "rb") as file:
            file.seek(end)
            if file.read(len(_COUNTS)) != _COUNTS:
                return None
            return np.frombuffer(file.read(4 * self.shape[0]), "<i4")


def open_rows(path: str | os.PathLike[str]) -> RowFile:
    """What the header of a .npy file says, checked against the file."""
    place = Path(path).absolute()
    if not place.is_file():
        raise FileNotFoundError(f"OnDisk: path={str(path)!r} is no file; pf.tables.write makes one.")
    with open(place, "rb") as file:
        try:
            version = np.lib.format.read_magic(file)
            read_header = {(1, 0): np.lib.format.read_array_header_1_0, (2, 0): np.lib.format.read_array_header_2_0}
            shape, fortran, dtype = read_header[version](file)
        except (ValueError, KeyError) as error:
            raise ValueError(
                f"OnDisk: path={str(path)!r} must be a .npy file, as pf.tables.write or np.save makes it; {error}."
            ) from error
        offset, now = file.tell(), os.fstat(file.fileno())
    if dtype.kind not in "buif" or dtype.itemsize > 8:
        raise ValueError(f"OnDisk: {place.name} must hold numbers of up to 64 bits; it holds {dtype}.")
    if len(shape) < 2 or 0 in shape:
        raise ValueError(f"OnDisk: {place.name} must be [clients, rows, ...], none of them 0; it is {shape}.")
    if fortran:
        raise ValueError(
            f"OnDisk: {place.name} is in Fortran's order, so that no row lies in one piece; use order 'C'."
        )
    needed = offset + math.prod(shape) * dtype.itemsize
    if now.st_size < needed:
        raise ValueError(
            f"OnDisk: {place.name} is cut short: {shape} of {dtype} need {needed} bytes, it has {now.st_size}. "
            "Write it again."
        )
    return RowFile(place, shape, dtype.str, offset, now.st_size, now.st_mtime_ns)


def read_scale(owner: str, scale: ArrayLike | None) -> Any:
    """One number, or None."""
    check_number(owner, **given(scale=scale))
    return as_numbers(scale)


def as_scaled(raw: Array, scale: Numbers | None) -> Array:
    """What is stored, as numbers of the run: scale * raw; without a scale whole numbers stay whole."""
    dtype = read_dtype(raw.dtype, scale)
    return raw.astype(dtype) if scale is None else raw.astype(dtype) * jnp.asarray(scale, dtype)


def read_dtype(stored: DTypeLike, scale: Numbers | None) -> np.dtype:
    """The dtype of the rows that such a table gives: int32, or the floats of the run."""
    whole = scale is None and np.dtype(stored).kind in "bui"
    return np.dtype(np.int32) if whole else np.dtype(jnp.result_type(float))


class OnDisk(AbstractTable):
    """Client data in a .npy file [N, m, ...] that need not fit into memory: only rows that are looked up are read.

        x[i, j] = scale * file[i, j]

    A local step of all its clients is one read on the host, sorted by place. Rows travel to the device as they are
    stored (uint8 images as bytes). Without `scale`, whole numbers are labels where labels are asked for (int32), and
    numbers elsewhere. The file must stay as it is: one that changed is refused when it is read.
    NaN, infinity and wrong labels in it are not noticed, since that takes reading it all; check=True does so for NaN
    and infinity. Whatever goes over all rows (`risk` of a run, `Whole()`) reads all rows.
    `pf.tables.write` makes such a file. Not for populations that rearrange their rows when they are made.
    """

    file: RowFile = eqx.field(static=True)
    client: Counts  # which client's rows these are: [N] for the table of all, a number after it has been sliced
    scale: Numbers | None

    @checked
    def __init__(self, path: str | os.PathLike[str], scale: ArrayLike | None = None, check: bool = False):
        self.file = open_rows(path)
        self.client = np.arange(self.file.shape[0], dtype=np.int32)
        self.scale = read_scale("OnDisk", scale)
        if check and np.dtype(self.file.dtype).kind == "f":
            _check_rows(self.file)

    @property
    def path(self) -> Path:
        return self.file.path

    @property
    def count(self) -> Int[np.ndarray, " N"] | None:
        """How many rows of each client were written, where `pf.tables.write` did; the others are padding."""
        return self.file.read_count() if np.ndim(self.client) else None

    @property
    def shape(self) -> tuple[int, ...]:
        return (*np.shape(self.client), *self.file.shape[1:])

    @property
    def dtype(self) -> np.dtype:
        return read_dtype(self.file.dtype, self.scale)

    def __getitem__(self, sample: ArrayLike | slice) -> Array:
        if np.ndim(self.client):
            raise TypeError(
                "OnDisk: only one client's table is indexed, by sample, which is what a population's methods see; "
                'np.load(path, mmap_mode="r") looks at the file.'
            )
        sample = jnp.arange(self.file.shape[1])[sample] if isinstance(sample, slice) else sample
        sample, rows = jnp.asarray(sample, jnp.int32), self.file.shape[1]
        sample = jnp.clip(jnp.where(sample < 0, sample + rows, sample), 0, rows - 1)  # as arrays do
        # One argument, since each that goes to the host costs as much as reading some twenty rows.
        place = jnp.stack(jnp.broadcast_arrays(jnp.asarray(self.client, jnp.int32), sample), axis=-1)
        stored = np.dtype(self.file.dtype).newbyteorder("=")
        wanted = stored if stored.itemsize <= 4 else self.dtype
        read, shape = functools.partial(_fetch, self.file, wanted), (*sample.shape, *self.file.shape[2:])
        # The host's thread may not know that this one allows 64 bits, so they travel as two halves.
        halves = wanted.itemsize == 8
        sent = jax.ShapeDtypeStruct((*shape, 2), np.uint32) if halves else jax.ShapeDtypeStruct(shape, wanted)
        raw = jax.pure_callback(read, sent, place, vmap_method="expand_dims")
        return as_scaled(jax.lax.bitcast_convert_type(raw, wanted) if halves else raw, self.scale)


def _fetch(file: RowFile, dtype: np.dtype, place: ArrayLike) -> np.ndarray:
    """Runs inside of a compiled program: NumPy only, since JAX called from here can wait for itself."""
    place = np.asarray(place)
    rows = file.read(place[..., 0], place[..., 1]).astype(dtype, copy=False)
    return rows[..., None].view(np.uint32) if dtype.itemsize == 8 else rows


def _check_rows(file: RowFile) -> None:
    """Refuse NaN and infinity, block by block."""
    clients, rows = file.shape[:2]
    most = max(1, _BLOCK // file.width)
    for client in range(clients):
        for first in range(0, rows, most):
            block = file.read(client, np.arange(first, min(first + most, rows)))
            bad = np.argwhere(~np.isfinite(block))
            if len(bad):
                at = (client, first + int(bad[0][0]), *map(int, bad[0][1:]))
                raise ValueError(
                    f"OnDisk: {file.path.name} must be finite, but {at} is the first entry that is NaN or infinite. "
                    "Drop or fill them first."
                )


class Packed(AbstractTable):
    """Client data [N, m, ...] in small whole numbers, in memory: images take a quarter of the room of float32.

        x[i, j] = scale * raw[i, j]

    They become numbers of the run when they are sampled. Without `scale`, as in `OnDisk`.
    """

    raw: Any = eqx.field(  # type: ignore[misc]  # `scale` of the class above is no field, so it does not come first
        converter=lambda raw: raw if isinstance(raw, jax.Array) else as_array(raw)
    )
    scale: Numbers | None = number(default=None)

    def __check_init__(self) -> None:
        read_scale("Packed", self.scale)
        if np.ndim(self.raw) < 2 or self.raw.dtype.kind not in "bui" or self.raw.dtype.itemsize > 4:
            raise ValueError(
                "Packed: raw must be an array [clients, rows, ...] of whole numbers of up to 32 bits; "
                f"got {self.raw.dtype} of shape {np.shape(self.raw)}."
            )

    @property
    def shape(self) -> tuple[int, ...]:
        return self.raw.shape

    @property
    def dtype(self) -> np.dtype:
        return read_dtype(self.raw.dtype, self.scale)

    def __getitem__(self, sample: ArrayLike | slice) -> Array:
        return as_scaled(self.raw[sample], self.scale)


@checked
def write(
    path: str | os.PathLike[str], clients: Iterable[ArrayLike], *, rows: int, dtype: object = None
) -> Int[np.ndarray, " N"]:
    """Write one client's rows after the other to a .npy file [N, rows, ...]; returns how many rows each has.

    Only one client's rows are in memory at a time: `write("x.npy", (x[part] for part in parts), rows=longest)` with
    x = np.load("all.npy", mmap_mode="r"), or with a client's Parquet file read in turn. Shorter tables are padded with
    zeros, which take no room on file systems that know sparse files; the count is kept in the file too, and a
    population that is not told it is refused. `dtype` converts, None keeps the first client's.
    """
    check_counts(**{"write: rows": rows})
    kept = _read_kind(dtype)
    if isinstance(clients, np.ndarray) and clients.ndim == 0:
        raise ValueError(f"write: clients must be a list of tables, one for each client; got {clients!r}.")
    count: list[int] = []

    def fill(file: BinaryIO) -> None:
        like, start = np.empty(0), 0
        for client, table in enumerate(clients):
            table = as_array(table) if kept is None else as_array(table).astype(kept)
            if client == 0:
                like = np.broadcast_to(np.zeros((), table.dtype), (rows, *table.shape[1:]))  # takes no memory
                _write_header(file, 0, like)
                start = file.tell()
            _check_table(client, table, like)
            file.seek(start + client * like.nbytes)
            file.write(np.ascontiguousarray(table).data)
            count.append(len(table))
        if not count:
            raise ValueError("write: clients must hold at least one client's rows; it is empty.")
        file.truncate(start + len(count) * like.nbytes)
        file.seek(0, os.SEEK_END)
        file.write(_COUNTS + np.asarray(count, "<i4").tobytes())
        file.seek(0)
        _write_header(file, len(count), like)  # NumPy leaves room for the digits of the first length

    write_by(read_target(path, "a .npy file"), fill)
    return np.asarray(count, np.int32)


def _read_kind(dtype: object) -> np.dtype | None:
    try:
        kept = None if dtype is None else np.dtype(dtype if isinstance(dtype, (str, type, np.dtype)) else "?")
    except TypeError:
        kept = np.dtype(object)
    if kept is not None and kept.kind not in "iuf":
        raise ValueError(f"write: dtype must be one of numbers, such as 'float32', or None; got {dtype!r}.")
    return kept


def _write_header(file: BinaryIO, clients: int, like: np.ndarray) -> None:
    shape, descr = (clients, *like.shape), np.lib.format.dtype_to_descr(like.dtype)
    np.lib.format.write_array_header_1_0(file, {"descr": descr, "fortran_order": False, "shape": shape})


def _check_table(client: int, table: np.ndarray, like: np.ndarray) -> None:
    check_finite("write", **{f"clients[{client}]": table})
    if table.ndim < 1 or not 1 <= len(table) <= len(like):
        raise ValueError(f"write: a client has 1 to rows={len(like)} rows; clients[{client}] has shape {table.shape}.")
    if table.shape[1:] != like.shape[1:] or table.dtype != like.dtype:
        raise ValueError(
            f"write: all clients need rows like the first, {like.dtype} of shape {like.shape[1:]}; clients[{client}] "
            f"holds {table.dtype} of shape {table.shape[1:]}. Give dtype= to convert."
        )
