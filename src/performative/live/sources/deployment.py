"""What is published: a model, its version number, and the JSON sent to a scoring service."""

import dataclasses
import functools
import hashlib
import json
from typing import Any

import jax
import numpy as np
from jaxtyping import PyTree

from performative._base.checks import check_finite
from performative.live.telling import Sayable
from performative.types import Theta

# Integers up to this limit are exact in JSON readers and in float columns.
LAST_VERSION = 2**53


class VersionError(Sayable, ValueError):
    """A version number that decreases, or that is used for two models."""

    sentence = "the client has published another model under this version, or a later one"


@dataclasses.dataclass(frozen=True, eq=False)
class Deployed:
    """A deployed model.

    Attributes:
        version: its number. Numbers increase, and none is ever used for two models: every row that the model induces is
            stamped with it. To return to an earlier model, deploy it under a new number
        theta: the model, arrays of numbers in any structure; copied, and made read-only
        round: the round that produced it
    """

    version: int
    theta: Theta
    round: int

    def __post_init__(self) -> None:
        object.__setattr__(self, "version", check_version(self.version))
        object.__setattr__(self, "round", check_version(self.round, "round"))
        object.__setattr__(self, "theta", jax.tree.map(_frozen, self.theta))
        check_finite("Deployed", **self.parameters)
        if not self.parameters:
            raise ValueError("Deployed: theta contains no arrays, so there is no model to deploy.")

    @functools.cached_property
    def parameters(self) -> dict[str, np.ndarray]:
        """The arrays by name: "theta" for a single one, otherwise its path, such as "layers.0.weight"."""
        named: dict[str, np.ndarray] = {}
        for path, leaf in jax.tree_util.tree_leaves_with_path(self.theta):
            name = jax.tree_util.keystr(path, simple=True, separator=".") or "theta"
            if name in named:
                raise ValueError(f"Deployed: two arrays of theta are called {name!r}; rename a key with a dot.")
            named[name] = leaf
        return named

    @functools.cached_property
    def fingerprint(self) -> str:
        """SHA-256 of the model: names, types, shapes and bits, without the version and the round."""
        seen = hashlib.sha256()
        for name, leaf in self.parameters.items():
            little = np.ascontiguousarray(leaf, leaf.dtype.newbyteorder("<"))
            seen.update(json.dumps([name, little.dtype.str, leaf.shape]).encode() + little.tobytes())
        return seen.hexdigest()

    def to_json(self) -> bytes:
        """{"version", "round", "fingerprint", "parameters": {name: nested lists}}; numbers are exact."""
        content = {
            "version": self.version,
            "round": self.round,
            "fingerprint": self.fingerprint,
            "parameters": {name: leaf.tolist() for name, leaf in self.parameters.items()},
        }
        return json.dumps(content, allow_nan=False).encode()


def check_version(value: Any, name: str = "version") -> int:
    """The number as an int; reject anything but an integer >= 0."""
    if isinstance(value, bool) or not isinstance(value, (int, np.integer)) or not 0 <= value <= LAST_VERSION:
        raise ValueError(f"{name} must be a whole number from 0 to 2^53; got {value!r}.")
    return int(value)


def _frozen(leaf: PyTree) -> np.ndarray:
    copied = np.array(leaf)
    copied.flags.writeable = False
    return copied
