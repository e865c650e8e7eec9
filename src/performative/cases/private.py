"""The two problems of Li, Yemini and Wai 2024, Section 6, with their constants as corrected."""

from typing import Any

import numpy as np

from performative import losses, partition
from performative._base.arguments import checked
from performative._base.checks import check_counts, check_finite
from performative.cases.credit import credit_table
from performative.domains import Box
from performative.facts import cites
from performative.populations import Database, Gaussian, Mixture, Strategic
from performative.populations.base import AbstractPopulation
from performative.populations.shares import Constant
from performative.populations.shifts import Linear
from performative.problem import SCALED_BY_ROWS, Problem


@cites("li2024clipped")
@checked
def quadratic(
    beta: float = 0.01,
    p: float = 0.1,
    a: float = 10.0,
    b: float = 1.0,
    rows: int | None = None,
    clients: int = 1,
    box: float | None = 10.0,
) -> Problem:
    """A number learned from observations of 0 and b, which the model shifts. Eq. (24), Figure 1.

        loss (theta + a Z)^2 / 2,      Z = b B - beta theta,      B ~ Bernoulli(p),      theta in [-box, box]

    `rows` None draws a new B for each sample; otherwise every client has a table of that many rows, round(p rows) of
    them ones, and p below is that fraction. The paper has 1e5 rows.
    theta_PS = -p a b / (1 - a beta) and theta_PO = -p a b / (1 - a beta) too: the shift is the same for all rows.
    `box` None uses the paper's set (25) with a b instead of a: 2 p a b / (1 - a beta), which contains theta_PS; as
    printed it may not.
    Differs from the paper: its theta_PS lacks the b, and its B is drawn once, so p is that of the sample.
    """
    check_counts(clients=clients)
    numbers = {"beta": beta, "p": p, "a": a, "b": b}
    check_finite("quadratic", **numbers)
    if not (0 < p < 1 and a > 0 and b > 0):
        raise ValueError(f"quadratic needs 0 < p < 1, a > 0 and b > 0; got p={p}, a={a}, b={b}.")
    if box is not None and not 0 < box < np.inf:
        raise ValueError(f"quadratic: box must be a number above 0, or None for the paper's; got {box}.")
    if not a * beta < 1:
        raise ValueError(f"quadratic needs a * beta < 1, otherwise retraining diverges; got a={a}, beta={beta}.")
    population: AbstractPopulation
    if rows is None:
        groups = tuple(Gaussian(np.full(clients, level), -beta, 0.0) for level in (0.0, b))
        population, share = Mixture(groups, Constant([1 - p, p])), p
    else:
        check_counts(rows=rows)
        ones = round(p * rows)
        if not 0 < ones < rows:
            raise ValueError(f"quadratic: rows={rows} is too few for a fraction p={p} of ones; use more.")
        table = np.zeros(rows)
        table[:ones] = b
        population, share = Database(np.broadcast_to(table, (clients, rows)), Linear(-beta)), ones / rows
    half = 2 * share * a * b / (1 - a * beta) if box is None else box
    return Problem(losses.quadratic(a), population, domain=Box(-half, half))


@cites("li2024clipped")
@checked
def credit_default(
    x: Any = None,
    y: Any = None,
    beta: Any = 0.01,
    penalty: float | None = None,
    clients: int = 1,
    floor: float = 1e-3,
    seed: int = 0,
) -> Problem:
    """Borrowers with a history of default who manipulate their files to evade detection. Example 2.3, Figure 2.

        loss (1 + y) (log(1 + exp(x.theta)) - y x.theta) + penalty |theta|^2 / 2
        x = x_bar - beta y theta / max(floor, |theta|)

    Args:
        x: [m, d], one row per borrower, already scaled; y [m] of 0 and 1 (1: has defaulted). Both None: the synthetic
            `credit_table`, with its eight features standardized
        beta: how far people move, a number or one per client; the paper has 0.001, 0.01 and 0.1
        penalty: None for 100 / m
        clients: number of learners among which the rows are split at random (by `seed`), with weights by rows
        floor: eps_U, which the paper does not specify

    Differs from the paper: its 15,776 rows of GiveMeSomeCredit were never published, so the numbers in its figures
    cannot be reproduced. There is no intercept, as in loss (7); a column of ones would move like any other.
    """
    check_counts(clients=clients)
    if (x is None) != (y is None):
        raise ValueError("credit_default: pass both x and y, or neither for the synthetic table.")
    made_up = x is None
    if made_up:
        table = credit_table().drop(columns="bank")
        y = table.pop("default").to_numpy()
        x = ((table - table.mean()) / table.std(ddof=0)).to_numpy()
    check_finite("credit_default", x=x, y=y, beta=beta)
    x, y = np.asarray(x, np.float64), np.asarray(y)
    if x.ndim != 2 or y.shape != x.shape[:1]:
        raise ValueError(f"credit_default: x must be [rows, features] and y [rows]; got {x.shape} and {y.shape}.")
    m = len(x)
    if clients > m:
        raise ValueError(f"credit_default: {m} rows cannot be split among clients={clients}; use at most {m}.")
    order = np.arange(m) if clients == 1 else np.random.default_rng(seed).permutation(m)
    hands = np.array_split(order, clients)
    features, labels, count = partition.tables(x, y, hands)
    population = Strategic(
        features, labels, beta, count=None if np.all(count == count[0]) else count, response="evade", floor=floor
    )
    loss = losses.logistic(100.0 / m if penalty is None else penalty, class_weight=(1.0, 2.0))
    return Problem(loss, population, weights=count / m, from_data=(SCALED_BY_ROWS,) if made_up else ())
