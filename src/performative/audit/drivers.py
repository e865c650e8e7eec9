"""Which client drives retraining."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from performative.audit.outlook import Outlook
from performative.findings import Plain


@dataclass(frozen=True, eq=False)
class Driver(Plain):
    """One client's contribution.

    Attributes:
        share: of the leading eigenvalue of the retraining map's slope; the clients' shares sum to 1, and one that pulls
            against the others has a negative share
        size: spectral norm of its contribution to the slope: p_i times its sensitivity for the squared loss
        without: the contraction factor if this client's data did not react
        lower, upper: 95% interval of the share; leads: fraction of the draws in which it has the largest share
    """

    name: str
    share: float
    size: float
    without: float
    lower: float
    upper: float
    leads: float


def drivers(found: Outlook, names: Sequence[str]) -> tuple[Driver, ...]:
    """The clients, the one with the largest share first.

        J = sum_i J_i,   J v = r v,   u' J = r u'      share_i = Re(u' J_i v / (r u' v))

    Exact to first order: the relative change of r under a small relative change of client i's response. `without` is
    the spectral radius of J - J_i, with the client still in the risk.
    """
    J = found.slopes.sum(axis=0)
    if len(names) != len(found.slopes):
        raise ValueError(
            f"drivers: names must contain one name for each of the {len(found.slopes)} clients; got {len(names)}."
        )
    shares, draws = _shares(found.slopes), np.stack([_shares(slopes) for slopes in found.slope_draws])
    low, high = (
        np.nanquantile(draws, [0.025, 0.975], axis=0) if np.isfinite(draws).any() else np.full((2, len(names)), np.nan)
    )
    leads = np.mean(draws == draws.max(axis=1, keepdims=True), axis=0)
    lines = [
        Driver(
            str(name),
            float(shares[i]),
            float(np.linalg.norm(slope, 2)),
            float(np.abs(np.linalg.eigvals(J - slope)).max()),
            float(low[i]),
            float(high[i]),
            float(leads[i]),
        )
        for i, (name, slope) in enumerate(zip(names, found.slopes, strict=True))
    ]
    return tuple(sorted(lines, key=lambda line: -np.nan_to_num(line.share)))


def _shares(slopes: np.ndarray) -> np.ndarray:
    """[N] shares of slopes [N, d, d] in the leading eigenvalue of their sum; NaN if that is 0."""
    J = slopes.sum(axis=0)
    values, right = np.linalg.eig(J)
    at = int(np.abs(values).argmax())
    others, left = np.linalg.eig(J.T)
    u, v = left[:, int(np.abs(others - values[at]).argmin())], right[:, at]
    scale = values[at] * (u @ v)
    parts = np.einsum("j,ijk,k->i", u, slopes, v)
    return np.real(parts / scale) if abs(scale) > 1e-12 else np.full(len(slopes), np.nan)
