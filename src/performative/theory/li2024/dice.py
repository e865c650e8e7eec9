"""DiceSGD under a reacting population: two clips and a memory of what they clip off.

    v = clip_C1(grad l(theta_t; Z)) + clip_C2(e_t),   theta_{t+1} = theta_t - gamma_{t+1} (v + zeta)
    e_{t+1} = e_t + grad l(theta_t; Z) - v

Li, Yemini, Wai 2024, Algorithm 1 and Theorem 4.3. The theorem assumes a bounded memory; it is not bounded if C2 is too
small (`ClippedQuadratic.memory_clip_needed`).
"""

import dataclasses
import math

import numpy as np

from performative._base.arguments import Count, NonNegative, Positive, Values, checked
from performative.theory.bound import Bound, check_steps, unroll
from performative.theory.index import numbered
from performative.theory.li2024.clipped import CAUSES, AbstractReacting, check_form, unmet_steps


@dataclasses.dataclass(frozen=True)
class DiceAssumptions(AbstractReacting):
    """The assumptions of Theorem 4.3, as numbers; X is the whole space.

    Attributes:
        mu, beta: as for PCSGD (3.1, 3.2)
        L: grad l is L-Lipschitz in z and grad f in theta (3.1): the larger of the two
        G, B: E_{Z ~ D(theta)} |grad l(theta; Z)|^2 <= G^2 + B^2 |theta - theta_PS|^2 (4.2)
        M: E |e_t|^2 <= M^2 for every t (4.1)
        distance: E |theta_0 - theta_PS|^2
        dimension: d

    Differs from the paper: (4.2) is printed for data of any other model theta'. The paper's own quadratic violates
    that, and the proof only uses theta' = theta.
    """

    B: NonNegative
    M: NonNegative
    distance: NonNegative
    dimension: Count = 1


@numbered("li2024", "Theorem 4.3", "E |theta_t - gamma_t e_t - theta_PS|^2 of DiceSGD")
@checked
def dicesgd(given: DiceAssumptions, eta: Values, sigma: NonNegative = 0.0, form: str = "recursion") -> Bound:
    """Theorem 4.3: E |theta_t - gamma_t e_t - theta_PS|^2 of DiceSGD, which vanishes with the steps.

    With x = theta_t - gamma_t e_t - theta_PS, g = gamma_{t+1}, D = gamma_t - g, l = L (1 + beta):

        E |x'|^2 <= (1 - 3/2 mu~ g + 4 B^2 g^2) E |x|^2 + g^2 (2 G^2 + d sigma^2)
                    + M^2 (2 D^2 + 4 B^2 g^2 gamma_t^2 + 2 (g gamma_t l + D)^2 / (mu~ g))

    Args:
        eta: the step sizes of t = 0, ..., T - 1, in order
        sigma: standard deviation of each coordinate of zeta
        form: "recursion" unrolls this, with |D|, and only requires positive steps; "closed" is below; "printed" is
            (18), with b and b_bar as small as the given steps allow

    The closed form is, with b from D <= b g^2 and r = 1 + b gamma_1,

        prod (1 - mu~ gamma_i) |theta_0 - theta_PS|^2 + 2/mu~ [(2 G^2 + d sigma^2) gamma_t
        + 2 M^2 (r l + b)^2 / mu~ gamma_t^2 + M^2 (2 b^2 + 4 B^2 r^2) gamma_t^3]

    and requires gamma <= min(1 / mu~, mu~ / (8 B^2)) and (gamma_t / gamma_{t+1})^3 <= 1 + mu~ gamma_{t+1} / 2.

    Differs from the paper:
    - <x, D e> <= 4 D^2 (|x|^2 + |e|^2) (the bound on B_1) is false for small D. The term is of order D, so the
      memory adds b^2 to the factor of gamma^2, where (18) has it at gamma^3.
    - (4.2) bounds by |theta_t - theta_PS|^2; (36) puts |x|^2 there. It is at most 2 |x|^2 + 2 gamma_t^2 |e|^2.
    - gamma_t^2 / gamma_{t+1}^2 <= 1 + b_bar gamma_{t+1}^2 fails for gamma_t = a_0 / (a_1 + t) whatever b_bar.
      With gamma_{t+1} on the right it holds, b_bar = 2 b + b^2 gamma_1 and b = (1 + 1 / (a_1 + 1)) / a_0.
    - Lemma A.1 requires slowly decaying steps (for (18): power 4, mu~ / 4, so about a_0 >= 32 / mu~); the theorem omits
        this.
    """
    eta, mu, M2, B2 = check_steps(eta), given.mu_tilde, given.M**2, given.B**2
    check_form(form)
    if not mu > 0:
        return Bound.nothing(CAUSES, (given.weak,), len(eta))
    drop, g, before = eta[:-1] - eta[1:], eta[1:], eta[:-1]
    variance, reach = given.dimension * sigma**2, given.L * (1.0 + given.beta)
    if form == "recursion":
        late = 2 * drop**2 + 4 * B2 * g**2 * before**2 + 2 * (g * before * reach + abs(drop)) ** 2 / (mu * g)
        memory = M2 * np.concatenate([[0.0], late])  # e_0 = 0
        keep = np.maximum(0.0, 1.0 - 1.5 * mu * eta + 4.0 * B2 * eta**2)
        noise = (2.0 * given.G**2 + variance) * eta**2
        start = unroll(keep, 0.0 * eta, given.distance)
        return Bound.by(CAUSES, start, unroll(keep, noise), unroll(keep, memory))
    b = float(np.max(drop / g**2, initial=0.0))
    if form == "closed":
        r, limit = 1.0 + b * eta[0], min(1.0 / mu, mu / (8.0 * B2) if B2 > 0 else math.inf)
        transient = unroll(1.0 - mu * eta, 0.0 * eta, given.distance)
        noise = 2.0 / mu * (2.0 * given.G**2 + variance) * eta
        memory = 4.0 / mu**2 * M2 * (r * reach + b) ** 2 * eta**2 + 2.0 / mu * M2 * (2 * b**2 + 4 * B2 * r**2) * eta**3
        return _from_start(transient, noise, memory, unmet_steps(eta, mu, limit, 3))
    b_bar = float(np.max((before**2 / g**2 - 1.0) / g**2, initial=0.0))
    limit = min(8.0 / mu, mu / (4.0 * B2) if B2 > 0 else math.inf, (mu / (16 * b**2)) ** (1 / 3) if b else math.inf)
    transient = unroll(1.0 - mu / 4.0 * eta, 0.0 * eta, given.distance)
    noise = 8.0 / mu * (given.G**2 + variance) * eta
    memory = 16.0 * reach**2 * M2 / mu**2 * (eta**2 + b_bar * eta**4) + 24.0 * b**2 * M2 / mu * eta**3
    return _from_start(transient, noise, memory, unmet_steps(eta, mu / 4.0, limit, 4))


@checked
def dice_model_error(bound: Bound, given: DiceAssumptions, eta: Values) -> np.ndarray:
    """E |theta_t - theta_PS|^2 <= (sqrt(bound_t) + gamma_t M)^2, the start first: what (18) implies for the model."""
    steps = check_steps(eta)
    if len(steps) + 1 != len(bound.total):
        raise ValueError(f"eta must contain the {len(bound.total) - 1} steps of the bound; got {len(steps)}.")
    lag = np.concatenate([[0.0], steps * given.M])
    return (np.sqrt(np.maximum(bound.total, 0.0)) + lag) ** 2


@checked
def travel(eta: Values, clip: Positive, memory_clip: NonNegative = 0.0) -> float:
    """(C1 + C2) sum gamma: the farthest the model can get from its start without noise; PCSGD has C2 = 0.

    Noise adds sigma sqrt(sum gamma^2) per coordinate. A limit below |theta_0 - theta_PS| rules out convergence.
    """
    return float(check_steps(eta).sum() * (clip + memory_clip))


def _from_start(transient: np.ndarray, noise: np.ndarray, memory: np.ndarray, unmet: tuple[str, ...]) -> Bound:
    return Bound.by(CAUSES, transient, np.concatenate([[0.0], noise]), np.concatenate([[0.0], memory]), unmet=unmet)
