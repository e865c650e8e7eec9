"""Corollary 3.6 of the PCSGD paper as printed, with the epsilon that its noise actually provides."""

import dataclasses
import math

from performative._base.arguments import Count, Positive, checked
from performative.privacy.accounting import PoissonSampling, Release, WithoutReplacement, epsilon
from performative.theory.index import numbered


@dataclasses.dataclass(frozen=True)
class PrintedNoise:
    """Noise by the printed formula, for T = `steps` draws of one record of m = `rows`.

    Attributes:
        sigma: standard deviation by the formula; claimed_epsilon: the epsilon it claims to provide
    """

    sigma: float
    clip: float
    claimed_epsilon: float
    delta: float
    steps: int
    rows: int

    @property
    def noise_multiplier(self) -> float:
        """sigma / c."""
        return self.sigma / self.clip

    @property
    def in_regime(self) -> bool:
        """Whether eps <= T / m^2, which the formula requires (up to an unspecified constant)."""
        return self.claimed_epsilon <= self.steps / self.rows**2

    @property
    def poisson_epsilon(self) -> float:
        """Epsilon under what the proof assumes: Poisson sampling at rate 1/m, one record added or removed."""
        return epsilon(Release(self.noise_multiplier, self.steps, PoissonSampling(1 / self.rows)), self.delta)

    @property
    def real_epsilon(self) -> float:
        """Epsilon of the algorithm as it is: one of m drawn uniformly, one record replaced. An upper bound."""
        return epsilon(Release(self.noise_multiplier, self.steps, WithoutReplacement(1, self.rows)), self.delta)

    def __str__(self) -> str:
        return (
            f"sigma {self.sigma:.4g} ({self.noise_multiplier:.4g} clips) claims epsilon {self.claimed_epsilon:g}; "
            f"it provides {self.real_epsilon:.4g} at delta {self.delta:g}, and {self.poisson_epsilon:.4g} under "
            f"Poisson sampling with one record added or removed."
        )


@numbered("li2024", "Corollary 3.6", "noise for (eps, delta), with the eps that it really gives")
@checked
def corollary_3_6_as_printed(
    epsilon: Positive, delta: float, steps: Count, rows: Count, clip: Positive
) -> PrintedNoise:
    """Compute the printed noise. For reproduction only: it does not provide the claimed epsilon. Use `calibrate`.

        sigma = c sqrt(T log(1/delta)) / (m eps)

    c: `clip`; T: `steps`; m: `rows`; eps: `epsilon`. Corollary 3.6 of the PCSGD paper.
    Differs from the paper: nothing. The formula hides a constant, requires eps <= T / m^2, and its proof assumes
    Poisson sampling while the algorithm draws one record uniformly; `real_epsilon` is the epsilon of that algorithm.
    """
    if not 0.0 < delta < 1.0:
        raise ValueError(f"delta must lie between 0 and 1; got {delta!r}.")
    sigma = clip * math.sqrt(steps * math.log(1 / delta)) / (rows * epsilon)
    return PrintedNoise(sigma, clip, epsilon, delta, steps, rows)
