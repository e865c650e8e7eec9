"""What travels and what is stored: named arrays and a small table of facts, as bytes. Nothing is ever unpickled.

    "PFW1" | length of the head (4 bytes) | head (JSON) | arrays, one after the other

The head lists name, type and shape of each array; types are those of a short list.
"""

import hashlib
import json
import math
from typing import Any

import jax
import ml_dtypes
import numpy as np
from jaxtyping import PyTree

_MAGIC = b"PFW1"
# A head is names and shapes; one that is longer holds something else.
_LONGEST_HEAD = 1 << 20
_MOST_AXES, _MOST_ENTRIES = 16, 1 << 40
_TYPES = {
    name: np.dtype(name).newbyteorder("<")
    for name in (
        "float16",
        "float32",
        "float64",
        "int8",
        "int16",
        "int32",
        "int64",
        "uint8",
        "uint16",
        "uint32",
        "uint64",
        "bool",
    )
} | {"bfloat16": np.dtype(ml_dtypes.bfloat16)}


class Malformed(ValueError):
    """Bytes that are no message of ours, or hold other arrays than were asked for. The message says what is wrong."""


def encode(about: dict[str, Any], arrays: dict[str, np.ndarray]) -> bytes:
    """Facts and arrays as bytes."""
    head, bodies = [], []
    for name, value in arrays.items():
        array = np.asarray(value)
        if array.dtype.name not in _TYPES:
            raise ValueError(f"wire: {name!r} holds {array.dtype}; only {', '.join(_TYPES)} travel.")
        head.append([name, array.dtype.name, list(array.shape)])
        bodies.append(np.ascontiguousarray(array, _TYPES[array.dtype.name]).tobytes())
    text = json.dumps({"about": about, "arrays": head}, allow_nan=False).encode()
    return b"".join([_MAGIC, len(text).to_bytes(4, "little"), text, *bodies])


def decode(message: bytes) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
    """What `encode` was given. Bytes of any other kind raise `Malformed`."""
    if not isinstance(message, bytes) or message[:4] != _MAGIC or len(message) < 8:
        raise Malformed("these bytes are no message of this library")
    length = int.from_bytes(message[4:8], "little")
    if length > min(_LONGEST_HEAD, len(message) - 8):
        raise Malformed("the head is longer than the message")
    try:
        head = json.loads(message[8 : 8 + length], parse_constant=_no_constant)
        about, listed = head["about"], head["arrays"]
        entries = [(name, kind, _shape(shape)) for name, kind, shape in listed]
    except (ValueError, TypeError, KeyError, RecursionError) as error:
        raise Malformed("the head cannot be read") from error
    if not isinstance(about, dict):
        raise Malformed("the head holds no table of facts")
    arrays: dict[str, np.ndarray] = {}
    at = 8 + length
    for name, kind, shape in entries:
        if not isinstance(name, str) or name in arrays or not isinstance(kind, str) or kind not in _TYPES:
            raise Malformed(f"array {str(name)[:60]!r} has an unknown type {str(kind)[:20]!r}, or comes twice")
        dtype = _TYPES[kind]
        end = at + math.prod(shape) * dtype.itemsize
        if end > len(message):
            raise Malformed(f"array {name[:60]!r} is longer than the message")
        if kind == "bool" and max(message[at:end], default=0) > 1:
            raise Malformed(f"array {name[:60]!r} holds bytes that are no truth values")
        array = np.frombuffer(message[at:end], dtype).reshape(shape)
        arrays[name] = array.astype(dtype.newbyteorder("="))
        at = end
    if at != len(message):
        raise Malformed(f"{len(message) - at} bytes are left over")
    return about, arrays


def _no_constant(name: str) -> Any:
    raise ValueError(name)


def _shape(sizes: Any) -> list[int]:
    """A shape that fits into a message: few axes, and no size that an empty axis would hide."""
    if len(sizes) > _MOST_AXES or any(isinstance(n, bool) or not isinstance(n, int) or n < 0 for n in sizes):
        raise ValueError(sizes)
    if math.prod(max(n, 1) for n in sizes) > _MOST_ENTRIES:
        raise ValueError(sizes)
    return list(sizes)


def flatten(tree: PyTree, under: str) -> dict[str, np.ndarray]:
    """The leaves of a tree by name."""
    leaves = jax.tree_util.tree_leaves_with_path(tree)
    return {under + jax.tree_util.keystr(path): np.asarray(leaf) for path, leaf in leaves}


def unflatten(like: Any, arrays: dict[str, np.ndarray], under: str) -> Any:
    """A tree with the structure of `like`, whose names, shapes and types must be met exactly."""
    paths, structure = jax.tree_util.tree_flatten_with_path(like)
    names = [under + jax.tree_util.keystr(path) for path, _ in paths]
    given = {name for name in arrays if name.startswith(under)}
    if given != set(names):
        lost, more = sorted(set(names) - given), sorted(given - set(names))
        words = [f"{n[:60]!r} is missing" for n in lost[:3]] + [f"{n[:60]!r} is unknown" for n in more[:3]]
        raise Malformed("; ".join(words))
    found = []
    for name, (_, leaf) in zip(names, paths, strict=True):
        array = arrays[name]
        if array.shape != tuple(leaf.shape):
            raise Malformed(f"{name!r} must have shape {tuple(leaf.shape)}; got {array.shape}")
        if array.dtype != leaf.dtype:
            raise Malformed(f"{name!r} must hold {leaf.dtype}; got {array.dtype}")
        found.append(array)
    return jax.tree.unflatten(structure, found)


def digest(message: bytes) -> str:
    """A short fingerprint."""
    return hashlib.sha256(message).hexdigest()[:32]
