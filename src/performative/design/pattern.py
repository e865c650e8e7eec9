"""Which models to deploy: steps up and down that neither level nor trend can mimic."""

import numpy as np
from scipy.linalg import hadamard

from performative.audit.drift import lost

# + - - + sums to zero, and so does its product with 1, 2, 3, 4.
BLOCK = np.array([1.0, -1.0, -1.0, 1.0])
FEWEST = 2


def signs(deployments: int, parameters: int) -> np.ndarray:
    """[T, m] of +1 and -1, T a multiple of 4: each parameter's own sequence of blocks + - - + or - + + -.

    Every block is orthogonal to level and trend, whatever the others are. A Hadamard matrix determines which of the two
    a block is, which separates the parameters: exactly if T / 4 is a power of two, nearly so otherwise.
    """
    blocks = deployments // 4
    H = hadamard(1 << max(blocks - 1, parameters - 1, 0).bit_length())[:blocks, :parameters]
    return np.kron(H, BLOCK[:, None]).astype(np.float64)


def effective_deployments(pattern: np.ndarray, drift: str) -> float:
    """T_eff: the slope of the worst parameter has variance v / (size^2 T_eff), v that of one deployment's mean.

        T_eff = min_k 1 / [(S' M S)^-1]_kk,      M removes the level and, except for drift "none", the trend

    T if nothing is lost; 0 if the parameters cannot be separated.
    """
    T = len(pattern)
    basis = np.vander(np.linspace(-1, 1, T), lost(drift), increasing=True)
    left = pattern - basis @ np.linalg.lstsq(basis, pattern, rcond=None)[0]
    M = left.T @ left
    if np.linalg.matrix_rank(M) < len(M):
        return 0.0
    return float(1 / np.diag(np.linalg.inv(M)).max())


def lengths(least: int, most: int) -> list[int]:
    """Numbers of deployments to consider: multiples of 4."""
    return list(range(max(4 * FEWEST, -(-least // 4) * 4), most + 1, 4))
