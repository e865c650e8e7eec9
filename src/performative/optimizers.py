"""Optimizers that turn a direction into a direction: for a client's local steps, or for the server's move.

Each holds its numbers as leaves and builds the optax transformation while JAX traces, so that they can be swept. None
has a learning rate or changes the sign: the step is the algorithm's `rate`, or the server's.
"""

from abc import abstractmethod
from collections.abc import Callable, Mapping
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import PyTree

from performative._deprecated import old_name
from performative.errors import check_flags, check_number
from performative.facts import AbstractPart
from performative.types import Numbers, Theta, is_concrete, number

__all__ = ["AbstractOptimizer", "Adagrad", "Adam", "FromOptax", "Momentum", "RMSProp", "Yogi", "as_optimizer"]


class AbstractOptimizer(AbstractPart):
    """v -> what to step against in its place, with a state that lives where the part that holds it has its memory."""

    @abstractmethod
    def build(self) -> Any:
        """The optax transformation."""

    def start(self, theta: Theta) -> PyTree:
        """The state before the first direction."""
        with jax.numpy_dtype_promotion("standard"):
            return self.build().init(theta)

    def turn(self, direction: Theta, state: PyTree, theta: Theta) -> tuple[Theta, PyTree]:
        """The new direction at theta, and the state after it."""
        # optax mixes counts and numbers, which a strict program refuses; types are put right below.
        with jax.numpy_dtype_promotion("standard"):
            turned, after = self.build().update(direction, state, theta)
        return _typed_like(turned, direction), _typed_like(after, state)

    def settled(self, state: PyTree) -> PyTree:
        """The state once every direction has long been 1; `state` itself where there is no such thing."""
        return state


def _typed_like(tree: PyTree, model: PyTree) -> PyTree:
    return jax.tree.map(lambda new, old: jnp.asarray(new, jnp.result_type(old)), tree, model)


def _check(owner: str, share: dict[str, Any], above: dict[str, Any]) -> None:
    """Refuse averaging factors outside of [0, 1), and negative numbers."""
    check_number(owner, **share, **above)
    for name, value in share.items():
        if is_concrete(value) and not 0 <= value < 1:
            raise ValueError(f"{owner}: {name} must lie in [0, 1); got {value}.")
    for name, value in above.items():
        if is_concrete(value) and not value >= 0:
            raise ValueError(f"{owner}: {name} must not be negative; got {value}.")


# Directions of 1 after which a transformation of optax counts as settled: momentum up to a decay of 0.99.
_LONG = 2000


class Momentum(AbstractOptimizer):
    """m <- v + decay m;      the direction is m, or v + decay m with `nesterov`.

    A steady v ends as v / (1 - decay): lower the rate by that factor to compare. Polyak 1964; Nesterov 1983.
    """

    references = ("polyak1964some",)
    ignores_data = True

    decay: Numbers = number(default=0.9)
    nesterov: bool = eqx.field(static=True, default=False)

    @classmethod
    def more_references(cls, settings: Mapping[str, Any]) -> tuple[str, ...]:
        return ("nesterov1983method",) if settings.get("nesterov") else ()

    def __check_init__(self) -> None:
        _check("Momentum", {"decay": self.decay}, {})
        check_flags("Momentum", nesterov=self.nesterov)

    def build(self) -> Any:
        import optax

        return optax.trace(self.decay, self.nesterov)

    def settled(self, state: PyTree) -> PyTree:
        return jax.tree.map(lambda m: jnp.ones_like(m) / (1 - jnp.asarray(self.decay, m.dtype)), state)


class Adam(AbstractOptimizer):
    """m / (sqrt(s) + eps),      m, s moving means of v and v^2 with factors b1 and b2, corrected for their start.

    Kingma and Ba 2015. At the server this is FedAdam, for which Reddi et al. 2021 take eps = 1e-3 and no correction.
    """

    references = ("kingma2015adam",)
    ignores_data = True

    b1: Numbers = number(default=0.9)
    b2: Numbers = number(default=0.999)
    eps: Numbers = number(default=1e-8)

    def __check_init__(self) -> None:
        _check("Adam", {"b1": self.b1, "b2": self.b2}, {"eps": self.eps})

    def build(self) -> Any:
        import optax

        return optax.scale_by_adam(self.b1, self.b2, self.eps)


class Adagrad(AbstractOptimizer):
    """v / sqrt(s + eps),      s = initial + sum of v^2 so far.

    Duchi et al. 2011. At the server this is FedAdagrad of Reddi et al. 2021 without first moment.
    """

    references = ("duchi2011adaptive",)
    ignores_data = True

    initial: Numbers = number(default=0.1)
    eps: Numbers = number(default=1e-7)

    def __check_init__(self) -> None:
        _check("Adagrad", {}, {"initial": self.initial, "eps": self.eps})

    def build(self) -> Any:
        import optax

        return optax.scale_by_rss(self.initial, self.eps)


class Yogi(AbstractOptimizer):
    """Adam with s <- s - (1 - b2) sign(s - v^2) v^2: s follows a fall of v^2 no faster than v^2 itself allows.

    Zaheer et al. 2018; at the server FedYogi of Reddi et al. 2021. Differs from optax: m starts at 0, not at
    `initial`, so that v and -v are treated alike.
    """

    references = ("zaheer2018adaptive",)
    ignores_data = True

    b1: Numbers = number(default=0.9)
    b2: Numbers = number(default=0.999)
    eps: Numbers = number(default=1e-3)
    initial: Numbers = number(default=1e-6)

    def __check_init__(self) -> None:
        _check("Yogi", {"b1": self.b1, "b2": self.b2}, {"eps": self.eps, "initial": self.initial})

    def build(self) -> Any:
        import optax

        return optax.scale_by_yogi(self.b1, self.b2, self.eps, 0.0, self.initial)

    def start(self, theta: Theta) -> PyTree:
        state = super().start(theta)
        return state._replace(mu=jax.tree.map(jnp.zeros_like, state.mu))


class RMSProp(AbstractOptimizer):
    """v / sqrt(s + eps),      s a moving mean of v^2 that starts at `initial`.

    Hinton 2012. From initial = 0 the first step is 1 / sqrt(1 - decay) long, whatever v is.
    """

    references = ("tieleman2012rmsprop",)
    ignores_data = True

    decay: Numbers = number(default=0.9)
    eps: Numbers = number(default=1e-8)
    initial: Numbers = number(default=0.0)

    def __check_init__(self) -> None:
        _check("RMSProp", {"decay": self.decay}, {"eps": self.eps, "initial": self.initial})

    def build(self) -> Any:
        import optax

        return optax.scale_by_rms(self.decay, self.eps, self.initial)

    def settled(self, state: PyTree) -> PyTree:
        return jax.tree.map(jnp.ones_like, state)


class FromOptax(AbstractOptimizer):
    """Any `optax.GradientTransformation` that keeps the sign, such as `optax.scale_by_lion()`.

    Its numbers are part of the program: another one, even one made anew with the same numbers, compiles again. Those
    of this module do not.
    """

    references = ()
    ignores_data = True

    init: Callable[..., Any] = eqx.field(static=True)
    update: Callable[..., Any] = eqx.field(static=True)

    def build(self) -> Any:
        import optax

        return optax.GradientTransformation(self.init, self.update)

    def settled(self, state: PyTree) -> PyTree:
        one = jnp.ones(())
        return jax.lax.fori_loop(0, _LONG, lambda _, state: self.turn(one, state, one)[1], state)


def as_optimizer(tx: Any) -> Any:
    """An optimizer stays what it is; an optax transformation is held as it is, if it keeps the sign."""
    if isinstance(tx, AbstractOptimizer):
        return tx
    if not (callable(getattr(tx, "init", None)) and callable(getattr(tx, "update", None))):
        raise ValueError(
            "tx must be an optimizer such as pf.optimizers.Momentum(0.9), or an optax transformation such as "
            f"optax.scale_by_adam(); got {tx!r}."
        )
    given = FromOptax(tx.init, tx.update)
    if _turns_back(given):
        raise ValueError(
            "tx turns a direction of 1 into a negative one: it holds a learning rate, as optax.adam(1e-3) does. Leave "
            "that out (optax.scale_by_adam(), pf.optimizers.Adam()): the step is the algorithm's rate."
        )
    return given


def _turns_back(given: FromOptax) -> bool:
    """Whether a direction of 1 comes out negative. One that serves only a model of its own shape is not tried."""
    one = jnp.ones(())
    try:
        with jax.ensure_compile_time_eval():
            return bool(given.turn(one, given.start(one), one)[0] < 0)
    except Exception:
        return False


def __getattr__(name: str) -> object:
    return old_name(__name__, name)
