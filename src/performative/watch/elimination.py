"""Many small linear systems at once: the matrix axes come first, then the batch axes."""

from typing import Any

import numpy as np


def solve(A: Any, B: Any, xp: Any = np) -> Any:
    """A^-1 B of positive definite A [p, p, ...] and B [p, r, ...]; the trailing axes broadcast."""
    return eliminate(A, B, xp)[0]


def eliminate(A: Any, B: Any, xp: Any = np) -> tuple[Any, Any]:
    """A^-1 B [p, r, ...] and log det A by elimination without pivoting; the number of array operations depends on p.

    LAPACK solves one matrix at a time: for a hundred thousand small matrices this is many times as fast.
    """
    p, r = A.shape[0], B.shape[1]
    rows = [[A[i, j] for j in range(p)] + [B[i, j] for j in range(r)] for i in range(p)]
    size = 0.0
    for i in range(p):
        pivot = xp.maximum(rows[i][i], 1e-300)
        size = size + xp.log(pivot)
        rows[i] = rows[i][: i + 1] + [one / pivot for one in rows[i][i + 1 :]]
        for j in range(i + 1, p):
            factor = rows[j][i]
            rows[j] = rows[j][: i + 1] + [
                a - factor * b for a, b in zip(rows[j][i + 1 :], rows[i][i + 1 :], strict=True)
            ]
    out: list[list[Any]] = [[] for _ in range(p)]
    for i in reversed(range(p)):
        for c in range(r):
            value = rows[i][p + c]
            for j in range(i + 1, p):
                value = value - rows[i][j] * out[j][c]
            out[i].append(value)
    flat = xp.broadcast_arrays(*(one for row in out for one in row))
    return xp.stack(flat).reshape(p, r, *flat[0].shape), size
