"""A synthetic credit bureau."""

from typing import TYPE_CHECKING, Any

import numpy as np

from performative._base.arguments import checked
from performative._base.checks import check_counts, check_room
from performative.problem import Problem

if TYPE_CHECKING:
    import pandas

# name: (typical value, spread, effect on the log-odds of a default per spread, can applicants change it?)
_FEATURES = {
    "utilization": (45.0, 20.0, 1.6, True),
    "debt_ratio": (0.35, 0.12, 1.2, True),
    "open_lines": (8.0, 3.0, 1.0, True),
    "new_enquiries": (2.5, 1.0, 0.8, True),
    "late_payments": (1.5, 1.0, 0.9, False),
    "income": (42.0, 14.0, -0.7, False),
    "years_employed": (7.0, 4.0, -0.5, False),
    "age": (44.0, 12.0, -0.3, False),
}
CHANGEABLE = tuple(name for name, (*_, changeable) in _FEATURES.items() if changeable)


@checked
def credit_table(seed: int = 7, banks: int = 10) -> "pandas.DataFrame":
    """Synthetic loan applicants of several banks, one row each: `bank`, eight features, and `default` (0 or 1).

        z_i ~ N(mu_bank, 1) by feature,      P(default) = sigmoid(effect . z - 0.8)

    The numbers depend only on the seed. They look like credit files, but describe no real people.
    """
    import pandas as pd

    check_counts(banks=banks)
    check_room("credit_table", 400 * (len(_FEATURES) + 2) * banks, banks=banks)
    rng = np.random.default_rng(seed)
    center, spread, effect = np.array([row[:3] for row in _FEATURES.values()]).T
    tables = []
    for bank, size in enumerate(rng.integers(150, 400, banks)):
        z = rng.normal(0.0, 0.25, len(effect)) + rng.standard_normal((size, len(effect)))
        odds = z @ effect - 0.8
        table = pd.DataFrame(center + spread * z, columns=list(_FEATURES))
        table.insert(0, "bank", f"bank {bank}")
        table["default"] = (rng.uniform(size=size) < 1 / (1 + np.exp(-odds))).astype(int)
        tables.append(table)
    return pd.concat(tables, ignore_index=True)


@checked
def credit(seed: int = 7, strength: float = 1.25, penalty: float = 0.04, banks: int = 10) -> Problem:
    """Banks that score loan applicants who react to the score; synthetic, with a strong effect, and quick to solve.

        x = x_bar - strength_i theta   on utilization, debt ratio, open lines and new enquiries

    `strength` is the mean over banks: with ten banks, the applicants of bank i move 2i/9 times as far, so those of bank
    0 do not react at all and those of the last bank react twice as much as the mean. No single model suits all banks,
    so the stable point (retrain until nothing changes) and the optimal point (anticipate the reaction) differ.
    """
    table = credit_table(seed, banks)
    strengths: dict[Any, float] = {f"bank {i}": strength * 2 * i / (banks - 1) for i in range(banks) if banks > 1}
    return Problem.from_frame(
        table, client="bank", label="default", strategic=CHANGEABLE, strength=strengths or strength, penalty=penalty
    )
