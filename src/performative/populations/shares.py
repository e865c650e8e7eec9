"""How many of a client's samples come from each group, as a function of the deployed model."""

from abc import abstractmethod
from typing import Any

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from performative._base.checks import check_rule
from performative.facts import AbstractPart
from performative.populations.columns import as_columns, check_columns, check_numbers, check_sum, check_theta
from performative.types import Numbers, Theta, is_concrete, per_client

__all__ = ["AbstractShare", "Budgets", "Constant", "Linear", "Losses"]


def scale_to_one(raw: Float[Array, " K"]) -> Float[Array, " K"]:
    """Numbers >= 0 as shares; where nothing is left, all groups are alike."""
    total = jnp.sum(raw)
    return jnp.where(total > 0, raw / jnp.where(total > 0, total, 1), 1 / len(raw))


def pick(which: Float[Array, ""], share: Float[Array, " K"]) -> Int[Array, ""]:
    """The group in whose stretch of (0, 1) `which` falls; a negative `which` names group -1 - which outright."""
    edges = jnp.cumsum(share).astype(which.dtype)
    drawn = jnp.sum(which * edges[-1] >= edges[:-1], dtype=jnp.int32)
    return jnp.where(which < 0, (-1 - which).astype(jnp.int32), drawn)


class AbstractShare(AbstractPart):
    """nu(theta), written for ONE client: the chance that a sample comes from group k = 0, 1, ...

    Numbers that leave the simplex are clipped and scaled to sum to one.
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
        """The share of each group, a number or [N], where theta does not move them; else None."""
        return None

    @abstractmethod
    def __call__(self, theta: Theta) -> Float[Array, " K"]:
        """The shares under the deployed model theta, >= 0 and with sum one."""


class Constant(AbstractShare):
    """Shares that stay.

        nu_{i,k} = share_{i,k}

    `share` [K], or [N, K]: rows of 0 and 1 give each client a group of its own.
    """

    references = ()

    share: Any = per_client(converter=as_columns)

    def __check_init__(self) -> None:
        check_columns("Constant", share=self.share)
        if is_concrete(self.share) and (least := min(np.min(entry) for entry in self.share.entries)) < 0:
            raise ValueError(f"Constant: share must not be negative; the least is {least:g}.")
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
    """Shares that follow the model linearly.

        nu_{i,k}(theta) = level_{i,k} + slope_{i,k} . theta

    `level` [K] or [N, K] sums to one over the groups, `slope` to zero: the same shapes for a number theta, [N, K, d]
    for a vector. Beyond the simplex the shares are clipped to [0, 1] and scaled to sum to one.
    Zheng et al. 2024, Appendix D.2.2: level = (0.5, 0.5), slope = (0.5, -0.5).
    """

    references = ("zheng2024profl",)

    level: Any = per_client(converter=as_columns)
    slope: Any = per_client(converter=as_columns)

    def __check_init__(self) -> None:
        check_columns("Linear", level=self.level, slope=self.slope)
        if np.ndim(self.level.entries[0]) > 1:
            raise ValueError("Linear: level must be [K] or [N, K]; it has one axis more.")
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
    """Groups stay by the money that prices theta leave them.

        nu_{i,k}(theta) = r_{i,k} / sum_j r_{i,j},      r_{i,k} = max(budget_i - theta . demand_{i,k}, 0)

    `demand` [K] or [N, K] for one price, [N, K, d] for d; `budget` a number or [N].
    Zheng et al. 2024, Section 6, pricing with dynamic contribution. Differs from the paper, where r may turn
    negative: a group that has spent its budget is gone, and where all have, the groups are alike.
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
            raise ValueError(f"Losses: slope must hold two groups; got {len(self.slope.entries)}.")
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
