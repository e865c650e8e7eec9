"""Compiled functions of a large argument that stays the same from call to call and is flattened only once."""

import functools
import weakref
from collections.abc import Callable
from typing import Any

import jax
import numpy as np
from jaxtyping import PyTree


class Compiled:
    """function(fixed, *arrays, *words) under `jax.jit`.

    `fixed` may contain arrays and anything hashable. Its flattened form is cached for its lifetime, so a loop over
    chunks flattens it once. The last `words` arguments are static. The buffers of argument number `donate` are reused.
    """

    def __init__(self, function: Callable[..., Any], donate: int | None = None, words: int = 0):
        functools.update_wrapper(self, function)
        self._words = words
        self._last: tuple[weakref.ref[Any], tuple[Any, ...], list[Any], _Rest] | None = None

        def call(rest: _Rest, arrays: list[PyTree], *args: PyTree) -> PyTree:
            return function(rest.whole(arrays), *args, *rest.words)

        self._jitted: Any = jax.jit(call, static_argnums=0, donate_argnums=() if donate is None else (donate + 1,))

    def __call__(self, *args: PyTree) -> PyTree:
        return self._jitted(*self._apart(*args))

    def lower(self, *args: PyTree) -> PyTree:
        """Lower as `jax.jit` does: what would be compiled."""
        return self._jitted.lower(*self._apart(*args))

    @property
    def programs(self) -> int:
        """How many programs have been compiled."""
        return int(self._jitted._cache_size())

    def _apart(self, fixed: PyTree, *args: PyTree) -> tuple[PyTree, ...]:
        cut = len(args) - self._words
        arrays, words = args[:cut], args[cut:]
        last = self._last
        if last is None or last[0]() is not fixed or last[1] != words:
            leaves, structure = jax.tree.flatten(fixed)
            rest = _Rest(structure, tuple(None if _is_array(leaf) else leaf for leaf in leaves), words)
            last = weakref.ref(fixed, self._forget), words, [leaf for leaf in leaves if _is_array(leaf)], rest
            self._last = last
        return last[3], last[2], *arrays

    def _forget(self, gone: Any) -> None:
        """Drop the cache, so arrays do not outlive their owner."""
        if self._last is not None and self._last[0] is gone:
            self._last = None


class _Rest:
    """Everything in a tree except its arrays, hashed once."""

    def __init__(self, structure: Any, leaves: tuple[Any, ...], words: tuple[Any, ...]):
        self.words, self._facts = words, (structure, leaves, words)
        self._hash = hash(self._facts)

    def __hash__(self) -> int:
        return self._hash

    def __eq__(self, other: object) -> bool:
        return self is other or (isinstance(other, _Rest) and self._facts == other._facts)

    def whole(self, arrays: list[PyTree]) -> Any:
        structure, leaves, _ = self._facts
        there = iter(arrays)
        return jax.tree.unflatten(structure, [next(there) if leaf is None else leaf for leaf in leaves])


def _is_array(leaf: PyTree) -> bool:
    return isinstance(leaf, (jax.Array, np.ndarray, np.generic))
