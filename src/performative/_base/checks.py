"""Checks of user input and their error messages."""

import difflib
import os
from collections.abc import Callable, Iterable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import PyTree

from performative._base.messages import refused
from performative.types import ArrayLike, Theta, as_array, is_concrete

__all__ = [
    "check_counts",
    "check_fields",
    "check_finite",
    "check_flags",
    "check_like",
    "check_number",
    "check_room",
    "given",
    "is_one_of",
    "nearest",
]


# Parameters that are models, and what to do about one that is non-finite; entries of tables are dropped or filled.
_MODELS = ("theta", "start", "stable", "optimal")
_REMEDY = "Pass a model of finite numbers; the final model of a diverged run is not one (see history.status)."


def check_finite(owner: str, **arrays: ArrayLike) -> None:
    """Reject NaN and infinity, naming the parameter and the first bad entry."""
    for name, array in arrays.items():
        if not is_concrete(array):
            continue
        values = as_array(array)
        if values.dtype.kind not in "buif":
            got = f"dtype {values.dtype} and shape {values.shape}" if values.ndim else repr(values.item())
            raise ValueError(f"{owner}: {name} must be numeric; got {got}.")
        bad = np.argwhere(~np.isfinite(values))
        if len(bad) and values.ndim == 0:
            raise ValueError(f"{owner}: {name} must be finite; got {values}.{f' {_REMEDY}' if name in _MODELS else ''}")
        if len(bad):
            raise ValueError(
                f"{owner}: {name} must be finite, but {len(bad)} of {values.size} entries are NaN or infinite, "
                f"the first at index {tuple(int(i) for i in bad[0])}. "
                + (_REMEDY if name in _MODELS else "Drop or fill them first.")
            )


def check_one_a_client(owner: str, clients: int, **arrays: Any) -> None:
    """Reject what is neither a scalar nor one number per client."""
    for name, array in arrays.items():
        if (shape := np.shape(array)) not in ((), (clients,)):
            raise ValueError(
                f"{owner}{name} has shape {shape} for {clients} clients; pass a scalar, or one number per client."
            )


def is_one_of(value: object, *choices: str) -> bool:
    """Whether the value is one of these strings; an array, which compares elementwise, is not."""
    return isinstance(value, str) and value in choices


def check_number(owner: str, **values: ArrayLike) -> None:
    """Reject anything but one finite number, naming the parameter."""
    for name, value in values.items():
        if np.ndim(as_array(value) if is_concrete(value) else value):
            raise ValueError(f"{owner}: {name} must be one number; got shape {np.shape(value)}.")
        check_finite(owner, **{name: value})


# The wording of each rule, and its test.
_RULES: dict[str, Callable[[Any], Any]] = {
    "must be above 0": lambda v: v > 0,
    "must not be negative": lambda v: v >= 0,
    "is a standard deviation and must be >= 0": lambda v: v >= 0,
    "must lie between 0 and 1": lambda v: (v > 0) & (v < 1),
    "must lie in [0, 1)": lambda v: (v >= 0) & (v < 1),
    "must lie in [0, 1]": lambda v: (v >= 0) & (v <= 1),
}


def check_rule(owner: str, rule: str, **values: ArrayLike | None) -> None:
    """Reject numbers that break the rule; None and values traced by JAX are not checked."""
    for name, value in values.items():
        if value is not None and is_concrete(value) and not np.all(_RULES[rule](np.asarray(value))):
            raise ValueError(f"{owner}: {name} {rule}; got {value}.")


def check_flags(owner: str, **flags: object) -> None:
    """Reject anything but True and False: other values are ambiguous."""
    for name, value in flags.items():
        if not isinstance(value, (bool, np.bool_)):
            raise ValueError(f"{owner}: {name} must be True or False; got {value!r}.")


def given(**values: Any) -> dict[str, Any]:
    """The values that are not None: an optional argument needs no check when omitted."""
    return {name: value for name, value in values.items() if value is not None}


def check_fields(part: PyTree) -> None:
    """Reject integers in plain fields: as leaves they are traced, and `range(self.k)` fails with a JAX error."""
    for path, leaf in jax.tree_util.tree_leaves_with_path(part):
        if isinstance(leaf, (bool, np.bool_)) or not isinstance(leaf, (int, np.integer)):
            continue
        node, owner, field = part, part, None
        for step in path:
            if isinstance(step, jax.tree_util.GetAttrKey):
                owner, field, node = node, step.name, getattr(node, step.name)
            elif isinstance(step, (jax.tree_util.SequenceKey, jax.tree_util.DictKey)):
                node = node[step.idx if isinstance(step, jax.tree_util.SequenceKey) else step.key]
            else:
                break
        if field is not None:
            raise refused(
                "field-not-static",
                f"{type(owner).__name__}: {field} = {leaf} is an integer in a plain field, which JAX traces. "
                f"Declare it as {field}: int = pf.whole() if it sets a shape or controls a Python branch, or as "
                "= pf.number() if it is a quantity.",
            )


def check_room(owner: str, numbers: int, remedy: str = "", **counts: int) -> None:
    """Reject a synthetic table, or the records of a run, too large for the machine's memory."""
    room = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") if hasattr(os, "sysconf") else 1 << 36
    if 8 * numbers > room:
        asked = ", ".join(f"{name}={count}" for name, count in counts.items())
        text = f"{owner}: {asked} would take {8 * numbers / 2**30:,.0f} GiB; this machine has {room / 2**30:,.0f} GiB."
        text += f" {remedy}" if remedy else ""
        raise refused("far-too-large", text)


def check_like(owner: str, got: PyTree, theta: Theta) -> None:
    """Reject anything not shaped like the model; broadcasting would change the model's shape."""
    expected: Any = jax.tree.structure(theta)
    given: Any = jax.tree.structure(got)
    if given != expected:
        raise ValueError(f"{owner} must have the structure of theta, {expected}; got {given}.")
    leaves = zip(jax.tree_util.tree_leaves_with_path(got), jax.tree.leaves(theta), strict=True)
    for (path, leaf), like in leaves:
        if jnp.shape(leaf) != jnp.shape(like):
            where = f" at {jax.tree_util.keystr(path)}" if path else ""
            raise ValueError(f"{owner} must have the shape of theta{where}, {jnp.shape(like)}; got {jnp.shape(leaf)}.")


# What other libraries call our parameters.
_ELSEWHERE = {
    "lr": "rate", "learning_rate": "rate", "step_size": "rate", "eta": "rate", "batch_size": "batch",
    "num_rounds": "rounds", "n_rounds": "rounds", "iterations": "rounds", "random_state": "seed",
    "client_fraction": "participation", "fraction_fit": "participation", "local_epochs": "local_steps",
    "target": "label", "sensitive_features": "group",
}  # fmt: skip


def nearest(name: str, choices: Iterable[str]) -> str:
    """' Did you mean X?' if a choice is close, or has this name elsewhere; otherwise the list of choices."""
    choices = sorted(choices)
    if _ELSEWHERE.get(name) in choices:
        return f" Did you mean {_ELSEWHERE[name]!r}?"
    lowered = {c.lower().replace("_", ""): c for c in choices}
    close = difflib.get_close_matches(name.lower().replace("_", ""), lowered, n=1, cutoff=0.6)
    return f" Did you mean {lowered[close[0]]!r}?" if close else f" Choose one of: {', '.join(choices)}."


def check_counts(**counts: object) -> None:
    """Reject anything but an integer >= 1, naming the parameter."""
    for name, value in counts.items():
        if isinstance(value, bool) or not isinstance(value, (int, np.integer)) or value < 1:
            raise ValueError(f"{name} must be a whole number >= 1; got {value!r}.")
