"""Optimizers that map a direction to a direction: for a client's local steps, or for the server's move.

Each stores its numbers as leaves and builds the optax transformation while JAX traces, so they can be swept. None has a
learning rate or changes the sign: the step size is the algorithm's `rate`, or the server's. Unlike that of
`optax.inject_hyperparams`, the state contains only moments, not the numbers: it is kept, sent and stored once per
client.
"""

import dataclasses
from abc import abstractmethod
from collections.abc import Callable, Mapping
from typing import Any, ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import PyTree

from performative._base.checks import check_flags, check_number
from performative._deprecated import old_name
from performative.facts import AbstractPart
from performative.types import Numbers, Theta, is_concrete, number

__all__ = ["AbstractOptimizer", "Adagrad", "Adam", "FromOptax", "Momentum", "RMSProp", "Yogi", "as_optimizer"]

# Directions of 1 after which an optax transformation counts as settled: momentum up to a decay of 0.99.
_LONG = 2000


class AbstractOptimizer(AbstractPart):
    """v -> a new direction to step against, with a state in the memory of the part that contains it."""

    @abstractmethod
    def build(self) -> Any:
        """The optax transformation."""

    def start(self, theta: Theta) -> PyTree:
        """The state before the first direction."""
        with jax.numpy_dtype_promotion("standard"):
            return self.build().init(theta)

    def turn(self, direction: Theta, state: PyTree, theta: Theta) -> tuple[Theta, PyTree]:
        """The new direction at theta, and the state after it."""
        # optax mixes ints and floats, which strict promotion refuses; dtypes are restored below.
        with jax.numpy_dtype_promotion("standard"):
            new = self.build().update(direction, state, theta)
        return jax.tree.map(lambda one, old: jnp.asarray(one, jnp.result_type(old)), new, (direction, state))

    def settled(self, state: PyTree) -> PyTree:
        """The limiting state if every direction is 1; `state` itself if there is none."""
        return state


class _Rule(AbstractOptimizer):
    """An optax transformation by name, called with the fields in order: averaging factors, and sizes."""

    rule: ClassVar[str]

    def __check_init__(self) -> None:
        owner = type(self).__name__
        for name, value in _fields(self).items():
            if name == "nesterov":
                check_flags(owner, nesterov=value)
                continue
            check_number(owner, **{name: value})
            if is_concrete(value) and name in ("decay", "b1", "b2") and not 0 <= value < 1:
                raise ValueError(f"{owner}: {name} must lie in [0, 1); got {value}.")
            if is_concrete(value) and not value >= 0:
                raise ValueError(f"{owner}: {name} must not be negative; got {value}.")

    def build(self) -> Any:
        import optax

        return getattr(optax, self.rule)(*_fields(self).values())


def _fields(part: AbstractOptimizer) -> dict[str, Any]:
    return {field.name: getattr(part, field.name) for field in dataclasses.fields(part)}


class Momentum(_Rule):
    """m <- v + decay m;      the direction is m, or v + decay m with `nesterov`.

    A constant v converges to v / (1 - decay): lower the rate by that factor to compare. Polyak 1964; Nesterov 1983.
    """

    references = ("polyak1964some",)
    ignores_data = True
    rule = "trace"

    decay: Numbers = number(default=0.9)
    nesterov: bool = eqx.field(static=True, default=False)

    @classmethod
    def more_references(cls, settings: Mapping[str, Any]) -> tuple[str, ...]:
        return ("nesterov1983method",) if settings.get("nesterov") else ()

    def settled(self, state: PyTree) -> PyTree:
        return jax.tree.map(lambda m: jnp.ones_like(m) / (1 - jnp.asarray(self.decay, m.dtype)), state)


class Adam(_Rule):
    """m / (sqrt(s) + eps),      m, s moving averages of v and v^2 with factors b1 and b2, bias-corrected.

    Kingma and Ba 2015. At the server this is FedAdam, for which Reddi et al. 2021 use eps = 1e-3 and no correction.
    """

    references = ("kingma2015adam",)
    ignores_data = True
    rule = "scale_by_adam"

    b1: Numbers = number(default=0.9)
    b2: Numbers = number(default=0.999)
    eps: Numbers = number(default=1e-8)


class Adagrad(_Rule):
    """v / sqrt(s + eps),      s = initial + sum of v^2 so far.

    Duchi et al. 2011. At the server this is FedAdagrad of Reddi et al. 2021 without first moment.
    """

    references = ("duchi2011adaptive",)
    ignores_data = True
    rule = "scale_by_rss"

    initial: Numbers = number(default=0.1)
    eps: Numbers = number(default=1e-7)


class Yogi(_Rule):
    """Adam with s <- s - (1 - b2) sign(s - v^2) v^2: s decreases no faster than v^2 itself allows.

    Zaheer et al. 2018; at the server FedYogi of Reddi et al. 2021. Differs from optax: m starts at 0, not at
    `initial`, so v and -v are treated alike.
    """

    references = ("zaheer2018adaptive",)
    ignores_data = True
    rule = "scale_by_yogi"

    b1: Numbers = number(default=0.9)
    b2: Numbers = number(default=0.999)
    eps: Numbers = number(default=1e-3)
    initial: Numbers = number(default=1e-6)

    def build(self) -> Any:
        import optax

        return optax.scale_by_yogi(self.b1, self.b2, self.eps, 0.0, self.initial)

    def start(self, theta: Theta) -> PyTree:
        state = super().start(theta)
        return state._replace(mu=jax.tree.map(jnp.zeros_like, state.mu))


class RMSProp(_Rule):
    """v / sqrt(s + eps),      s a moving average of v^2 that starts at `initial`.

    Hinton 2012. From initial = 0 the first step is 1 / sqrt(1 - decay) long, whatever v is.
    """

    references = ("tieleman2012rmsprop",)
    ignores_data = True
    rule = "scale_by_rms"

    decay: Numbers = number(default=0.9)
    eps: Numbers = number(default=1e-8)
    initial: Numbers = number(default=0.0)

    def settled(self, state: PyTree) -> PyTree:
        return jax.tree.map(jnp.ones_like, state)


class FromOptax(AbstractOptimizer):
    """Any `optax.GradientTransformation` that keeps the sign, such as `optax.scale_by_lion()`.

    Its numbers are part of the program: another instance, even one created with the same numbers, is recompiled. The
    optimizers of this module are not.
    """

    references = ()
    ignores_data = True

    init: Callable[..., Any] = eqx.field(static=True)
    update: Callable[..., Any] = eqx.field(static=True)

    def build(self) -> Any:
        return self  # it has the interface of optax

    def settled(self, state: PyTree) -> PyTree:
        one = jnp.ones(())
        return jax.lax.fori_loop(0, _LONG, lambda _, state: self.turn(one, state, one)[1], state)


def as_optimizer(tx: Any) -> Any:
    """Return an optimizer unchanged; wrap an optax transformation if it keeps the sign."""
    if isinstance(tx, AbstractOptimizer):
        return tx
    if not (callable(getattr(tx, "init", None)) and callable(getattr(tx, "update", None))):
        raise ValueError(
            "tx must be an optimizer such as pf.optimizers.Momentum(0.9), or an optax transformation such as "
            f"optax.scale_by_adam(); got {tx!r}."
        )
    given, one = FromOptax(tx.init, tx.update), jnp.ones(())
    try:  # one that only works for a specific model shape is not tested
        with jax.ensure_compile_time_eval():
            turns_back = bool(given.turn(one, given.start(one), one)[0] < 0)
    except Exception:
        turns_back = False
    if turns_back:
        raise ValueError(
            "tx turns a direction of 1 into a negative one: it contains a learning rate, as optax.adam(1e-3) does. "
            "Remove it (optax.scale_by_adam(), pf.optimizers.Adam()): the step size is the algorithm's rate."
        )
    return given


def __getattr__(name: str) -> object:
    return old_name(__name__, name)
