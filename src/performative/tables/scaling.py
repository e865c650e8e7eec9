"""Center and spread of a table's columns, and warnings about unusual ones."""

from collections.abc import Mapping

import numpy as np
from jaxtyping import Bool, Float

from performative._base.checks import is_one_of, nearest
from performative._base.messages import warn
from performative.types import ArrayLike, Unchecked

Standardize = bool | str | Mapping[str, tuple[float, float]]

_RULE = 'standardize must be True, False, "robust" or {feature: (mean, standard deviation)} for every feature'

# A few people set a column's scale if its standard deviation exceeds this multiple of the one with clipped extreme
# percentiles, or of that of a normal distribution with its quartiles. (Lognormal of sigma 1: 1.2 and 2; of sigma 2:
# 3.6 and 20.)
_BEYOND_TAILS, _BEYOND_QUARTILES = 3.0, 10.0
_TAILS = (0.01, 0.99)
# Columns that differ by this factor in size, or are this large, are not on one scale.
_APART = 100.0
# Interquartile range of the standard normal, so "robust" and the standard deviation agree for normal data.
_QUARTILES = 1.3489795003921634


def scale_columns(
    raw: Float[np.ndarray, "n d"], names: list[str], standardize: Unchecked[Standardize]
) -> tuple[Float[np.ndarray, " d"], Float[np.ndarray, " d"]]:
    """Center and spread of each column; theta applies to (raw - center) / spread.

    True:     mean and standard deviation
    "robust": median and (upper - lower quartile) / 1.349, the standard deviation of a normal distribution with these
              quartiles. A column that is the same for half of the people uses the spread of its inner 98%
    False:    0 and 1
    {feature: (mean, standard deviation)}: these, for every feature
    """
    if isinstance(standardize, Mapping):
        return given_scales(standardize, names)
    if not isinstance(standardize, (bool, np.bool_)) and not is_one_of(standardize, "robust"):
        raise ValueError(f"{_RULE}; got {standardize!r}.")
    large = too_large(raw)
    if large.any():
        worst = int(np.argmax(large))
        raise ValueError(
            f"column {names[worst]!r} has values of up to {np.max(np.abs(raw[:, worst])):.3g}, which are too large to "
            "scale; clip them, or take their logarithm."
        )
    if not standardize:
        _check_scales(raw, names)
        return np.zeros(raw.shape[1]), np.ones(raw.shape[1])
    spread, inner, robust = raw.std(axis=0), _inner_spread(raw), _robust_spread(raw)
    if standardize == "robust":
        return np.median(raw, axis=0), np.where(robust > 0, robust, np.where(spread > 0, spread, 1.0))
    few = (inner > 0) & ((spread > _BEYOND_TAILS * inner) | (spread > _BEYOND_QUARTILES * robust))
    if np.any(few):
        ratio = np.where(few, spread / np.where(robust > 0, robust, 1.0), 0.0)
        worst, others = int(np.argmax(ratio)), int(np.sum(few)) - 1
        more = f" (and those of {others} more columns)" if others else ""
        warn(
            "outliers-set-the-scale",
            f"from_frame: a few people inflate the standard deviation of column {names[worst]!r}{more} to "
            f"{ratio[worst]:.3g} times that of most of its values, so everybody else looks alike. Use "
            'standardize="robust" (median and quartiles), or clip the column at its quantiles.',
        )
    return raw.mean(axis=0), np.where(spread > 0, spread, 1.0)


def too_large(raw: Float[np.ndarray, "n d"]) -> Bool[np.ndarray, " d"]:
    """Columns whose entries are finite, but whose squares are not: the standard deviation would be infinite."""
    with np.errstate(over="ignore", invalid="ignore"):
        spread, size = raw.std(axis=0), np.mean(np.square(raw), axis=0)
    return np.isfinite(raw).all(axis=0) & ~(np.isfinite(spread) & np.isfinite(size))


def _inner_spread(raw: np.ndarray) -> np.ndarray:
    """The standard deviation with the extreme percentiles clipped."""
    low, high = np.quantile(raw, _TAILS, axis=0)
    return np.clip(raw, low, high).std(axis=0)


def _robust_spread(raw: np.ndarray) -> np.ndarray:
    """The spread by the quartiles; if they coincide, the standard deviation with the extreme percentiles clipped."""
    low, high = np.quantile(raw, (0.25, 0.75), axis=0)
    return np.where(high > low, (high - low) / _QUARTILES, _inner_spread(raw))


def _check_scales(raw: np.ndarray, names: list[str]) -> None:
    size = np.sqrt(np.mean(np.square(raw), axis=0))
    there = size > 0
    if not there.any():
        return
    large, small = int(np.argmax(size)), int(np.argmin(np.where(there, size, np.inf)))
    if size[large] > _APART or size[large] > _APART * size[small]:
        warn(
            "columns-not-scaled",
            f"from_frame: standardize=False, but column {names[large]!r} has values of about {size[large]:.3g}, "
            f"{names[small]!r} of {size[small]:.3g}: no learning rate suits both. Use standardize=True, or scale them "
            "first.",
        )


def given_scales(
    scales: Mapping[str, ArrayLike], features: list[str], key: str = "standardize", rule: str = _RULE
) -> tuple[Float[np.ndarray, " d"], Float[np.ndarray, " d"]]:
    """Center and spread known in advance, for every feature; errors name the `key` where they are written."""
    given = {str(name): scale for name, scale in scales.items()}
    for name in given:
        if name not in features:
            raise ValueError(f"{key}: {name!r} is not a feature of the table.{nearest(name, features)}")
    missing = [name for name in features if name not in given]
    if missing:
        raise ValueError(f"{rule}; it has no entry for {missing}. Use (0, 1) to leave a feature unscaled.")
    for name, scale in given.items():
        pair = np.asarray(scale, np.float64) if isinstance(scale, (list, tuple, np.ndarray)) else np.zeros(0)
        if pair.shape != (2,) or not np.all(np.isfinite(pair)) or pair[1] <= 0:
            got = scale.tolist() if isinstance(scale, np.ndarray) else scale
            raise ValueError(f"{key}: {name!r} needs (mean, standard deviation > 0); got {got!r}.")
    pairs = np.asarray([given[name] for name in features], np.float64)
    return pairs[:, 0], pairs[:, 1]
