"""The format of messages and files: named arrays and a small table of facts, as bytes. Nothing is ever unpickled.

    "PFW1" | length of the head (4 bytes) | head (JSON) | arrays, concatenated

The head lists name, type and shape of each array; only a few types are allowed. A long array that equals an earlier one
refers to it by its number, and is not written again: the model is usually also the deployed one.
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
# A head contains names and shapes; a longer one must contain something else.
_LONGEST_HEAD = 1 << 20
_MOST_AXES, _MOST_ENTRIES = 16, 1 << 40
# Arrays with more bytes than this are compared with those before them.
_LONG = 1 << 12
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
    """Bytes that are not a message of this library, or contain other arrays than expected. The text says which."""


def encode(about: dict[str, Any], arrays: dict[str, np.ndarray]) -> bytes:
    """Facts and arrays as bytes."""
    head: list[list[Any]] = []
    bodies: list[bytes] = []
    for name, value in arrays.items():
        array = np.asarray(value)
        if array.dtype.name not in _TYPES:
            raise ValueError(f"wire: {name!r} has dtype {array.dtype}; only {', '.join(_TYPES)} can be sent.")
        entry, body = [name, array.dtype.name, list(array.shape)], _body(array)
        same = (
            [n for n, one in enumerate(head) if one[1:] == entry[1:] and bodies[n] == body] if len(body) > _LONG else []
        )
        head.append(entry + same[:1])
        bodies.append(b"" if same else body)
    text = json.dumps({"about": about, "arrays": head}, allow_nan=False).encode()
    return b"".join([_MAGIC, len(text).to_bytes(4, "little"), text, *bodies])


def _body(array: np.ndarray) -> bytes:
    return np.ascontiguousarray(array, _TYPES[array.dtype.name]).tobytes()


def decode(message: bytes) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
    """The inverse of `encode`. Any other bytes raise `Malformed`."""
    if not isinstance(message, bytes) or message[:4] != _MAGIC or len(message) < 8:
        raise Malformed("these bytes are not a message of this library")
    length = int.from_bytes(message[4:8], "little")
    if length > min(_LONGEST_HEAD, len(message) - 8):
        raise Malformed(f"the head is longer than the message, or than {_LONGEST_HEAD} bytes")
    try:
        head = json.loads(message[8 : 8 + length], parse_constant=_no_constant)
        about, listed = head["about"], head["arrays"]
        entries = [(name, kind, _shape(shape), same) for name, kind, shape, *same in listed]
    except (ValueError, TypeError, KeyError, RecursionError) as error:
        raise Malformed("the head cannot be read") from error
    if not isinstance(about, dict):
        raise Malformed("the head contains no table of facts")
    arrays: dict[str, np.ndarray] = {}
    at = 8 + length
    for number, (name, kind, shape, same) in enumerate(entries):
        if not isinstance(name, str) or name in arrays or not isinstance(kind, str) or kind not in _TYPES:
            raise Malformed(f"array {str(name)[:60]!r} has an unknown type {str(kind)[:20]!r}, or comes twice")
        if same:
            arrays[name] = _earlier(same, entries, number, kind, shape, arrays)
            continue
        dtype = _TYPES[kind]
        end = at + math.prod(shape) * dtype.itemsize
        if end > len(message):
            raise Malformed(f"array {name[:60]!r} is longer than the message")
        if kind == "bool" and np.any(np.frombuffer(message, np.uint8, end - at, at) > 1):
            raise Malformed(f"array {name[:60]!r} contains bytes that are not truth values")
        array = np.frombuffer(memoryview(message)[at:end], dtype).reshape(shape)
        arrays[name] = array.astype(dtype.newbyteorder("="))
        at = end
    if at != len(message):
        raise Malformed(f"{len(message) - at} bytes are left over")
    return about, arrays


def split_head(message: bytes) -> tuple[bytes, bytes]:
    """A valid message in two parts: the head, and the arrays."""
    at = 8 + int.from_bytes(message[4:8], "little")
    return message[:at], message[at:]


def _earlier(
    same: list[Any], entries: list[Any], at: int, kind: str, shape: list[int], arrays: dict[str, np.ndarray]
) -> np.ndarray:
    """The earlier array that entry `at` refers to; the same object, so that a message takes no more memory than its
    bytes."""
    number = same[0]
    if len(same) > 1 or isinstance(number, bool) or not isinstance(number, int) or not 0 <= number < at:
        raise Malformed("an array refers to an earlier one that does not exist")
    name, *like, _ = entries[number]
    if like != [kind, shape]:
        raise Malformed("an array refers to an earlier one of another type or shape")
    return arrays[name]


def _no_constant(name: str) -> Any:
    raise ValueError(name)


def _shape(sizes: Any) -> list[int]:
    """A shape that fits into a message: few axes, and no huge size hidden by an empty axis."""
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
    """A tree with the structure of `like`, whose names, shapes and types must match exactly."""
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
            raise Malformed(f"{name!r} must have dtype {leaf.dtype}; got {array.dtype}")
        found.append(array)
    return jax.tree.unflatten(structure, found)


def digest(message: bytes) -> str:
    """A short fingerprint."""
    return hashlib.sha256(message).hexdigest()[:32]
