"""Epsilon of repeated, sampled Gaussian releases, by Google's dp-accounting.

Every privacy number comes from that library: privacy loss distributions (see `loss_distribution`), exact Gaussians, and
Renyi bounds if a distribution is out of reach. This module matches sampling schemes with neighbor relations and
searches over parameters. It does not look at data, and trusts the declared clip and sampler.
"""

import dataclasses
import functools
import math
from collections.abc import Callable, Sequence

import dp_accounting
import numpy as np
from dp_accounting import NeighboringRelation, dp_event
from dp_accounting.pld.privacy_loss_mechanism import AdjacencyType
from scipy import stats

from performative._deprecated import old_attributes
from performative.draws import ADD_OR_REMOVE, REPLACE, is_whole
from performative.draws import Everyone as Everyone
from performative.draws import PoissonSampling as PoissonSampling
from performative.draws import WithoutReplacement as WithoutReplacement
from performative.privacy.loss_distribution import Directions, Part, composed_epsilon, round_down

Number = float | int | np.integer

_STEPS = 10**7  # with more steps, even a coarse distribution becomes too long
# Below this multiplier there is no guarantee: accountants lose precision there.
_LEAST_NOISE = 1e-3
_MOST = 10**12  # where a search for the number of steps gives up
# FFT rounding errors grow with the steps; below this delta they hide the tail, and epsilon may come out too small.
# Compared with the exact Gaussian it is right at delta = 1e-15 steps and 2% too small at 1e-17 steps.
_DELTA_A_STEP = 1e-14


def _refuse(rule: str, value: object) -> None:
    raise ValueError(f"{rule}; got {value!r}.")


def _check_delta(delta: Number) -> None:
    if not 0.0 < delta < 1.0:
        _refuse("delta must lie between 0 and 1, usually well below 1 / rows", delta)


def _check_epsilon(epsilon: Number) -> None:
    if not 0.0 < epsilon < math.inf:
        _refuse("epsilon must be positive and finite", epsilon)


Sampling = Everyone | PoissonSampling | WithoutReplacement


@dataclasses.dataclass(frozen=True)
class Release:
    """`steps` noisy sums of clipped contributions.

    Attributes:
        noise_multiplier: standard deviation of the noise on the sum, divided by the clip (largest norm of one
            contribution)
    """

    noise_multiplier: Number
    steps: Number
    sampling: Sampling

    def __post_init__(self) -> None:
        if not 0.0 <= self.noise_multiplier < math.inf:
            _refuse("Release: noise_multiplier must be finite and >= 0", self.noise_multiplier)
        if not (is_whole(self.steps) and self.steps >= 0):
            _refuse("Release: steps must be a whole number >= 0", self.steps)


@old_attributes
@dataclasses.dataclass(frozen=True)
class Spending:
    """The privacy spent: (epsilon, delta), always an upper bound, and how it was computed.

    Attributes:
        method: "exact" (Gaussian), "pld" (grid set), "rdp", or "none" if there is nothing to compute
    """

    epsilon: float
    delta: float
    method: str
    grid: float | None
    neighbors: str
    note: str = ""


def spending(release: Release, delta: Number) -> Spending:
    """What `release` spends at this delta, and by which method. Results are cached."""
    _check_delta(delta)
    return _spending(float(release.noise_multiplier), int(release.steps), release.sampling, float(delta))


def epsilon(release: Release, delta: Number) -> float:
    """The epsilon that `release` spends at this delta, an upper bound; see `spending` for the method used."""
    return spending(release, delta).epsilon


def epsilons(release: Release, steps: Sequence[Number], delta: Number, grid: float | None = None) -> list[Spending]:
    """`spending` for several numbers of steps. A custom `grid` is not checked: a coarse one is fast, and still safe."""
    _check_delta(delta)
    z, grid = float(release.noise_multiplier), None if grid is None else round_down(grid)
    return [_spending(z, int(count), release.sampling, float(delta), grid) for count in steps]


def epsilon_bounds(release: Release, delta: Number) -> tuple[float, float]:
    """(lower, upper): some neighbors attain the lower bound, up to the grid; no neighbors exceed the upper one.

    They differ only for sampling without replacement. There the lower bound replaces a record at +clip by a copy of the
    others at -clip, which yields the distribution of Poisson sampling at half the multiplier. For a truncated Poisson
    sample no lower bound is known, so it is 0.
    """
    upper = epsilon(release, delta)
    if isinstance(release.sampling, WithoutReplacement):
        poisson = PoissonSampling(release.sampling.n / release.sampling.rows)
        pair = Release(release.noise_multiplier / 2, release.steps, poisson)
        return min(epsilon(pair, delta), upper), upper
    known = not (isinstance(release.sampling, PoissonSampling) and release.sampling.truncated)
    return (upper if known else 0.0), upper


def calibrate_noise(epsilon: Number, delta: Number, steps: Number, sampling: Sampling) -> float:
    """The smallest noise multiplier such that `steps` releases spend at most `epsilon`, and at least 99.7% of it."""
    _check_epsilon(epsilon)
    _check_delta(delta)
    count = int(Release(1.0, steps, sampling).steps)
    if count == 0:
        return 0.0

    def spent(multiplier: float, grid: float | None = None) -> float:
        return _spending(multiplier, count, sampling, float(delta), grid).epsilon

    def rough(multiplier: float) -> float:
        return spent(multiplier, round_down(epsilon / 1e3))

    # A coarse grid overestimates by a few percent, but shows how fast epsilon falls as the noise grows.
    multiplier = _least(rough, float(epsilon), 1.0, 2.0, 1.02)
    before, after = rough(multiplier / 1.02), rough(multiplier)
    known = math.isfinite(before) and 0.0 < after < before
    power = max(0.5, math.log(before / after) / math.log(1.02)) if known else 1.0
    for _ in range(30):
        now = spent(multiplier)
        if 0.997 * epsilon <= now <= epsilon:
            return multiplier
        multiplier *= min(4.0, max(0.25, now / (0.9985 * epsilon))) ** (1.0 / power)
    # Epsilon is discontinuous here: stay on the safe side.
    return _least(spent, float(epsilon), multiplier, 1.02, 1.002)


def most_steps(release: Release, epsilon: Number, delta: Number) -> int:
    """The largest number of steps of `release` (whose own `steps` is ignored) that spends at most `epsilon`."""
    _check_epsilon(epsilon)
    _check_delta(delta)
    if release.noise_multiplier == 0.0:
        return 0

    def spent(steps: int, grid: float | None = None) -> float:
        return _spending(float(release.noise_multiplier), steps, release.sampling, float(delta), grid).epsilon

    def rough(steps: int) -> float:
        return spent(steps, round_down(epsilon / 1e3))

    return _largest(spent, float(epsilon), _largest(rough, float(epsilon), 1, 2.0), 1.02)


def _between(low: float, high: float, at_low: float, at_high: float, target: float) -> float:
    """Log-log interpolation of the point where spent meets target; the geometric mean if that is undefined."""
    if not 0.0 < min(at_low, at_high) < max(at_low, at_high) < math.inf:
        return math.sqrt(low * high)
    share = (math.log(target) - math.log(at_low)) / (math.log(at_high) - math.log(at_low))
    # Stay away from the ends, where a curved function would slow progress.
    return low * (high / low) ** min(0.95, max(0.05, share))


def _least(spent: Callable[[float], float], target: float, start: float, stride: float, within: float) -> float:
    """The smallest x, up to a factor of `within`, with spent(x) <= target; `spent` decreases in x."""
    low, at_low = start, spent(start)
    high, at_high = low, at_low
    while at_high > target:
        low, at_low = high, at_high
        high, stride = high * stride, stride**1.5
        at_high = spent(high)
    while at_low <= target:
        high, at_high = low, at_low
        low, stride = low / stride, stride**1.5
        at_low = spent(low)
    nudge = math.sqrt(within)
    while high / low > within:
        x = _between(low, high, at_low, at_high, target) * nudge
        x = min(high / nudge, max(low * nudge, x)) if high / low > nudge**2 else math.sqrt(low * high)
        value = spent(x)
        low, at_low, high, at_high = (x, value, high, at_high) if value > target else (low, at_low, x, value)
        nudge = 1.0 / nudge  # alternate sides, so both ends converge
    return high


def _largest(spent: Callable[[int], float], target: float, start: int, stride: float) -> int:
    """The largest integer n with spent(n) <= target, where `spent` increases in n; 0 if 1 is too many."""
    low = high = max(1, start)
    at_low = at_high = spent(low)
    while at_low > target:
        if low == 1:
            return 0
        high, at_high = low, at_low
        low, stride = max(1, math.floor(low / stride)), stride**1.5
        at_low = spent(low)
    while at_high <= target:
        if high > _MOST:
            raise ValueError(
                f"epsilon={target:g} lasts for more than {_MOST:.0g} steps, which is effectively no limit."
            )
        low, at_low = high, at_high
        high, stride = max(low + 1, math.ceil(low * stride)), stride**1.5
        at_high = spent(high)
    while high - low > 1:
        x = min(high - 1, max(low + 1, math.floor(_between(float(low), float(high), at_low, at_high, target))))
        # Try x and x + 1: they bracket the answer once the interpolation is good.
        for middle in (x, x + 1):
            if not low < middle < high:
                break
            value = spent(middle)
            low, at_low, high, at_high = (
                (low, at_low, middle, value) if value > target else (middle, value, high, at_high)
            )
    return low


@functools.lru_cache(maxsize=1 << 14)
def _spending(z: float, steps: int, sampling: Sampling, delta: float, grid: float | None = None) -> Spending:
    """Cached `spending` on plain numbers. A given `grid` is used unchecked; None chooses and checks one."""
    if steps == 0:
        return Spending(0.0, delta, "none", None, sampling.neighbors, "nothing was released")
    if z < _LEAST_NOISE:
        why = "there is no noise" if z == 0.0 else f"a noise multiplier of {z:.3g} gives no protection"
        return Spending(math.inf, delta, "none", None, sampling.neighbors, why)
    plain = _plain(z, sampling)
    if plain is not None:
        return Spending(_gaussian(plain / math.sqrt(steps), delta), delta, "exact", None, sampling.neighbors)
    why = ""
    if delta < max(1e-12, _DELTA_A_STEP * steps):
        why = f"delta={delta:g} is too small for {steps} steps by FFT"
    elif steps > _STEPS:
        why = f"{steps} steps are too many for a distribution"
    else:
        found = composed_epsilon(_directions(z, sampling), steps, delta, grid)
        if found is not None:
            value, used, note = found
            return Spending(value, delta, "pld", used, sampling.neighbors, note)
        why = "the tail of the distribution is too heavy"
    return _by_renyi(z, steps, sampling, delta, why)


def _gaussian(multiplier: float, delta: float) -> float:
    """The exact epsilon of one Gaussian release."""
    with np.errstate(divide="ignore"):  # two terms may be equal: the log of their difference is -inf
        return float(dp_accounting.get_epsilon_gaussian(multiplier, delta))


def _plain(z: float, sampling: Sampling) -> float | None:
    """The multiplier of the equivalent Gaussian mechanism if sampling takes everyone, else None."""
    if isinstance(sampling, Everyone) or (isinstance(sampling, WithoutReplacement) and sampling.n == sampling.rows):
        return z / 2
    if isinstance(sampling, PoissonSampling) and sampling.rate == 1.0 and not sampling.truncated:
        return z
    return None


def _by_renyi(z: float, steps: int, sampling: Sampling, delta: float, why: str) -> Spending:
    """The Renyi accountant's bound; a truncated sample has none, so its amplification is ignored."""
    if isinstance(sampling, PoissonSampling) and sampling.truncated:
        # Whatever is drawn, adding or removing one unit moves the sum by at most two clips.
        value = _gaussian(z / 2 / math.sqrt(steps), delta)
        return Spending(value, delta, "exact", None, sampling.neighbors, f"{why}: sampling is not counted")
    relation = {
        ADD_OR_REMOVE: NeighboringRelation.ADD_OR_REMOVE_ONE,
        REPLACE: NeighboringRelation.REPLACE_ONE,
    }[sampling.neighbors]
    accountant = dp_accounting.rdp.RdpAccountant(neighboring_relation=relation)
    accountant.compose(event(z, sampling), steps)
    return Spending(float(accountant.get_epsilon(delta)), delta, "rdp", None, sampling.neighbors, why)


def event(z: float, sampling: Sampling) -> dp_event.DpEvent:
    """One release as an event for the library's accountants. Renyi accountants reject truncated samples, and do not
    halve the multiplier themselves for the replace relation."""
    half = dp_event.GaussianDpEvent(z / 2)
    if isinstance(sampling, WithoutReplacement):
        return dp_event.SampledWithoutReplacementDpEvent(sampling.rows, sampling.n, half)
    if isinstance(sampling, PoissonSampling) and sampling.truncated:
        return dp_event.TruncatedSubsampledGaussianDpEvent(sampling.rows, sampling.rate, sampling.most, z)
    if isinstance(sampling, PoissonSampling):
        return dp_event.PoissonSampledDpEvent(sampling.rate, dp_event.GaussianDpEvent(z))
    return half


def _directions(z: float, sampling: Sampling) -> Directions:
    """The dominating pairs of one release."""
    remove, add, replace = AdjacencyType.REMOVE, AdjacencyType.ADD, AdjacencyType.REPLACE
    if isinstance(sampling, WithoutReplacement):
        return ((Part(1.0, z / 2, sampling.n / sampling.rows, remove, add),),)
    assert isinstance(sampling, PoissonSampling)  # Everyone is a plain Gaussian
    rate, cut, rows, most = float(sampling.rate), 0.0, int(sampling.rows or 0), int(sampling.most or 0)
    if sampling.truncated:
        # As in dp_accounting's from_truncated_subsampled_gaussian_mechanism, whose fixed grid is too slow here.
        cut = float(stats.binom.sf(most - 1, rows - 1, rate))
    if cut == 0.0:
        return tuple((Part(1.0, z, rate, side, side),) for side in (remove, add))
    kept = float(stats.binom.sf(most, rows, rate)) * most / cut / rows
    pushed = Part(cut, z / 2, min(1.0, kept), replace, replace)
    return tuple((Part(1.0 - cut, z, rate, side, side), pushed) for side in (remove, add))
