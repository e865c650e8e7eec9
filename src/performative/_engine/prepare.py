"""Turn the user's inputs into what the engine computes with: checked, cast, on the device."""

import traceback
from collections.abc import Callable
from typing import Any, TypeVar

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike as Number
from jax.typing import DTypeLike
from jaxtyping import PyTree

from performative._base.checks import check_finite, check_room
from performative._base.client_axis import client_axes
from performative.algorithm import Algorithm
from performative.problem import Problem
from performative.schedules import Schedule
from performative.tables.fitted import is_fitted_model
from performative.types import Scene, Theta, Unchecked, as_numbers

Tree = TypeVar("Tree")


def on_device(tree: Tree, dtype: DTypeLike, put: Callable[..., jax.Array] | None = None) -> Tree:
    """Arrays and numbers as JAX arrays; floating ones in the precision of the run. `put` moves one of them."""
    leaves, structure = jax.tree.flatten(tree)
    places = [i for i, leaf in enumerate(leaves) if _is_number(leaf)]
    if put is None:  # cast on the host, moved together
        moved = jax.device_put([_cast(leaves[i], dtype) for i in places])
    else:
        moved = [put(leaves[i], dtype) if _is_floating(leaves[i]) else put(leaves[i]) for i in places]
    for i, leaf in zip(places, moved, strict=True):
        leaves[i] = leaf
    return jax.tree.unflatten(structure, leaves)


def _is_number(leaf: object) -> bool:
    """Whether a leaf is numeric; keys and booleans are left as they are."""
    if isinstance(leaf, bool) or not isinstance(leaf, (int, float, np.ndarray, np.generic, jax.Array)):
        return False
    return not (isinstance(leaf, jax.Array) and jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key))


def _is_floating(leaf: Number) -> bool:
    return bool(jnp.issubdtype(jnp.result_type(leaf), jnp.floating))


def _cast(leaf: Any, dtype: DTypeLike) -> Any:
    if isinstance(leaf, jax.Array):
        return leaf.astype(dtype) if _is_floating(leaf) else leaf
    return np.asarray(leaf, dtype) if _is_floating(leaf) else np.asarray(leaf, jnp.result_type(leaf))


def read_theta(problem: Problem, theta: Any, dtype: DTypeLike, name: str = "theta") -> Theta:
    """The start: None for zeros, numbers, any pytree of arrays, or a fitted scikit-learn linear classifier."""
    shape = problem.population.model_shape()
    if theta is None:
        if shape is None:
            raise ValueError(
                f"{name}: this population accepts any model, so pass a starting point (an array, or a pytree of "
                "arrays)."
            )
        return jnp.zeros(shape, dtype)
    if is_fitted_model(theta):
        if problem.columns is None:
            raise ValueError(
                f"{name} may be a fitted model only for a problem made by Problem.from_frame; pass an array."
            )
        theta = problem.columns.start(theta)
    if shape is not None and isinstance(theta, (list, tuple)):
        theta = as_numbers(theta)  # a list of numbers is a vector, not a tree of numbers
    if not jax.tree.leaves(theta):
        raise ValueError(f"{name} must contain at least one array; got {theta!r}.")
    parameters = sum(np.size(leaf) for leaf in jax.tree.leaves(theta))
    check_room(name, parameters // 2, parameters=parameters)  # at least 4 bytes each
    for path, leaf in jax.tree_util.tree_leaves_with_path(theta):
        if as_numbers(leaf).dtype.kind not in "buifV":  # V: bfloat16
            where = f"{name}{jax.tree_util.keystr(path)}"
            if isinstance(leaf, (str, complex)):
                raise ValueError(
                    f"{name} must be real numbers: one, a list, or a pytree of arrays; {where} is {leaf!r}."
                )
            raise ValueError(
                f"{name} must be a pytree of arrays, but {where} is {leaf!r}. For an equinox module use theta, network "
                "= pf.networks.split(module)."
            )
    theta = jax.tree.map(lambda leaf: jnp.asarray(leaf, dtype), theta)
    if shape is not None:
        got = [leaf.shape for leaf in jax.tree.leaves(theta)]
        if got != [shape]:
            raise ValueError(
                f"{name} must have shape {shape} to fit this population; got {got[0] if len(got) == 1 else got}."
                + (f" Leave {name} out to start at zeros." if got == [()] else "")
            )
    for leaf in jax.tree.leaves(theta):
        check_finite("run", **{name: leaf})
    return theta


# Structures and shapes that have passed `check_fit` in this process and need not be traced again.
_FITTING: set[Any] = set()


def check_fit(problem: Problem, theta: Theta, name: str = "theta") -> None:
    """Trace one sample and its loss, to find a mismatch before anything is compiled."""
    leaves, structure = jax.tree.flatten((problem, theta))
    seen = (structure, tuple((leaf.shape, leaf.dtype) if eqx.is_array(leaf) else leaf for leaf in leaves))
    if seen in _FITTING:
        return
    arrays, rest = eqx.partition(problem.population, eqx.is_array)

    def sample(rows: PyTree) -> PyTree:
        population = eqx.combine(rows, rest)
        world = population.init(Scene(theta, problem.loss))
        noise = population.draw(jax.random.key(0), (1,), theta)
        one = jax.tree.map(lambda leaf: leaf[0], noise)
        return population.sample(one, world, theta)

    def each(function: Callable[[PyTree], PyTree]) -> PyTree:
        return jax.eval_shape(jax.vmap(function, in_axes=(client_axes(arrays),), axis_size=problem.clients), arrays)

    z = None
    try:
        z = jax.tree.map(lambda leaf: leaf.shape[1:], each(sample))
        value = each(lambda rows: problem.loss(theta, sample(rows)))
    except Exception as error:
        shapes = [leaf.shape for leaf in jax.tree.leaves(theta)]
        raise ValueError(
            f"{name} of shape {shapes}, the population's sample and the loss are incompatible: "
            f"{_misfit(error, problem, z)}"
        ) from error
    leaves = jax.tree.leaves(value)
    if len(leaves) != 1 or leaves[0].shape[1:] != ():
        got = [leaf.shape[1:] for leaf in leaves]
        raise ValueError(f"loss must return one number for one sample; it returned an array of shape {got}.")
    if len(_FITTING) > 256:  # it keeps losses alive, so it is bounded
        _FITTING.clear()
    _FITTING.add(seen)


def _misfit(error: Exception, problem: Problem, z: PyTree) -> str:
    """Which of the three is incompatible: in our words for built-in parts, in Python's for custom ones."""
    *_, last = traceback.walk_tb(error.__traceback__)
    loss = getattr(problem.loss, "__name__", type(problem.loss).__name__)
    if isinstance(error, ValueError) and last[0].f_globals.get("__name__", "").startswith("performative."):
        return str(error)
    part: Any
    if z is None:
        part, own = problem.population, f"{type(problem.population).__name__} cannot sample for such a model."
    else:
        part, own = problem.loss, f"{loss} cannot be evaluated for such a model and a sample of shape {z}."
    ours = getattr(part, "__module__", type(part).__module__).startswith("performative.")
    return own if ours else f"{own} It raised: {(str(error) or repr(error)).splitlines()[0]}"


def place_start(problem: Problem, start: Theta, given: bool) -> Theta:
    """A start inside the domain: raise if the user's start is outside, project a default start."""
    if problem.domain is None:
        return start
    for leaf in jax.tree.leaves(start):
        problem.domain.check(leaf.shape)
    inside = problem.domain.project(start)
    pairs = zip(jax.tree_util.tree_leaves_with_path(inside), jax.tree.leaves(start), strict=True)
    gaps = [(np.abs(np.asarray(a) - np.asarray(b)), path, a, b) for (path, a), b in pairs]
    worst, path, near, far = max(gaps, key=lambda gap: np.max(gap[0], initial=0.0))
    if given and np.max(worst, initial=0.0) > 1e-5:
        at = np.unravel_index(int(np.argmax(worst)), worst.shape)
        name = "theta" + jax.tree_util.keystr(path) + (f"[{', '.join(map(str, at))}]" if at else "")
        raise ValueError(
            f"theta must start inside the domain {problem.domain}; {name} is {float(far[at]):.4g}, the nearest point "
            f"of the domain has {float(near[at]):.4g}. Start at problem.domain.project(theta), or use a larger domain."
        )
    return inside


def check_length(rounds: int, algorithm: Algorithm) -> None:
    """Raise if the clock t = round * E + e would overflow a 32-bit integer: eta(t) would wrap around."""
    if rounds * algorithm.steps >= 2**31:
        raise ValueError(
            f"rounds={rounds} of {algorithm.steps} local steps exceed the 2^31 steps that a run can count; use "
            "fewer, or several runs, each starting from the previous one's model."
        )


def check_rows(problem: Problem, algorithm: Algorithm) -> None:
    """Raise unless the batch works with every client's table, including the smallest."""
    rows = problem.population.rows
    algorithm.batch.check(None if rows is None else int(np.min(rows)))


def check_owners(problem: Unchecked[Problem], algorithm: Unchecked[Algorithm]) -> None:
    """Raise unless these are a problem and an algorithm."""
    if not isinstance(problem, Problem):
        table = " Make one of a table with pf.Problem.from_frame." if hasattr(problem, "columns") else ""
        raise ValueError(f"problem must be a pf.Problem; got {type(problem).__name__}.{table}")
    if not isinstance(algorithm, Algorithm):
        raise ValueError(
            "algorithm must be a pf.Algorithm, as a recipe such as pf.p_fedavg(...) returns; "
            f"got {type(algorithm).__name__}."
        )


def check_schedule(rate: Schedule) -> None:
    """Raise unless a custom schedule returns one number for the count of local steps."""
    try:
        shape = jax.eval_shape(lambda t: jnp.asarray(rate(t)), jnp.asarray(0)).shape
    except Exception as error:
        raise ValueError(
            f"rate must be a function of t, the count of local steps 0, 1, ..., that returns one number; it raised: "
            f"{error}"
        ) from error
    if shape != ():
        raise ValueError(f"rate must return one number for each t; it returned an array of shape {shape}.")
