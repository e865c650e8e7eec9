"""Quadrature rules for N(0, I) that are exact for polynomials."""

import numpy as np

from performative.facts import Uncertified

# Up to this many dimensions a grid has about as few nodes as any other rule.
_GRID = 3
# Maximum nodes of a rule for polynomials: 180 dimensions at degree 5.
_MOST_NODES = 1 << 16


def polynomial_rule(size: int, degree: int) -> tuple[np.ndarray, np.ndarray]:
    """Nodes [n, size] and weights [n] for N(0, I), exact for polynomials up to `degree`; weights may be negative.

    Up to three dimensions, and above degree 5, a Gauss-Hermite grid. Otherwise, up to degree 3, +-sqrt(m) e_i; up to
    degree 5, 2 m^2 + 1 nodes: see `_degree_five`.
    """
    side = degree // 2 + 1
    if size <= _GRID or degree > 5:
        if side**size > _MOST_NODES:
            raise Uncertified(f"no rule of few nodes is exact up to degree {degree} in {size} dimensions")
        return grid_rule(size, side)
    if degree <= 3:
        return np.concatenate([np.eye(size), -np.eye(size)]) * np.sqrt(size), np.full(2 * size, 0.5 / size)
    if 2 * size**2 > _MOST_NODES:
        raise Uncertified(f"{size} dimensions are too many for a rule that is exact up to degree {degree}")
    return _degree_five(size)


def _degree_five(m: int) -> tuple[np.ndarray, np.ndarray]:
    """0, +-sqrt(m+2) e_i and a (+-e_i +-e_j), a = sqrt((m+2)/2).

    Weights 2/(m+2), (4-m)/(2 (m+2)^2) and 1/(m+2)^2: then E x_i^2 = 1, E x_i^4 = 3, E x_i^2 x_j^2 = 1.
    """
    axes, pairs = np.eye(m), np.stack(np.triu_indices(m, 1), axis=1)
    signs = np.asarray([[1.0, 1.0], [1.0, -1.0], [-1.0, 1.0], [-1.0, -1.0]])
    corners = np.zeros((len(pairs), 4, m))
    np.put_along_axis(corners, np.repeat(pairs[:, None], 4, axis=1), signs[None], axis=2)
    nodes = [np.zeros((1, m)), np.sqrt(m + 2) * axes, -np.sqrt(m + 2) * axes]
    nodes.append(np.sqrt((m + 2) / 2) * corners.reshape(-1, m))
    weights = [2 / (m + 2)], np.full(2 * m, (4 - m) / (2 * (m + 2) ** 2)), np.full(4 * len(pairs), (m + 2) ** -2.0)
    return np.concatenate(nodes), np.concatenate(weights)


def grid_rule(size: int, side: int) -> tuple[np.ndarray, np.ndarray]:
    """Gauss-Hermite in every coordinate."""
    line, weight = hermite_rule(side)
    grid = np.stack(np.meshgrid(*[line] * size, indexing="ij"), axis=-1).reshape(-1, size)
    return grid, np.prod(np.stack(np.meshgrid(*[weight] * size, indexing="ij"), axis=-1), axis=-1).ravel()


def hermite_rule(count: int) -> tuple[np.ndarray, np.ndarray]:
    line, weight = np.polynomial.hermite_e.hermegauss(count)
    return line, weight / weight.sum()
