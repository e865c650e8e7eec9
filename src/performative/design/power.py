"""Width and power of a slope's interval, in closed form.

    slope ~ N(B, se^2),   se = sigma / (size sqrt(n T)),   Student's t with df = T - k - m

k: level and trend, m: explored parameters. sigma^2 / n is the variance of a deployment's mean over all its rows:
1 / sum_i (n_i / (phi_i sigma_i^2)) for several clients with one slope.
"""

import numpy as np
from scipy import optimize, special, stats


def mean_width(error: float, df: int, level: float) -> float:
    """E[2 t s] with s^2 = error^2 chi2(df) / df: the expected width of the interval of `audit.response`."""
    shrink = np.exp(special.gammaln((df + 1) / 2) - special.gammaln(df / 2)) * np.sqrt(2 / df)
    return float(2 * stats.t.ppf((1 + level) / 2, df) * shrink * error)


def power_of(ratio: float, df: int, level: float) -> float:
    """The probability that the interval excludes 0 if B = ratio * se: noncentral t."""
    critical = stats.t.ppf((1 + level) / 2, df)
    return float(stats.nct.sf(critical, df, ratio) + stats.nct.cdf(-critical, df, ratio))


def ratio_for(power: float, df: int, level: float) -> float:
    """B / se at which `power_of` is `power`."""
    high = 2.0
    while power_of(high, df, level) < power:
        high *= 2
    return float(optimize.brentq(lambda ratio: power_of(ratio, df, level) - power, 1e-9, high, xtol=1e-10))
