"""Tables of client data that are not arrays of floats: on disk, or packed into bytes.

They are used in a population's table fields (`pf.populations.Static(x=pf.tables.OnDisk("x.npy"), y=labels)`) and work
with every executor like arrays. A step needs memory only for the rows that it reads.
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

# Bytes read per system call, and checked at once.
_BLOCK = 1 << 26
# Follows the array in files of `write`, before the clients' row counts; NumPy does not read that far.
_COUNTS = b"rows of each client"


@dataclasses.dataclass(frozen=True)
class RowFile:
    """A .npy file [N, m, ...] in its current state. It is part of compiled programs: a changed file is a different one.

    Descriptions identify it by its size and modification time, not by its path: it may be moved.
    """

    path: Path  # not a string: `describe` then only reports that there is one
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
        """Rows `sample` of clients `client` (integers from 0 that broadcast), as stored.

        Each row is read once, in file order; adjacent rows are read together. Unlike memory mapping, reading leaves
        nothing behind in the process, and a truncated file is an error, not a crash.
        """
        place = np.asarray(np.asarray(client, np.int64) * self.shape[1] + np.asarray(sample))
        each, back = np.unique(place, return_inverse=True)
        got = self._load(each)
        ordered = np.array_equal(each, place.ravel())
        return got.reshape(*place.shape, *self.shape[2:]) if ordered else got[back.reshape(place.shape)]

    def _load(self, rows: np.ndarray) -> np.ndarray:
        """Distinct rows of the file [N * m, ...], in ascending order."""
        out = np.empty((len(rows), *self.shape[2:]), self.dtype)
        flat = out.reshape(len(rows), self.width // out.itemsize)
        # A piece starts where the previous row is not adjacent, and at least every _BLOCK bytes.
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
                    f"{self.path} has changed since the table was made; create it again with pf.tables.OnDisk(path)."
                )
            if hasattr(os, "posix_fadvise"):  # request all at once, so a disk can work in parallel
                for piece, offset in zip(pieces, offsets, strict=True):
                    os.posix_fadvise(file, offset, piece.nbytes, os.POSIX_FADV_WILLNEED)
            got = sum(map(os.preadv, itertools.repeat(file), zip(pieces, strict=True), offsets))
        finally:
            os.close(file)
        if got != out.nbytes:
            raise OSError(f"{self.path}: expected to read {out.nbytes} bytes, got {got}; was the file truncated?")
        return out

    def read_count(self) -> np.ndarray | None:
        """Row counts of the clients, which `write` stores after the table; None for files from other sources."""
        end = self.offset + math.prod(self.shape) * np.dtype(self.dtype).itemsize
        with open(self.path, "rb") as file:
            file.seek(end)
            if file.read(len(_COUNTS)) != _COUNTS:
                return None
            return np.frombuffer(file.read(4 * self.shape[0]), "<i4")


def open_rows(path: str | os.PathLike[str]) -> RowFile:
    """Read the header of a .npy file and check it against the file."""
    place = Path(path).absolute()
    if not place.is_file():
        raise FileNotFoundError(f"OnDisk: path={str(path)!r} is not a file; pf.tables.write creates one.")
    with open(place, "rb") as file:
        try:
            version = np.lib.format.read_magic(file)
            read_header = {(1, 0): np.lib.format.read_array_header_1_0, (2, 0): np.lib.format.read_array_header_2_0}
            shape, fortran, dtype = read_header[version](file)
        except (ValueError, KeyError) as error:
            raise ValueError(
                f"OnDisk: path={str(path)!r} must be a .npy file, as written by pf.tables.write or np.save; {error}."
            ) from error
        offset, now = file.tell(), os.fstat(file.fileno())
    if dtype.kind not in "buif" or dtype.itemsize > 8:
        raise ValueError(f"OnDisk: {place.name} must contain numbers of up to 64 bits; it contains {dtype}.")
    if len(shape) < 2 or 0 in shape:
        raise ValueError(f"OnDisk: {place.name} must be [clients, rows, ...], none of them 0; it is {shape}.")
    if fortran:
        raise ValueError(f"OnDisk: {place.name} is in Fortran order, so rows are not contiguous; use order 'C'.")
    needed = offset + math.prod(shape) * dtype.itemsize
    if now.st_size < needed:
        raise ValueError(
            f"OnDisk: {place.name} is truncated: {shape} of {dtype} need {needed} bytes, it has {now.st_size}. "
            "Write it again."
        )
    return RowFile(place, shape, dtype.str, offset, now.st_size, now.st_mtime_ns)


def read_scale(owner: str, scale: ArrayLike | None) -> Any:
    """One number, or None."""
    check_number(owner, **given(scale=scale))
    return as_numbers(scale)


def as_scaled(raw: Array, scale: Numbers | None) -> Array:
    """Stored values in the dtype of the run: scale * raw; without a scale, integers stay integers."""
    dtype = read_dtype(raw.dtype, scale)
    return raw.astype(dtype) if scale is None else raw.astype(dtype) * jnp.asarray(scale, dtype)


def read_dtype(stored: DTypeLike, scale: Numbers | None) -> np.dtype:
    """The dtype of the rows that such a table returns: int32, or the float dtype of the run."""
    whole = scale is None and np.dtype(stored).kind in "bui"
    return np.dtype(np.int32) if whole else np.dtype(jnp.result_type(float))


class OnDisk(AbstractTable):
    """Client data in a .npy file [N, m, ...] that need not fit into memory: only the rows that are used are read.

        x[i, j] = scale * file[i, j]

    A local step of all its clients is one read on the host, sorted by position. Rows are sent to the device as stored
    (uint8 images as bytes). Without `scale`, integers are labels in label fields (int32), and numbers elsewhere. The
    file must not change: reading a changed file raises.
    NaN, infinity and invalid labels are not detected, since that requires reading the whole file; check=True does so
    for NaN and infinity. Anything over all rows (`risk` of a run, `Whole()`) reads all rows.
    `pf.tables.write` creates such a file. Not for populations that rearrange their rows when they are created.
    """

    file: RowFile = eqx.field(static=True)
    client: Counts  # the client of these rows: [N] for the full table, a number after slicing
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
        """Row counts of the clients, if `pf.tables.write` wrote the file; the other rows are padding."""
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
                "OnDisk: only one client's table can be indexed, by sample, as in a population's methods; use "
                'np.load(path, mmap_mode="r") to look at the file.'
            )
        sample = jnp.arange(self.file.shape[1])[sample] if isinstance(sample, slice) else sample
        sample, rows = jnp.asarray(sample, jnp.int32), self.file.shape[1]
        sample = jnp.clip(jnp.where(sample < 0, sample + rows, sample), 0, rows - 1)  # as arrays do
        # One argument, since each transfer to the host costs as much as reading about twenty rows.
        place = jnp.stack(jnp.broadcast_arrays(jnp.asarray(self.client, jnp.int32), sample), axis=-1)
        stored = np.dtype(self.file.dtype).newbyteorder("=")
        wanted = stored if stored.itemsize <= 4 else self.dtype
        read, shape = functools.partial(_fetch, self.file, wanted), (*sample.shape, *self.file.shape[2:])
        # The host thread may not have 64 bits enabled, so values are sent as two halves.
        halves = wanted.itemsize == 8
        sent = jax.ShapeDtypeStruct((*shape, 2), np.uint32) if halves else jax.ShapeDtypeStruct(shape, wanted)
        raw = jax.pure_callback(read, sent, place, vmap_method="expand_dims")
        return as_scaled(jax.lax.bitcast_convert_type(raw, wanted) if halves else raw, self.scale)


def _fetch(file: RowFile, dtype: np.dtype, place: ArrayLike) -> np.ndarray:
    """Runs inside a compiled program: NumPy only, since calling JAX from here can deadlock."""
    place = np.asarray(place)
    rows = file.read(place[..., 0], place[..., 1]).astype(dtype, copy=False)
    return rows[..., None].view(np.uint32) if dtype.itemsize == 8 else rows


def _check_rows(file: RowFile) -> None:
    """Raise on NaN and infinity, checking block by block."""
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
    """Client data [N, m, ...] as small integers, in memory: images take a quarter of the space of float32.

        x[i, j] = scale * raw[i, j]

    They are converted to the dtype of the run when sampled. Without `scale`, as in `OnDisk`.
    """

    raw: Any = eqx.field(  # type: ignore[misc]  # `scale` of the base class is not a field, so it does not come first
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
    """Write the clients' rows sequentially to a .npy file [N, rows, ...]; return the number of rows of each.

    Only one client's rows are in memory at a time: `write("x.npy", (x[part] for part in parts), rows=longest)` with
    x = np.load("all.npy", mmap_mode="r"), or with the clients' Parquet files read one at a time. Shorter tables are
    padded with zeros, which take no space on file systems with sparse files; the file also stores the counts, and a
    population without count= raises. `dtype` converts, None keeps the first client's.
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
            raise ValueError("write: clients must contain at least one client's rows; it is empty.")
        file.truncate(start + len(count) * like.nbytes)
        file.seek(0, os.SEEK_END)
        file.write(_COUNTS + np.asarray(count, "<i4").tobytes())
        file.seek(0)
        _write_header(file, len(count), like)  # NumPy reserves space for more digits of the first length

    write_by(read_target(path, "a .npy file"), fill)
    return np.asarray(count, np.int32)


def _read_kind(dtype: object) -> np.dtype | None:
    try:
        kept = None if dtype is None else np.dtype(dtype if isinstance(dtype, (str, type, np.dtype)) else "?")
    except TypeError:
        kept = np.dtype(object)
    if kept is not None and kept.kind not in "iuf":
        raise ValueError(f"write: dtype must be numeric, such as 'float32', or None; got {dtype!r}.")
    return kept


def _write_header(file: BinaryIO, clients: int, like: np.ndarray) -> None:
    shape, descr = (clients, *like.shape), np.lib.format.dtype_to_descr(like.dtype)
    np.lib.format.write_array_header_1_0(file, {"descr": descr, "fortran_order": False, "shape": shape})


def _check_table(client: int, table: np.ndarray, like: np.ndarray) -> None:
    check_finite("write", **{f"clients[{client}]": table})
    if table.ndim < 1 or not 1 <= len(table) <= len(like):
        raise ValueError(
            f"write: a client must have 1 to rows={len(like)} rows; clients[{client}] has shape {table.shape}."
        )
    if table.shape[1:] != like.shape[1:] or table.dtype != like.dtype:
        raise ValueError(
            f"write: all clients need rows like the first, {like.dtype} of shape {like.shape[1:]}; clients[{client}] "
            f"has {table.dtype} of shape {table.shape[1:]}. Pass dtype= to convert."
        )
