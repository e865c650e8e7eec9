"""Sums with Gaussian noise, so that a file of them is differentially private for each person.

A person is one row, in one cell. With u = (z - middle) / half-width of the bounds, |u_j| <= 1, it adds

    v = (1, u_1 .. u_q, u_1 u_1, u_1 u_2, .. u_q u_q),      |v|_2 <= D = sqrt(1 + q + q (q + 1) / 2)

so noise of standard deviation multiplier * D on all sums of all cells is one application of the Gaussian mechanism
under adding or removing a row. `performative.privacy.calibrate` computes the multiplier,
`performative.privacy.discrete_gaussian` draws the noise, in whole units of a grid. Names of clients and deployments are
public; decisions, groups and counts of dropped rows are left out of the file.
"""

import dataclasses
import math
from collections import Counter

import numpy as np

from performative.audit.missing import no_sums
from performative.audit.moments import Moments
from performative.audit.schema import LogError
from performative.audit.summaries import Summaries

# Grid units per standard deviation of the noise.
_UNITS = 1 << 14
# Cells whose count is below this many standard deviations of the noise are too noisy for variances and are dropped.
_CLEAR = 20.0


def bounds_of(seen: Summaries) -> tuple[np.ndarray, np.ndarray]:
    """Middle [q] and half-width [q] of every column; those of features come from [clip] of audit.toml."""
    without = [name for name in seen.columns.features if name not in seen.settings.clip]
    if without:
        raise LogError(
            f"noise needs bounds for every feature; there are none for {without[0]!r}. Set {without[0]} = [lowest, "
            "highest] under [clip]: values beyond are clipped to these.", "audit.toml",
        )  # fmt: skip
    if seen.columns.label and not seen.binary:
        raise LogError("noise needs labels of 0 and 1: other labels have no bounds.", "audit.toml")
    limits = [seen.settings.clip[name] for name in seen.columns.features] + ([(0.0, 1.0)] if seen.columns.label else [])
    low, high = np.array(limits).T
    return (low + high) / 2, (high - low) / 2


def sensitivity(columns: int) -> float:
    """D: the most that one row moves all sums together."""
    return math.sqrt(1 + columns + columns * (columns + 1) / 2)


def noisy(seen: Summaries, epsilon: float, delta: float, least: int) -> Summaries:
    """Add noise for (epsilon, delta)-privacy under adding or removing a row; drop cells that are mostly noise."""
    from performative.privacy import calibrate

    middle, half = bounds_of(seen)
    multiplier, q = calibrate(epsilon, delta, 1), len(middle)
    numbers = 1 + q + q * (q + 1) // 2
    # Rounding sums to the grid moves each by at most half a unit, for each of two neighboring data sets.
    spared = 1 - multiplier * math.sqrt(numbers) / _UNITS
    if spared <= 0.5:
        raise LogError(f"epsilon = {epsilon:g} requires too much noise for {q} columns; raise it.")
    sigma = multiplier * sensitivity(q) / spared
    parts = [_noisy_moments(own, middle, half, sigma, least) for own in (seen.labeled, seen.unlabeled)]
    if not seen.columns.label:
        parts[1] = dataclasses.replace(seen.unlabeled, **{name: getattr(seen.unlabeled, name)[:0] for name in _ARRAYS})
    nothing = no_sums(seen.clients, 1)
    cells = 2 if seen.columns.label else 1
    kept = sum(len(part.count) for part in parts)
    return dataclasses.replace(
        seen, decides=None, labeled=parts[0], unlabeled=parts[1], scores=(nothing, nothing),
        incomplete=no_sums(seen.clients, len(seen.columns.features) + 1), counts={}, always=None, weighted=None,
        rows=int(sum(part.count.sum() for part in parts)), dropped=Counter(), empty=Counter(), unknown=Counter(),
        undecided=0, no_group=0, no_chance=0, noise=sigma, promise=(epsilon, delta),
        suppressed=(cells * seen.cells - kept, 0),
        columns=dataclasses.replace(seen.columns, group=None, accepted=None, score=None, propensity=None),
    )  # fmt: skip


_ARRAYS = ("client", "deployment", "stratum", "count", "mean", "squares")


def _noisy_moments(own: Moments, middle: np.ndarray, half: np.ndarray, sigma: float, least: int) -> Moments:
    from performative.privacy import discrete_gaussian

    q, many = len(own.columns), len(own.deployments)
    middle, half = middle[:q], half[:q]
    count, mean, squares = own.by_cell()
    u = np.where(count[:, None] > 0, (mean - middle) / half, 0.0)
    second = squares / np.outer(half, half) + count[:, None, None] * u[:, :, None] * u[:, None, :]
    upper = np.triu_indices(q)
    sums = np.column_stack([count, count[:, None] * u, second[:, upper[0], upper[1]]])
    unit = sigma / _UNITS
    sums = (np.rint(sums / unit) + discrete_gaussian(_UNITS, sums.shape)) * unit
    use = np.flatnonzero(sums[:, 0] >= max(least, 2, _CLEAR * sigma))
    n = np.rint(sums[use, 0])
    u = np.clip(sums[use, 1 : 1 + q] / n[:, None], -1.0, 1.0)
    full = np.zeros((len(use), q, q))
    full[:, upper[0], upper[1]] = sums[use, 1 + q :]
    full = full + np.swapaxes(np.triu(full, 1), 1, 2)
    values, vectors = np.linalg.eigh(full - n[:, None, None] * u[:, :, None] * u[:, None, :])
    spread = np.einsum("cij,cj,ckj->cik", vectors, np.maximum(values, 0.0), vectors)
    return dataclasses.replace(
        own, client=use // many, deployment=use % many, stratum=np.zeros(len(use), np.int64), count=n,
        mean=middle + half * u, squares=spread * np.outer(half, half),
    )  # fmt: skip


def widened(seen: Summaries, count: np.ndarray, mean: np.ndarray, cov: np.ndarray) -> np.ndarray:
    """Covariances [c, q, q] inflated for the noise: in each mean's error, and in case it made a variance too small.

    Var(mean_j) gains half_j^2 sigma^2 (1 + u_j^2) / n^2;    s_jj gains 3 half_j^2 sigma (1 + |u_j|)^2 / n
    """
    if not seen.noise:
        return cov
    middle, half = (part[: mean.shape[1]] for part in bounds_of(seen))
    u, n = (mean - middle) / half, np.maximum(count, 1.0)[:, None]
    more = half**2 * (seen.noise**2 * (1 + u**2) / n + 3 * seen.noise * (1 + np.abs(u)) ** 2 / n)
    return cov + np.eye(mean.shape[1]) * more[:, :, None]
