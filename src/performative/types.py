"""The records passed between parts, and the kinds of field that parts consist of."""

import functools
import operator
from abc import abstractmethod
from collections.abc import Callable
from typing import TYPE_CHECKING, Annotated, Any, Generic

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int, PyTree
from typing_extensions import TypeVar

# For authors of parts.
__all__ = [
    "Batch",
    "Broadcast",
    "ClientMemory",
    "Cohort",
    "Draws",
    "Estimate",
    "Local",
    "Scene",
    "ServerMemory",
    "State",
    "Upload",
]

# Trees of arrays: a model, what parts draw, one sample z. A static checker treats a `PyTree` as Any.
Theta = PyTree
Noise = PyTree
Sample = PyTree
Loss = Callable[[Theta, Sample], Array]
# Indices of table rows to draw.
RowNumbers = Int[Array | np.ndarray, "..."]
# What a part, or a client's data, remember from one round to the next: None for nothing. A part declares it
# (`AbstractChannel[None]`); one that does not may remember anything.
Memory = TypeVar("Memory", default=Any)
World = TypeVar("World", default=Any)
# User input is typed for static checkers, but not at run time: our own checks are more informative than a TypeError.
if TYPE_CHECKING:
    from numpy.typing import ArrayLike as ArrayLike

    T = TypeVar("T")
    Unchecked = Annotated[T, "refused by our own checks"]
else:
    ArrayLike = Any

    class Unchecked:
        def __class_getitem__(cls, _: object) -> object:
            return Any


class AbstractTable(eqx.Module):
    """A replacement for an array [N, m, ...] in a table field; `performative.tables` has some.

    It is indexed by sample once it has been sliced to one client, and has an array's shape and dtype. `scale` is the
    factor on stored values; without one, integers stay integers.
    """

    scale: eqx.AbstractVar[Any]
    __iter__ = None  # otherwise Python would try 0, 1, 2, ...

    @property
    @abstractmethod
    def shape(self) -> tuple[int, ...]: ...

    @property
    @abstractmethod
    def dtype(self) -> np.dtype: ...

    @property
    def ndim(self) -> int:
        return len(self.shape)

    def __len__(self) -> int:
        return self.shape[0]

    @abstractmethod
    def __getitem__(self, sample: ArrayLike | slice) -> Array: ...

    def __array__(self, *_: Any, **__: Any) -> np.ndarray:
        raise TypeError(
            f"{type(self).__name__} is read row by row and cannot be read as a whole; pass an array if all of it is "
            "needed at once."
        )


# The type of a numeric field: host arrays until `run` moves them to the device. Shapes are in the docstrings.
if TYPE_CHECKING:
    Numbers = Any
    Counts = Any
else:
    Numbers = Float[Array | np.ndarray | AbstractTable, "..."]
    Counts = Int[Array | np.ndarray | AbstractTable, "..."]


def as_array(value: ArrayLike) -> np.ndarray:
    """A NumPy array; ragged rows become one object array, which the checks refuse."""
    try:
        return np.asarray(value)
    except ValueError:
        array = np.empty((), object)
        array[()] = value
        return array


def as_numbers(value: ArrayLike | None) -> Any:
    """Host numbers become float64 NumPy arrays, so nothing is lost before `run` picks a precision."""
    if isinstance(value, jax.Array) or value is None:
        return value
    if isinstance(value, AbstractTable):
        whole = jnp.issubdtype(value.dtype, jnp.integer)
        return eqx.tree_at(lambda t: t.scale, value, np.asarray(1.0), is_leaf=lambda t: t is None) if whole else value
    array = as_array(value)
    return array.astype(np.float64, copy=False) if array.dtype.kind in "buif" else array


def number(**options: Any) -> Any:
    """A numeric field: a leaf, so a sweep can vary it without recompilation."""
    return eqx.field(converter=as_numbers, **options)


def as_whole(value: object) -> Any:
    """Convert NumPy integers to Python's, which can be static; anything else is left to the checks."""
    return int(value) if isinstance(value, np.integer) else value


def as_words(value: object) -> tuple[str, ...]:
    """Sentences as a tuple; a single string is allowed."""
    words = (value,) if isinstance(value, str) else tuple(value) if isinstance(value, (list, tuple)) else None
    if words is None or not all(isinstance(word, str) for word in words):
        raise ValueError(f"from_data must be a sentence, or a list of sentences; got {value!r}.")
    return words


def whole(**options: Any) -> Any:
    """An integer field that sets a shape or selects code: static, so another value triggers recompilation.

    JAX does not trace it, unlike `number()`: `jnp.zeros(self.k)` and `range(self.k)` work.
    """
    return eqx.field(static=True, converter=as_whole, **options)


def per_client(*, table: bool = False, converter: Callable[[Any], Any] = as_numbers, **options: Any) -> Any:
    """A field with one row per client on its leading axis; a plain number is shared by all clients.

    `table=True` marks a client's whole data table. Such rows are looked up sample by sample instead of being copied for
    every participating client.
    """
    return eqx.field(converter=converter, metadata={"per_client": True, "table": table}, **options)


def is_concrete(value: PyTree) -> bool:
    """Whether the values can be read now (not while JAX traces, nor in a table that is read by rows)."""
    return not isinstance(value, AbstractTable) and not any(
        isinstance(leaf, jax.core.Tracer) for leaf in jax.tree.leaves(value)
    )


class Scene(eqx.Module):
    """What a client's people see when a model is deployed.

    Args:
        theta: the model that these people see
        loss: l(theta; z), for people whose reaction follows it
        time: simulated time since the start; None if not tracked
        models: all deployed models, [players, ...], including those of others; None if there is only one, or if the
            population does not read them
        player: which of them these people see; None if `models` is
    """

    theta: Theta
    loss: Loss
    time: Float[Array, ""] | None = None
    models: PyTree = None
    player: Int[Array, ""] | None = None

    def meeting(self, theta: Theta) -> "Scene":
        """The same scene for people who see another model."""
        return Scene(theta, self.loss, self.time, self.models, self.player)

    def others(self, function: Callable[[Theta], Array]) -> tuple[Array, Bool[Array, " players"]]:
        """function(model) of each model, [players, ...], and which of them are not `theta`.

        If there is only one model, no row belongs to another.
        """
        if self.models is None or self.player is None:
            return function(self.theta)[None], jnp.zeros((1,), bool)
        each = jax.vmap(function)(self.models)
        return each, jnp.not_equal(jnp.arange(each.shape[0], dtype=jnp.int32), self.player)


class Cohort(eqx.Module):
    """Who takes part in one round: K rows, independent of N.

    `weight` contains a_i, the factor of client i's update. `active` is None if every row is real; padding rows have the
    id N. `steps` contains tau_i, or None if all do E steps. `elapsed` is the time that the server waited. `age` counts
    the rounds since each client took its model, None if all start from the newest.
    """

    ids: Int[Array, " K"]
    weight: Float[Array, " K"]
    active: Bool[Array, " K"] | None = None
    steps: Int[Array, " K"] | None = None
    elapsed: Float[Array, ""] | float = 0.0
    age: Int[Array, " K"] | None = None

    @property
    def present(self) -> Bool[Array, " K"]:
        """Rows that are real clients."""
        return jnp.ones(self.ids.shape, bool) if self.active is None else self.active


class Broadcast(eqx.Module):
    """What the server sends: the model, the deployed model, the aggregator's extra, the round.

    `steps` is E; `clients` is K, the number of clients of the round; `time` is the simulated time at its start, None if
    not tracked; `models` are all deployed models, [players, ...], None if the population reads none. `past` contains
    what was sent in the last rounds, if clients may still be training on it.
    """

    theta: Theta
    deployed: Theta
    extra: PyTree
    round: Int[Array, ""]
    steps: int = eqx.field(static=True)
    clients: int = eqx.field(static=True, default=1)
    time: Float[Array, ""] | None = None
    models: PyTree = None
    past: PyTree = None

    @property
    def clock(self) -> Int[Array, ""]:
        """t = round * E, the global count of local steps at the start of the round."""
        return self.round * self.steps

    def sent(self) -> PyTree:
        """The part that `past` keeps."""
        return self.theta, self.deployed, self.extra, self.time

    def ago(self, age: Int[Array, ""]) -> "Broadcast":
        """What was sent `age` rounds ago; `past` must go back that far."""
        rows = jax.tree.leaves(self.past)[0].shape[0]
        theta, deployed, extra, time = jax.tree.map(lambda leaf: leaf[(self.round - age) % rows], self.past)
        return Broadcast(theta, deployed, extra, self.round - age, self.steps, self.clients, time, self.models)


class Upload(eqx.Module):
    """What a client returns: delta = theta_i - broadcast theta, always; models are never averaged.

    `effective_step` is how far its local steps would have moved had every gradient been 1: the sum of eta for plain
    steps. `loss` is the mean loss of its batches, None if not requested. `world_metrics` describes how its world moved.
    """

    delta: Theta
    steps: Int[Array, ""]
    extra: PyTree
    metrics: dict[str, Array]
    effective_step: Float[Array, ""] | None = None
    loss: Float[Array, ""] | None = None
    world_metrics: dict[str, Array] = eqx.field(default_factory=dict)

    def to_aggregate(self) -> "Upload":
        """What an aggregator sees: without the totals, the loss and the world's metrics, which no noise protects."""
        return eqx.tree_at(
            lambda upload: (upload.metrics, upload.loss, upload.world_metrics), self, ({}, None, {}),
            is_leaf=lambda leaf: leaf is None or isinstance(leaf, dict),
        )  # fmt: skip


class Batch(eqx.Module):
    """Samples of one local step, with their randomness. `mask` is None if all rows count.

    `group` is the group of each sample, None if the population has no groups.
    """

    z: Sample
    noise: Noise
    mask: Bool[Array, " n"] | None
    group: Int[Array, " n"] | None = None

    @property
    def rows(self) -> int:
        """n, including masked rows."""
        return jax.tree.leaves(self.z)[0].shape[0]


class Local(eqx.Module):
    """What a client knows while it computes a direction. `client` is its index, None if it has none.

    `expected` is the mean size of its batches, a constant of the sampler; None if it is the size of this one.
    `player` is its model's index in `broadcast.models`, None if there are none.
    """

    loss: Loss
    population: PyTree
    world: PyTree
    deployed: Theta
    broadcast: Broadcast
    clock: Int[Array, ""]
    rate: Float[Array, ""]
    client: Int[Array, ""] | None = None
    expected: Array | float | None = None
    player: Int[Array, ""] | None = None


class Estimate(eqx.Module, Generic[Memory]):
    """A direction to step against, the estimator's new memory, and counts that the round sums.

    A count that is the same at every step is a plain number, which costs nothing. `facts` are for a wrapper around the
    estimator (such as the size of the gradient or the Jacobian); they are not recorded.
    """

    direction: Theta
    memory: Memory
    metrics: dict[str, Array | int]
    facts: dict[str, Array] = eqx.field(default_factory=dict)


class Draws(eqx.Module):
    """Random numbers drawn in advance for a client's round; None if parts draw them from their keys.

    Args:
        data: the batch's noise and its mask. Noise of estimator and channel may come from the system's entropy instead.
    """

    data: tuple[Noise, Array | None] | None = None
    estimator: Noise = None
    channel: Noise = None


class ClientMemory(eqx.Module):
    """All that a client remembers between rounds; None if a part has no memory."""

    world: PyTree
    batch: PyTree
    estimator: PyTree
    channel: PyTree
    own: PyTree = None  # the client's own part of its model
    seen: PyTree = None  # `own` when last deployed, if not every round


class ServerMemory(eqx.Module):
    """All that the server remembers between rounds besides the model; None if a part has no memory."""

    participation: PyTree
    aggregator: PyTree
    sharing: PyTree = None  # how often each entry was trained


class State(eqx.Module):
    """The state of a run from one round to the next."""

    theta: Theta
    deployed: Theta
    clients: ClientMemory
    server: ServerMemory
    round: Int[Array, ""]
    participation: PyTree  # sum of a_i so far, a `Total` of [N]; None if known in advance
    time: PyTree = None  # simulated time so far, a `Total`; None if no population reads it
    past: PyTree = None  # what was sent in the last rounds, round r in row r mod rows; None if nobody needs it


def masked_mean(values: PyTree, mask: Bool[Array, " n"] | None) -> PyTree:
    """Mean over the leading axis, over the rows that the mask keeps. Dropped rows may contain anything."""
    if mask is None:
        return jax.tree.map(lambda v: jnp.mean(v, axis=0), values)
    count = jnp.maximum(jnp.sum(mask), 1)

    def mean(v: Array) -> Array:
        keep = mask.reshape(mask.shape + (1,) * (v.ndim - 1))
        return jnp.sum(jnp.where(keep, v, 0), axis=0) / count.astype(v.dtype)

    return jax.tree.map(mean, values)


def squared_norm(tree: PyTree) -> Array:
    """Sum of squares over all leaves."""
    return functools.reduce(operator.add, (jnp.sum(jnp.square(leaf)) for leaf in jax.tree.leaves(tree)))
