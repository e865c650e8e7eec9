"""Which client drives the retraining."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from performative.audit.outlook import Outlook


@dataclass(frozen=True, eq=False)
class Driver:
    """One client's part.

    share:   of the leading eigenvalue of the retraining map's slope; the clients' shares sum to 1, and one that pulls
             against the others has a negative share
    size:    spectral norm of what it adds to the slope: p_i times its sensitivity for the squared loss
    without: the contraction factor were this client's data to stay
    """

    name: str
    share: float
    size: float
    without: float


def drivers(found: Outlook, names: Sequence[str]) -> tuple[Driver, ...]:
    """The clients, the one with the largest share first.

        J = sum_i J_i,   J v = r v,   u' J = r u'      share_i = Re(u' J_i v / (r u' v))

    Exact to first order: what a small change of client i's response changes in r, relative to r. `without` is the
    spectral radius of J - J_i, the client still counted in the risk.
    """
    J = found.slopes.sum(axis=0)
    if len(names) != len(found.slopes):
        raise ValueError(
            f"drivers: names must hold one name for each of the {len(found.slopes)} clients; got {len(names)}."
        )
    values, right = np.linalg.eig(J)
    at = int(np.abs(values).argmax())
    others, left = np.linalg.eig(J.T)
    u, v = left[:, int(np.abs(others - values[at]).argmin())], right[:, at]
    scale = values[at] * (u @ v)
    parts = np.einsum("j,ijk,k->i", u, found.slopes, v)
    shares = np.real(parts / scale) if abs(scale) > 1e-12 else np.full(len(names), np.nan)
    lines = [
        Driver(
            str(name), float(share), float(np.linalg.norm(slope, 2)), float(np.abs(np.linalg.eigvals(J - slope)).max())
        )
        for name, share, slope in zip(names, shares, found.slopes, strict=True)
    ]
    return tuple(sorted(lines, key=lambda line: -np.nan_to_num(line.share)))
