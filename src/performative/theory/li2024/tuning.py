"""The step and the clip that minimize the bound of PCSGD, given the privacy noise.

    sigma = c z,   z the noise multiplier;   phi = d z^2 / T

Li, Yemini, Wai 2024, Corollaries 3.7 and 3.8. The noise is given by z, so a calibrated z can be used: (14), z^2 = T
log(1 / delta) / (m epsilon)^2, does not provide the privacy it claims. These minimize a worst-case bound, not the
error: if large gradients are rare, a smaller clip is better. Each returns the minimal bound with its `step` and `clip`;
the term `clipping` is bias plus noise, unless `noise` is a separate term.
"""

import math

import numpy as np

from performative._base.arguments import Count, Finite, NonNegative, Positive, Size, Values, checked
from performative.theory.bound import Bound, broken, check_steps, unroll
from performative.theory.index import numbered
from performative.theory.li2024.clipped import ClippedAssumptions, bias_bound, second_moment


@numbered("li2024", "Corollary 3.7", "the constant step that minimizes the bound")
@checked
def optimal_step(
    given: ClippedAssumptions, clip: Positive, rounds: Count, sigma: NonNegative = 0.0, printed: bool = False
) -> Bound:
    """Corollary 3.7: the constant step that minimizes the bound after T rounds.

        (1 - mu~ g)^T |theta_0 - theta_PS|^2 + c_1 g / mu~ + C_1 / mu~^2     at
        g = (1 - Delta^(1 / (T - 1))) / mu~,   Delta = c_1 / (T mu~^2 |theta_0 - theta_PS|^2)

    Differs from the paper: (15), log(1 / Delta) / (mu~ T), minimizes the same with exp(-mu~ g T) for the product: close
    for many rounds, off by a tenth for five, and it can exceed 1 / mu~. Its Delta has 2 c_1, which a constant step does
    not need, and c_1 = 2 (c^2 + G^2) + d sigma^2. With Delta >= 1 no step helps: the bound is minimal at 0, and (15) is
    not positive.
    """
    mu, T = given.mu_tilde, rounds
    if not given.distance > 0:
        raise ValueError(f"optimal_step needs distance > 0; got {given.distance}.")
    if not mu > 0:
        return _chosen(0.0, clip, (given.weak,), clipping=math.inf)
    slope = (2.0 if printed else 1.0) * second_moment(given, clip, sigma, printed) / mu
    step = _exponential_step(slope, mu, given.distance, T) if printed else least_step(slope, mu, given.distance, T)
    delta = slope / (T * mu * given.distance)
    unmet = broken(
        (slope < T * mu * given.distance, f"Delta < 1: it is {delta:.4g}; more rounds or less noise are needed"),
        (step <= 1.0 / mu, f"gamma <= 1 / mu~ = {1 / mu:.4g}: the step is {step:.4g}"),
    )
    bias = bias_bound(given, clip, printed=printed)
    start = (1.0 - mu * step) ** T * given.distance
    return _chosen(step, clip, unmet, transient=start, noise=slope * step, clipping=bias)


def least_step(slope: float, mu: float, distance: float, rounds: int) -> float:
    """The g in [0, 1 / mu] that minimizes (1 - mu g)^T distance + slope g."""
    delta = slope / (rounds * mu * distance)
    if delta >= 1.0:
        return 0.0
    return (1.0 if rounds == 1 else -math.expm1(math.log(delta) / (rounds - 1)) if delta > 0 else 1.0) / mu


def _exponential_step(slope: float, mu: float, distance: float, rounds: int) -> float:
    return math.log(rounds * mu * distance / slope) / (mu * rounds)


@checked
def optimal_clip(given: ClippedAssumptions, eta: Values, multiplier: NonNegative) -> Bound:
    """The clip that minimizes Theorem 3.4's recursion after the given steps, for noise c z.

        C_1 S_1 / mu~ + c^2 (1 + d z^2) S_2   at   c = G / (1 + mu~ (1 + d z^2) S_2 / S_1)

    S_k is sum_i gamma_i^k prod_{j>i} (1 - mu~ gamma_j).
    """
    eta, mu = check_steps(eta), given.mu_tilde
    if not mu > 0:
        return _chosen(None, given.G, (given.weak,), clipping=math.inf)
    keep = np.maximum(0.0, 1.0 - mu * eta)
    start, S1, S2 = (float(unroll(keep, *part)[-1]) for part in ((0 * eta, given.distance), (eta,), (eta**2,)))
    ratio = mu * (1.0 + given.dimension * multiplier**2) * S2 / S1
    bias = S1 / mu * given.G**2 * ratio / (1 + ratio)
    return _chosen(None, given.G / (1 + ratio), transient=start, clipping=bias)


@numbered("li2024", "Corollary 3.8", "the clip that minimizes the bound as T grows")
@checked
def optimal_clip_limit(given: ClippedAssumptions, phi: NonNegative, kappa: Size, printed: bool = False) -> Bound:
    """Corollary 3.8: the clip as T grows at fixed privacy, so d sigma^2 = c^2 phi T.

        [max(G - c, 0)^2 + kappa phi c^2] / mu~^2  at  c = G / (1 + kappa phi):  G^2 kappa phi / ((1 + kappa phi) mu~^2)

    Args:
        kappa: how the steps amplify the noise: mu~ g T for a constant step g, `harmonic_kappa` for a_0 / (a_1 + t)

    Differs from the paper: c* = G / (1 + mu~ phi) has mu~, which has units, in place of kappa. The bias vanishes with
    phi; the printed O(G^2 (1 + phi / mu~)) does not. With steps tuned to mu~ (kappa = 4) the clip does not depend on
    beta, so "c* should be increased" with beta does not follow. The c* = 2.32 of the experiments follows from neither
    form: with their constants phi < 2e-5, and c* is G to within 0.02%.
    """
    mu = given.mu_tilde
    if not mu > 0:
        return _chosen(None, given.G, (given.weak,), clipping=math.inf)
    if printed:
        return _chosen(None, given.G / (1.0 + mu * phi), clipping=given.G**2 * (1.0 + phi / mu))
    if math.isinf(kappa):
        slow = "a_0 > 1 / mu~: the noise of a slower schedule does not settle"
        return _chosen(None, 0.0, (slow,), clipping=math.inf)
    load = kappa * phi
    return _chosen(None, given.G / (1 + load), clipping=given.G**2 * load / (1 + load) / mu**2)


@checked
def optimal_clip_and_step(given: ClippedAssumptions, phi: Positive, rounds: Count = 1) -> Bound:
    """Clip and constant step g = s / (mu~ T) together, as T grows; rounds: the T by which `step` is divided.

        exp(-s) |theta_0 - theta_PS|^2 + [(G - c)^2 + s phi c^2] / mu~^2,   s = log(mu~^2 distance / (phi c^2))

    Alternating, each in closed form, from c = G. If no step helps (s <= 0 at c = G), `unmet` says so.
    """
    mu, D, clip, s = given.mu_tilde, given.distance, given.G, 0.0
    if not (D > 0 and clip > 0):
        raise ValueError(f"optimal_clip_and_step needs distance > 0 and G > 0; got {D} and {clip}.")
    if not mu > 0:
        return _chosen(0.0, clip, (given.weak,), clipping=math.inf)
    if phi * clip**2 >= mu**2 * D:
        outweighed = "phi G^2 < mu~^2 |theta_0 - theta_PS|^2: the noise outweighs the start"
        return _chosen(0.0, clip, (outweighed,), transient=D)
    for _ in range(1000):
        s, last = math.log(mu**2 * D / (phi * clip**2)), clip
        clip = given.G / (1.0 + s * phi)
        if abs(clip - last) <= 1e-15 * given.G:
            break
    bias = ((given.G - clip) ** 2 + s * phi * clip**2) / mu**2
    return _chosen(s / (mu * rounds), clip, transient=math.exp(-s) * D, clipping=bias)


@checked
def harmonic_kappa(given: ClippedAssumptions, scale: float) -> float:
    """A^2 / (A - 1), A = mu~ a_0, for steps a_0 / (a_1 + t): minimum 4 at a_0 = 2 / mu~; none for A <= 1."""
    A = given.mu_tilde * scale
    return A**2 / (A - 1.0) if A > 1 else math.inf


@checked
def noise_share(multiplier: Finite, rounds: Count, dimension: Count = 1) -> float:
    """phi = d z^2 / T of a multiplier calibrated for T rounds."""
    return dimension * multiplier**2 / rounds


@checked
def printed_noise_share(epsilon: float, delta: float, records: Count, dimension: Count = 1) -> float:
    """phi = d log(1 / delta) / (m epsilon)^2, from (14), which is not private as claimed."""
    if not (0 < delta < 1 and 0 < epsilon < math.inf):
        raise ValueError(f"printed_noise_share needs 0 < delta < 1 and epsilon > 0; got {delta} and {epsilon}.")
    return dimension * math.log(1.0 / delta) / (records * epsilon) ** 2


def _chosen(step: float | None, clip: float, unmet: tuple[str, ...] = (), **terms: float) -> Bound:
    """The bound at its minimizing step and clip; step is None if a schedule or `kappa` replaces it."""
    return Bound(terms, unmet, {"step": step, "clip": clip})
