"""Convert X and y to people who respond: the library's own problem, and people's responses to a deployed model."""

from collections.abc import Mapping, Sequence
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Float, Int, Shaped

from performative._base.checks import check_finite, nearest
from performative._base.client_axis import client_axes
from performative.losses import Logistic, Ridge
from performative.partition import NO_LABEL, pad_tables
from performative.populations import Strategic
from performative.problem import Problem
from performative.types import ArrayLike, Unchecked, as_numbers

# Tables of up to _LARGE rows are padded to a power of two, at least _LEAST: compilation takes seconds, padding rows
# cost next to nothing.
_LARGE, _LEAST = 2048, 64


def column_numbers(
    owner: str, strategic: Unchecked[Sequence[Any] | None], names: Sequence[str] | None, width: int
) -> tuple[int, ...]:
    """Indices of the columns that people can change: None for all, else names or numbers."""
    if strategic is None:
        return tuple(range(width))
    wanted = [strategic] if isinstance(strategic, (str, int, np.integer)) else strategic
    if not isinstance(wanted, (list, tuple, np.ndarray)) or np.ndim(wanted) != 1:
        raise ValueError(f"{owner}: strategic must list columns by name or number, or be None; got {strategic!r}.")
    found = []
    for one in wanted:
        if isinstance(one, str):
            if names is None:
                raise ValueError(
                    f"{owner}: strategic names the column {one!r}, but X has no names. Pass column numbers, or a "
                    'DataFrame; after a scaler in a Pipeline, pipeline.set_output(transform="pandas").'
                )
            if one not in names:
                raise ValueError(f"{owner}: strategic: {one!r} is not a column of X.{nearest(one, names)}")
            found.append(list(names).index(one))
        elif isinstance(one, (int, np.integer)) and not isinstance(one, bool) and 0 <= one < width:
            found.append(int(one))
        else:
            raise ValueError(f"{owner}: strategic must contain column numbers 0..{width - 1} or names; got {one!r}.")
    return tuple(dict.fromkeys(found))


def client_numbers(owner: str, clients: ArrayLike | None, rows: int) -> tuple[list[Any], Int[np.ndarray, " n"]]:
    """The clients, and which of them each row belongs to; a single client if none are given."""
    if clients is None:
        return [None], np.zeros(rows, int)
    who = np.asarray(clients)
    if who.shape != (rows,):
        raise ValueError(f"{owner}: clients must name one client for each of the {rows} rows; got shape {who.shape}.")
    missing = int(np.sum(np.asarray([name is None or name != name for name in who.tolist()], bool)))
    if missing:
        raise ValueError(f"{owner}: clients is missing in {missing} of {rows} rows; name a client for each of them.")
    try:
        found, number = np.unique(who, return_inverse=True)
    except TypeError:  # they cannot be sorted
        raise ValueError(f"{owner}: clients must be all numbers or all text; got {who[:5].tolist()}.") from None
    return found.tolist(), number


def strengths_of(
    owner: str, strength: Unchecked[ArrayLike | Mapping[Any, float]], clients: list[Any], labels: bool
) -> Float[np.ndarray, "..."]:
    """A number, one per client [N], or one per client and class [N, 2], as `populations.Strategic` expects."""
    if isinstance(strength, Mapping):
        if clients == [None]:
            raise ValueError(f"{owner}: strength is given by client, so pass clients=, the client of each row, too.")
        missing = [name for name in clients if name not in strength]
        if missing:
            raise ValueError(
                f"{owner}: strength has no entry for {missing[:5]}; name every client of `clients`, or pass one number."
            )
        strength = [strength[name] for name in clients]
        pair = False
    else:
        pair = np.ndim(strength) == 1
    values = as_numbers(strength)
    check_finite(owner, strength=values)
    values = np.asarray(values, np.float64)
    allowed = "one number, (one for each class), or {client: number}" if labels else "one number, or {client: number}"
    if pair and (not labels or values.shape != (2,)):
        raise ValueError(f"{owner}: strength must be {allowed}; got shape {values.shape}.")
    if values.ndim > 1:
        raise ValueError(f"{owner}: strength must be {allowed}; got shape {values.shape}.")
    if np.any(values < 0):
        raise ValueError(f"{owner}: strength must not be negative; `desired` says which way people move.")
    return np.broadcast_to(values, (len(clients), 2)).copy() if pair else values


def problem_of(
    x: Float[np.ndarray, "n d"],
    y: Shaped[np.ndarray, " n"],
    *,
    strength: Float[np.ndarray, "..."],
    features: tuple[int, ...],
    client: Int[np.ndarray, " n"],
    penalty: float,
    intercept: bool,
    classes: bool,
) -> Problem:
    """The logistic (classes) or ridge problem of these people; with an intercept, a last column of ones."""
    if intercept:
        x = np.column_stack([x, np.ones(len(x))])
    rows = [np.flatnonzero(client == i) for i in range(int(client.max()) + 1)]
    tables, count = pad_tables([x[own] for own in rows])
    answers, _ = pad_tables([y[own] for own in rows], labels=classes)
    spare = _rounded(tables.shape[1]) - tables.shape[1]
    tables = np.pad(tables, ((0, 0), (0, spare), (0, 0)), constant_values=np.nan)
    answers = np.pad(answers, ((0, 0), (0, spare)), constant_values=NO_LABEL if classes else np.nan)
    free = x.shape[1] - 1 if intercept else None
    loss = Logistic(penalty, intercept=free) if classes else Ridge(penalty, free)
    population = Strategic(tables, answers, strength, features=features, count=count)
    return Problem(loss, population, weights=count / len(y))


def _rounded(rows: int) -> int:
    """Rows to pad a table to, so one compiled program serves folds and batches of similar size."""
    if rows > _LARGE:
        return rows
    return max(_LEAST, 1 << (rows - 1).bit_length())


def shown(problem: Problem, theta: Float[np.ndarray, " d"]) -> Float[np.ndarray, "N m d"]:
    """People's responses once theta is deployed, by client; padding rows are NaN."""
    with jax.enable_x64(True):
        population: Any = jax.tree.map(jnp.asarray, problem.population)
        arrays, rest = eqx.partition(population, eqx.is_array)
        deployed = jnp.asarray(theta, jnp.float64)

        def client(mine: Any) -> Any:
            person = eqx.combine(mine, rest)
            return jax.vmap(lambda row: person.sample(row, None, deployed)[0])(jnp.arange(population.capacity))

        return np.asarray(jax.vmap(client, in_axes=(client_axes(arrays),))(arrays))


def by_row(tables: Float[np.ndarray, "N m d"], client: Int[np.ndarray, " n"]) -> Float[np.ndarray, "n d"]:
    """Restore the original row order from the clients' tables."""
    out = np.empty((len(client), tables.shape[2]))
    for i, table in enumerate(tables):
        own = client == i
        out[own] = table[: int(own.sum())]
    return out
