r"""Confidence sequences for running means: losses and acceptance rates under the deployed models."""

from dataclasses import dataclass

import numpy as np

# Bets lambda_i = 2^-i / 2 and their shares of alpha, 1 / ((i + 1)(i + 2)), which sum to less than 1.
_BETS = 0.5 * 0.5 ** np.arange(24)
_LOG_SHARES = -np.log((np.arange(24) + 1.0) * (np.arange(24) + 2.0))
# Rows at which the asymptotic sequence is narrowest.
_NARROWEST = 1000


@dataclass
class Bounded:
    r"""The mean of numbers between low and high, by betting on rows as they arrive.

        sum_s (x_s - mu_s) <= min_i [log(2 / alpha_i) + psi(lambda_i) V_t] / lambda_i,      V_t = sum_s (x_s - c_s)^2
        psi(lambda) = -log(1 - lambda) - lambda,      x scaled to [0, 1],   c_s the mean of the batches before

    and the same for the other sign, at all t at once with probability 1 - alpha: exp(lambda sum(x - mu) - psi(lambda)
    V) is a supermartingale (Howard et al. 2021, Theorem 4), and Ville's inequality holds for each bet. mu_s is the mean
    given the past, so it may change; the interval is for its average over the rows seen. Nothing else is assumed.
    """

    low: float = 0.0
    high: float = 1.0
    rows: float = 0.0
    total: float = 0.0
    squares: float = 0.0

    def add(self, values: np.ndarray) -> None:
        """Add the rows of a batch, in any order: the center depends on earlier batches only."""
        x = (np.asarray(values, np.float64) - self.low) / (self.high - self.low)
        center = (self.total + 0.5) / (self.rows + 1)
        self.squares += float(((x - center) ** 2).sum())
        self.total += float(x.sum())
        self.rows += len(x)

    def interval(self, alpha: float) -> tuple[float, float, float]:
        """Mean, lower and upper end, valid at any look."""
        if not self.rows:
            return float("nan"), self.low, self.high
        psi = -np.log1p(-_BETS) - _BETS
        width = float(np.min((np.log(2 / alpha) - _LOG_SHARES + psi * self.squares) / _BETS)) / self.rows
        mean, size = self.total / self.rows, self.high - self.low
        ends = (self.low + size * value for value in (mean, max(mean - width, 0.0), min(mean + width, 1.0)))
        value, low, high = ends
        return value, low, high


@dataclass
class Moments:
    r"""The mean of numbers without known bounds.

        mean +- sd sqrt(2 (n rho^2 + 1) / (n^2 rho^2) log(sqrt(n rho^2 + 1) / alpha)),       n rows

    Asymptotic: the coverage 1 - alpha holds in the limit of a late first look, if variances are finite
    (Waudby-Smith, Arbour, Sinha, Kennedy and Ramdas 2024, Theorem 2.2).
    """

    rows: float = 0.0
    mean: float = 0.0
    squares: float = 0.0

    def add(self, values: np.ndarray) -> None:
        """Add the rows of a batch, by Chan, Golub and LeVeque's update."""
        x = np.asarray(values, np.float64)
        if not len(x):
            return
        ours, n = float(x.mean()), self.rows + len(x)
        delta = ours - self.mean
        self.squares += float(((x - ours) ** 2).sum()) + delta**2 * self.rows * len(x) / n
        self.mean += delta * len(x) / n
        self.rows = n

    def interval(self, alpha: float) -> tuple[float, float, float]:
        """Mean, lower and upper end."""
        n = self.rows
        if n < 2:
            return (self.mean if n else float("nan")), float("-inf"), float("inf")
        rho2 = (-2 * np.log(alpha) + np.log(-2 * np.log(alpha)) + 1) / _NARROWEST
        width = np.sqrt(
            self.squares / (n - 1) * 2 * (n * rho2 + 1) / (n**2 * rho2) * (0.5 * np.log(n * rho2 + 1) - np.log(alpha))
        )
        return self.mean, float(self.mean - width), float(self.mean + width)
