"""The fraction of a client's samples from each group, as a function of the deployed model."""

from abc import abstractmethod
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int, PyTree

from performative._base.checks import check_rule
from performative.facts import AbstractPart
from performative.populations.columns import as_columns, check_columns, check_numbers, check_sum, check_theta
from performative.types import Numbers, Scene, Theta, is_concrete, per_client

__all__ = ["AbstractShare", "Budgets", "Constant", "Linear", "Logit", "Losses"]

# The merit of all others for people who have no alternative.
_NOWHERE = -1e30


def scale_to_one(raw: Float[Array, " K"]) -> Float[Array, " K"]:
    """Normalize numbers >= 0 to shares; if all are 0, the shares are equal."""
    total = jnp.sum(raw)
    return jnp.where(total > 0, raw / jnp.where(total > 0, total, 1), 1 / len(raw))


def pick(which: Float[Array, ""], share: Float[Array, " K"]) -> Int[Array, ""]:
    """The group whose interval of (0, 1) contains `which`; a negative `which` selects group -1 - which directly."""
    edges = jnp.cumsum(share).astype(which.dtype)
    drawn = jnp.sum(which * edges[-1] >= edges[:-1], dtype=jnp.int32)
    return jnp.where(which < 0, (-1 - which).astype(jnp.int32), drawn)


class AbstractShare(AbstractPart):
    """nu(theta), written for ONE client: the probability that a sample comes from group k = 0, 1, ...

    Values outside the simplex are clipped and scaled to sum to one.
    """

    @property
    @abstractmethod
    def groups(self) -> int:
        """K."""

    @property
    def reacts(self) -> bool:
        """Whether the shares depend on theta."""
        return True

    def fixed(self) -> tuple[Any, ...] | None:
        """The share of each group, a number or [N], if theta does not move them; else None."""
        return None

    @property
    def reads_models(self) -> bool:
        """Whether the shares depend on models other than people's own: then `remember` and `beside` are used."""
        return False

    def remember(self, scene: Scene) -> PyTree:
        """What people know about the other models of a scene."""
        return None

    def beside(self, theta: Theta, others: PyTree) -> Float[Array, " K"]:
        """The shares under theta, given what people know about the other models."""
        return self(theta)

    @abstractmethod
    def __call__(self, theta: Theta) -> Float[Array, " K"]:
        """The shares under the deployed model theta, which are >= 0 and sum to one."""


class Constant(AbstractShare):
    """Constant shares.

        nu_{i,k} = share_{i,k}

    `share` [K], or [N, K]: rows of 0 and 1 give each client its own group.
    """

    references = ()

    share: Any = per_client(converter=as_columns)

    def __check_init__(self) -> None:
        check_columns("Constant", share=self.share)
        if is_concrete(self.share) and (least := min(np.min(entry) for entry in self.share.entries)) < 0:
            raise ValueError(f"Constant: share must not be negative; the smallest is {least:g}.")
        check_sum("Constant", "share", self.share, 1.0)

    @property
    def groups(self) -> int:
        return len(self.share.entries)

    @property
    def reacts(self) -> bool:
        return False

    def fixed(self) -> tuple[Any, ...]:
        return tuple(self.share.entries)

    def __call__(self, theta: Theta) -> Array:
        return scale_to_one(self.share.stack())


class Linear(AbstractShare):
    """Shares that are linear in the model.

        nu_{i,k}(theta) = level_{i,k} + slope_{i,k} . theta

    `level` [K] or [N, K] sums to one over the groups, `slope` to zero: the same shapes for a number theta, [N, K, d]
    for a vector. Outside the simplex the shares are clipped to [0, 1] and scaled to sum to one. Zheng et al. 2024,
    Appendix D.2.2: level = (0.5, 0.5), slope = (0.5, -0.5).
    """

    references = ("zheng2024profl",)

    level: Any = per_client(converter=as_columns)
    slope: Any = per_client(converter=as_columns)

    def __check_init__(self) -> None:
        check_columns("Linear", level=self.level, slope=self.slope)
        if np.ndim(self.level.entries[0]) > 1:
            raise ValueError("Linear: level must be [K] or [N, K]; it has one axis too many.")
        if len(self.level.entries) != len(self.slope.entries):
            counts = f"{len(self.level.entries)} and {len(self.slope.entries)}"
            raise ValueError(f"Linear: level and slope need one entry for each group; they have {counts}.")
        check_sum("Linear", "level", self.level, 1.0)
        check_sum("Linear", "slope", self.slope, 0.0)

    @property
    def groups(self) -> int:
        return len(self.level.entries)

    def __call__(self, theta: Theta) -> Array:
        check_theta("Linear", "slope", self.slope, theta)
        return scale_to_one(jnp.clip(self.level.stack() + self.slope.inner(theta), 0, 1))


class Budgets(AbstractShare):
    """Groups participate in proportion to the money that prices theta leave them.

        nu_{i,k}(theta) = r_{i,k} / sum_j r_{i,j},      r_{i,k} = max(budget_i - theta . demand_{i,k}, 0)

    `demand` [K] or [N, K] for one price, [N, K, d] for d; `budget` a number or [N].
    Zheng et al. 2024, Section 6, pricing with dynamic contribution. Differs from the paper, where r may turn
    negative: a group that has spent its budget leaves, and if all have, the shares are equal.
    """

    references = ("zheng2024profl",)

    demand: Any = per_client(converter=as_columns)
    budget: Numbers = per_client()

    def __check_init__(self) -> None:
        check_columns("Budgets", demand=self.demand)
        check_numbers("Budgets", budget=self.budget)

    @property
    def groups(self) -> int:
        return len(self.demand.entries)

    def __call__(self, theta: Theta) -> Array:
        check_theta("Budgets", "demand", self.demand, theta)
        return scale_to_one(jnp.maximum(self.budget - self.demand.inner(theta), 0))


class Logit(AbstractShare):
    """People of several kinds who choose the model that is best for them: customers who switch banks.

        s_{k,i} = exp(sharpness u_k(theta_i)) / sum_j exp(sharpness u_k(theta_j)),      u_k(theta) = merit_k . theta
        nu_{i,k} = size_k s_{k,i} / sum_l size_l s_{l,i}

    s_{k,i} is the share of people of kind k who choose bank i, nu_{i,k} is their fraction of bank i's customers. `size`
    [K] or [N, K] is the number of people of each kind; `merit` [K] or [N, K] for a number theta, [N, K, d] for a
    vector; `sharpness` >= 0 is a number or [N]: at 0 they choose at random. The other models enter through log sum_j
    exp(sharpness u_k(theta_j)), one number per kind, whatever the number of banks. If one model is deployed for all,
    there is no choice. Dean et al. 2022; Ginart et al. 2021.
    """

    references = ("dean2022emergent", "ginart2021competing")

    size: Any = per_client(converter=as_columns)
    merit: Any = per_client(converter=as_columns)
    sharpness: Numbers = per_client(default=1.0)

    def __check_init__(self) -> None:
        check_columns("Logit", size=self.size, merit=self.merit)
        check_numbers("Logit", sharpness=self.sharpness)
        check_rule("Logit", "must not be negative", sharpness=self.sharpness)
        if np.ndim(self.size.entries[0]) > 1:
            raise ValueError("Logit: size must be [K] or [N, K]; it has one axis too many.")
        if len(self.size.entries) != len(self.merit.entries):
            counts = f"{len(self.size.entries)} and {len(self.merit.entries)}"
            raise ValueError(f"Logit: size and merit need one entry for each group; they have {counts}.")
        if is_concrete(self.size):
            sizes = np.stack(np.broadcast_arrays(*self.size.entries))
            if np.min(sizes) < 0 or np.min(np.sum(sizes, axis=0)) <= 0:
                raise ValueError(
                    f"Logit: size must be >= 0, and not 0 for all groups; the smallest is {np.min(sizes):g}."
                )

    @property
    def groups(self) -> int:
        return len(self.size.entries)

    @property
    def reads_models(self) -> bool:
        return True

    def remember(self, scene: Scene) -> Float[Array, " K"]:
        each, other = scene.others(self._merit)
        if each.shape[0] == 1:
            return jnp.full(each.shape[1:], _NOWHERE, each.dtype)
        return jax.nn.logsumexp(jnp.where(other[:, None], each, -jnp.inf), axis=0)

    def chosen(self, theta: Theta, others: Float[Array, " K"]) -> Float[Array, " K"]:
        """s_k: the share of people of each kind who come."""
        return jax.nn.sigmoid(self._merit(theta) - others)

    def beside(self, theta: Theta, others: Float[Array, " K"]) -> Float[Array, " K"]:
        # In logarithms: if people of all kinds have left, the last to leave still has a share.
        size = self.size.stack()
        known = jnp.log(jnp.where(size > 0, size, 1))
        return jax.nn.softmax(jnp.where(size > 0, known + jax.nn.log_sigmoid(self._merit(theta) - others), -jnp.inf))

    def __call__(self, theta: Theta) -> Array:
        return self.beside(theta, jnp.full((self.groups,), _NOWHERE, jnp.result_type(float)))

    def _merit(self, theta: Theta) -> Array:
        check_theta("Logit", "merit", self.merit, theta)
        return self.sharpness * self.merit.inner(theta)


class Losses(AbstractShare):
    """Two groups y = slope_k x + noise; one grows as the other is served worse.

        nu_{i,k}(theta) = (l_{i,-k} + c_i) / (l_{i,0} + l_{i,1} + 2 c_i)
        l_{i,k}(theta) = (theta - slope_{i,k})^2 E[x^2] + noise_i^2

    `slope` [2] or [N, 2] for a number theta, [N, 2, d] for a vector with E[x x^T] = second_moment I; `second_moment`,
    `noise` (a standard deviation) and `offset` c are numbers or [N], and not negative.
    Zheng et al. 2024, Section 6, regression with dynamic contribution.
    """

    references = ("zheng2024profl",)

    slope: Any = per_client(converter=as_columns)
    second_moment: Numbers = per_client()
    noise: Numbers = per_client()
    offset: Numbers = per_client(default=0.0)

    def __check_init__(self) -> None:
        check_columns("Losses", slope=self.slope)
        if len(self.slope.entries) != 2:
            raise ValueError(f"Losses: slope must have two groups; got {len(self.slope.entries)}.")
        numbers = {"second_moment": self.second_moment, "noise": self.noise, "offset": self.offset}
        check_numbers("Losses", **numbers)
        check_rule("Losses", "must not be negative", **numbers)

    @property
    def groups(self) -> int:
        return 2

    def __call__(self, theta: Theta) -> Array:
        check_theta("Losses", "slope", self.slope, theta)
        miss = jnp.stack([jnp.sum(jnp.square(theta - slope)) for slope in self.slope.entries])
        return scale_to_one((miss * self.second_moment + jnp.square(self.noise) + self.offset)[::-1])
