"""Clipped SGD under a reacting population (PCSGD): how far from theta_PS it can end.

    theta_{t+1} = P_X(theta_t - gamma_{t+1} (clip_c(grad l(theta_t; Z)) + zeta)),   zeta ~ N(0, sigma^2 I)

Li, Yemini, Wai 2024, Theorem 3.4 and the lemmas behind it. Steps are eta(t), t = 0, 1, ...: the paper's gamma_{t+1} is
eta(t). The bounds are worst cases; `ClippedQuadratic` gives exact limits for one instance.
"""

import dataclasses
import math
from typing import Any

import numpy as np

from performative._base.arguments import Count, NonNegative, Positive, Values, checked
from performative.theory.bound import AbstractAssumptions, Bound, broken, check_steps, unroll
from performative.theory.index import numbered

CAUSES = "transient noise clipping"
FORMS = ("recursion", "closed", "printed")


@dataclasses.dataclass(frozen=True)
class AbstractReacting(AbstractAssumptions):
    """The assumptions that both theorems share."""

    mu: Positive
    L: Positive
    beta: NonNegative
    G: NonNegative

    @property
    def mu_tilde(self) -> float:
        """mu - L beta."""
        return self.mu - self.L * self.beta

    @property
    def weak(self) -> str:
        """The precondition beta < mu / L, in words."""
        return f"beta < mu / L = {self.mu / self.L:.4g}: beta is {self.beta:.4g}"


@dataclasses.dataclass(frozen=True)
class ClippedAssumptions(AbstractReacting):
    """The assumptions of Theorem 3.4, as numbers.

    Attributes:
        mu: f(. ; theta) is mu-strongly convex (3.1)
        L: grad l is L-Lipschitz in z (3.1); the constant in theta is not used
        beta: sensitivity of D(theta) in Wasserstein distance (3.2)
        G: |grad l(theta; z)| <= G (3.3); it suffices for theta in X and z in the support of D(theta)
        distance: E |theta_0 - theta_PS|^2
        dimension: d
    """

    distance: NonNegative
    dimension: Count = 1


@numbered("li2024", "Theorem 3.4", "E |theta_t - theta_PS|^2 of PCSGD")
@checked
def pcsgd(
    given: ClippedAssumptions, clip: Positive, eta: Values, sigma: NonNegative = 0.0, excess: float | None = None,
    form: str = "recursion",
) -> Bound:  # fmt: skip
    """Theorem 3.4: E |theta_t - theta_PS|^2 of PCSGD at t = 0, ..., T, the start first, by its causes.

        recursion: b_{t+1} = max(0, 1 - mu~ gamma) b_t + gamma C_1 / mu~ + gamma^2 c_1
        closed:    prod (1 - mu~ gamma_i) |theta_0 - theta_PS|^2 + 2 c_1 gamma_t / mu~ + C_1 / mu~^2
        mu~ = mu - L beta,   C_1 = max(G - c, 0)^2,   c_1 = min(c, G)^2 + d sigma^2

    Args:
        eta: the step sizes of t = 0, ..., T - 1, in order
        sigma: standard deviation of each coordinate of zeta
        excess: sup over X of E max(|grad l| - c, 0), if known: much less than G - c if large gradients are rare
        form: "recursion" only requires positive steps; "closed" requires (11); "printed" is (12)

    Terms: transient (what remains of the start), noise (sampling and privacy noise), clipping (the bias).

    Differs from the paper:
    - c_1 was 2 (c^2 + G^2) + d sigma^2. Lemma 5.1 as stated is right, its proof is loose: theta_PS is optimal
      in X, so <theta - theta_PS, grad f(theta_PS; theta_PS)> >= 0 and grad f(theta_PS) need not be subtracted.
    - The bias was 8 C_1 / mu~^2. Young's inequality with its best constant gives C_1 / mu~ in (21), not 4 times
      that, and sum_i gamma_i prod_{j>i} (1 - mu~ gamma_j) is at most 1 / mu~, not 2 / mu~.
    - (11) allows gamma <= 2 / mu~, where the product turns negative and the recursion cannot be unrolled;
      gamma <= 1 / mu~ is needed. It also names gamma_0, which does not exist.
    """
    eta, mu = check_steps(eta), given.mu_tilde
    check_form(form)
    if form == "printed" and excess is not None:
        raise ValueError('excess is not in the printed form: omit it, or use form="closed".')
    if not mu > 0:
        return Bound.nothing(CAUSES, (given.weak,), len(eta))
    C1, c1 = _excess(given, clip, excess) ** 2, second_moment(given, clip, sigma, printed=form == "printed")
    if form == "recursion":
        keep = np.maximum(0.0, 1.0 - mu * eta)
        start = unroll(keep, 0.0 * eta, given.distance)
        return Bound.by(CAUSES, start, unroll(keep, c1 * eta**2), unroll(keep, C1 / mu * eta))
    transient = unroll(1.0 - mu * eta, 0.0 * eta, given.distance)
    noise = np.concatenate([[0.0], 2.0 * c1 / mu * eta])
    bias = np.full(len(eta) + 1, (8.0 if form == "printed" else 1.0) * C1 / mu**2)
    unmet = unmet_steps(eta, mu, 2.0 / mu if form == "printed" else 1.0 / mu)
    return Bound.by(CAUSES, transient, noise, bias, unmet=unmet)


def second_moment(given: ClippedAssumptions, clip: float, sigma: float = 0.0, printed: bool = False) -> float:
    """c_1: a bound on E |clip_c(grad l) + zeta|^2."""
    gradient = 2.0 * (clip**2 + given.G**2) if printed else min(clip, given.G) ** 2
    return gradient + given.dimension * sigma**2


@checked
def bias_amplification(mu: float, L: float, beta: float) -> float:
    """1 / (mu - L beta)^2: how the squared clipping bias grows with the reaction (Theorems 3.4 and 3.5)."""
    return 1.0 / (mu - L * beta) ** 2 if mu > L * beta else math.inf


@checked
def bias_bound(given: ClippedAssumptions, clip: float, excess: float | None = None, printed: bool = False) -> float:
    """C_1 / mu~^2, the part of Theorem 3.4 that no step size removes; printed: 8 C_1 / mu~^2."""
    amplified = bias_amplification(given.mu, given.L, given.beta)
    C1 = _excess(given, clip, excess) ** 2
    return (8.0 if printed else 1.0) * C1 * amplified if C1 > 0 else 0.0


@numbered("li2024", "Lemma 5.1", "one step of PCSGD")
@checked
def one_step(
    given: ClippedAssumptions, clip: Positive, eta: Values, square: Values, pull: Values, sigma: NonNegative = 0.0
) -> Any:
    """Lemma 5.1: E_t |theta_{t+1} - theta_PS|^2 from square = |theta_t - theta_PS|^2 and pull = <., E_t b_t>.

    b_t = clip_c(grad l(theta_t; Z)) - grad f(theta_t; theta_PS). Holds for theta_PS on the boundary of X too.
    """
    return (1.0 - 2.0 * given.mu * eta) * square + eta**2 * second_moment(given, clip, sigma) - 2.0 * eta * pull


@numbered("li2024", "Lemma 5.2", "what clipping adds to a step")
@checked
def clip_pull(given: ClippedAssumptions, clip: float, eta: Values, square: Values, printed: bool = False) -> Any:
    """Lemma 5.2: the largest -2 gamma <theta_t - theta_PS, E_t b_t>; (21) has 4 C_1 where C_1 is enough.

    Infinite if beta >= mu / L: the lemma divides by mu~ > 0.
    """
    if not given.mu_tilde > 0:
        return np.full(np.broadcast_shapes(np.shape(eta), np.shape(square)), math.inf)[()]
    C1 = (4.0 if printed else 1.0) * _excess(given, clip, None) ** 2
    return eta * (2.0 * given.L * given.beta + given.mu_tilde) * square + eta * C1 / given.mu_tilde


@numbered("li2024", "Lemma A.2", "change of grad f with model and world")
@checked
def gradient_change(L: float, beta: float, model: Values, world: Values) -> Any:
    """Lemma A.2: the largest |grad f(u; v) - grad f(u'; v')| for |u - u'| = model and |v - v'| = world.

    L here is the larger of the Lipschitz constants in theta and in z.
    """
    return L * model + L * beta * world


@numbered("li2024", "Lemma A.1", "conditions on the steps")
def unmet_steps(eta: np.ndarray, mu: float, limit: float, power: int = 1) -> tuple[str, ...]:
    """What Lemma A.1 requires of the steps: (gamma_t / gamma_{t+1})^p <= 1 + mu gamma_{t+1} / 2, gamma <= limit.

    The paper prints gamma_{t+1}^p on the right, which harmonic steps violate for p > 1, and needs less.
    """
    slack = 1.0 + 1e-6  # float32 steps carry roundoff of this size
    ratio, fall = (eta[:-1] / eta[1:]) ** power, f"(gamma_t / gamma_(t+1))^{power} <= 1 + {mu / 2:.4g} gamma_(t+1)"
    return broken(
        (np.all(eta[1:] <= eta[:-1] * slack), "the steps must not increase"),
        (np.all(ratio <= (1.0 + 0.5 * mu * eta[1:]) * slack), f"{fall}: the steps fall too fast"),
        (eta.max() <= limit * slack, f"gamma <= {limit:.4g}: the largest step is {eta.max():.4g}"),
    )


def check_form(form: str) -> None:
    """One of FORMS."""
    if form not in FORMS:
        raise ValueError(f"form must be one of {', '.join(FORMS)}; got {form!r}.")


def _excess(given: ClippedAssumptions, clip: float, excess: float | None) -> float:
    if excess is None:
        return max(given.G - clip, 0.0)
    if not 0 <= excess <= max(given.G - clip, 0.0) * (1 + 1e-12):
        raise ValueError(f"excess must lie in [0, max(G - clip, 0)]; got {excess} with G={given.G}, clip={clip}.")
    return excess
