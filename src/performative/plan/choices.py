"""Which settings to consider, with the largest admissible steps."""

import itertools
from collections.abc import Iterator, Sequence

import numpy as np

from performative.plan.settings import LocalMaps, Setting, round_map

LOCAL_STEPS = (1, 2, 4, 8, 16, 32, 64)
BATCHES = (1, 8, 64)
# Constant steps, as fractions of the largest that settles; harmonic ones by beta in units of 1 / kappa and first step.
_PARTS = (0.5, 0.25, 0.12, 0.06, 0.03, 0.015, 0.007, 0.0035, 0.0015)
_BETAS, _FIRST = (0.8, 1.5, 3.0), (0.5, 0.15, 0.04)
# The fractions of N at which K is tried.
_SHARES = (0.05, 0.1, 0.25, 0.5, 0.75, 0.9)


def cohorts(clients: int, latency: bool) -> list[tuple[str, int | None]]:
    """Schemes with their K."""
    sizes = sorted({max(1, round(share * clients)) for share in _SHARES} - {clients})
    schemes = ["one", "two", "first"] if latency else ["one", "two"]
    return [("full", None), *itertools.product(schemes, sizes)]


def settings(
    maps: LocalMaps, local_steps: Sequence[int], batches: Sequence[int], who: Sequence[tuple[str, int | None]]
) -> Iterator[Setting]:
    """Every combination, each with several step sizes; settings that share local maps are adjacent."""
    kappa = maps.near.kappa
    for E in local_steps:
        longest = longest_step(maps, E)
        rates: list[tuple[float, float | None]] = [(part * longest, None) for part in _PARTS]
        rates += [(p * longest, beta / kappa / (p * longest)) for beta, p in itertools.product(_BETAS, _FIRST)]
        for (rate, decay), (scheme, k), n in itertools.product(rates, who, batches):
            yield Setting(E, scheme, k, n, rate, decay)


def longest_step(maps: LocalMaps, local_steps: int) -> float:
    """Approximately the largest constant step at which full-participation rounds settle and no client oscillates."""
    cap = 2.0 / maps.near.steepest
    if maps.near.size == 0:
        return cap
    step = cap
    while step > 1e-12 and not _settles(maps, local_steps, step):
        step /= 2
    if step == cap:
        return cap
    low, high = step, 2 * step
    for _ in range(5):
        middle = (low + high) / 2
        low, high = (middle, high) if _settles(maps, local_steps, middle) else (low, middle)
    return low


def _settles(maps: LocalMaps, local_steps: int, eta: float) -> bool:
    everyone = Setting(local_steps, "full", None, 1, eta)
    here = round_map(maps, everyone, np.full(local_steps, eta))
    return bool(np.abs(np.linalg.eigvals(here.mean)).max() < 1.0)
