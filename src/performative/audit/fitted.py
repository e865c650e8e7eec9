"""A problem fitted to logs: the observed rows, shifted by the model according to the fitted response."""

from collections.abc import Sequence
from typing import Any

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from performative.audit.fit import Fit
from performative.audit.log import ClientLog
from performative.domains import AbstractDomain
from performative.populations import Database
from performative.populations.shifts import Linear
from performative.problem import Problem
from performative.types import Theta


class OnRows(eqx.Module):
    """A loss of z = (x, y) as a loss of one row: x = the columns `features`, in the order of theta; y = `label`.

    Args:
        label: None if the loss takes x alone
        intercept: index of the intercept in theta, for which x gets a 1; None for none
    """

    loss: Any
    features: tuple[int, ...] = eqx.field(static=True)
    label: int | None = eqx.field(static=True, default=None)
    intercept: int | None = eqx.field(static=True, default=None)

    def __call__(self, theta: Theta, row: Array) -> Float[Array, ""]:
        x = row[np.asarray(self.features)]
        if self.intercept is not None:
            x = jnp.insert(x, self.intercept, jnp.ones((), x.dtype))
        return self.loss(theta, x if self.label is None else (x, row[self.label]))


def fitted_problem(
    logs: Sequence[ClientLog],
    fits: Sequence[Fit],
    loss: Any,
    weights: Any = None,
    *,
    features: Sequence[int] | None = None,
    label: int | None = None,
    intercept: int | None = None,
    domain: AbstractDomain | None = None,
    rows: int = 20_000,
) -> Problem:
    """Build the problem that the logs suggest.

        D_i(theta): kept rows of client i from any deployment t, - fitted mean_t + level_i + B_i (theta - theta_T)

    Args:
        loss: l(theta; z) of ONE sample, z = (x, y) if `label` is given, else z = x
        features: columns that make up x, in the order of theta; None for all but the label
        rows: the maximum number of rows per client, spread evenly over its deployments

    The rows shift without changing shape: a response of the spread, or of the label given the features, is not
    modeled. A 0-1 label moves in mean only, which is all that a loss linear in y (the logistic loss) needs.
    """
    q = logs[0].mean.shape[1]
    if any(log.columns != logs[0].columns or log.parameters != logs[0].parameters for log in logs):
        raise ValueError("fitted_problem: all clients need the same columns and parameters; got different names.")
    label = None if label is None else label % q
    chosen = tuple(range(q)) if features is None else tuple(int(k) for k in features)
    on_rows = OnRows(loss, tuple(k for k in chosen if k != label), label, intercept)
    tables = []
    for log, fit in zip(logs, fits, strict=True):
        kept, t = log.rows_kept()
        thin = np.unique(np.linspace(0, len(kept) - 1, min(rows, len(kept))).round().astype(int))
        around = (kept - fit.means[t])[thin]
        # The level is estimated from all rows, not only from the few that were kept.
        tables.append(around - around.mean(axis=0) + fit.level - fit.B @ fit.here)
    equal = len({len(table) for table in tables}) == 1
    population = Database(np.stack(tables) if equal else tables, Linear(np.stack([fit.B for fit in fits])))
    return Problem(on_rows, population, weights, domain)
