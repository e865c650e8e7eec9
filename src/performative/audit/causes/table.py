"""Logged rows in the form the designs need: one array per role."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

import numpy as np

from performative._base.checks import nearest

T = TypeVar("T", bound=np.ndarray | None)


@dataclass(frozen=True, eq=False)
class Table:
    """One row per person and decision.

    Attributes:
        outcome: [n] what happened; NaN if unknown
        decision: [n] 0 or 1, what the model decided
        score, threshold: what the decision is based on, and the value at and above which it is 1 (or 0)
        propensity: [n] the logged probability of decision = 1
        randomized: [n] whether the decision of this row was randomized
        deployment, client, time: [n] integer codes 0, 1, ...; `time` in order
        features: [n, k] what was known about people before the decision
        clients: names of the clients
    """

    outcome: np.ndarray
    decision: np.ndarray | None = None
    score: np.ndarray | None = None
    threshold: float | None = None
    propensity: np.ndarray | None = None
    randomized: np.ndarray | None = None
    deployment: np.ndarray | None = None
    client: np.ndarray | None = None
    time: np.ndarray | None = None
    features: np.ndarray | None = None
    names: tuple[str, ...] = ()
    clients: tuple[str, ...] = ()

    @property
    def rows(self) -> int:
        """n."""
        return len(self.outcome)

    def where(self, keep: np.ndarray) -> "Table":
        """Only these rows."""

        def part(column: T) -> Any:
            return None if column is None else column[keep]

        return Table(
            self.outcome[keep], part(self.decision), part(self.score), self.threshold, part(self.propensity),
            part(self.randomized), part(self.deployment), part(self.client), part(self.time), part(self.features),
            self.names, self.clients,
        )  # fmt: skip


def read_table(
    frame: Any,
    outcome: str,
    decision: str | None = None,
    score: str | None = None,
    threshold: float | None = None,
    propensity: str | None = None,
    randomized: str | None = None,
    deployment: str | None = None,
    client: str | None = None,
    time: str | None = None,
    features: Sequence[str] = (),
) -> Table:
    """The columns of a data frame (pandas, Polars, PyArrow, ...: anything Narwhals reads) by role."""
    import narwhals.stable.v2 as nw

    try:
        table = nw.from_native(frame, eager_only=True)
    except TypeError:
        raise ValueError(
            f"effect: frame must be a data frame (pandas, Polars or PyArrow), one row per person; "
            f"got {type(frame).__name__}."
        ) from None
    roles = {
        "outcome": outcome, "decision": decision, "score": score, "propensity": propensity, "randomized": randomized,
        "deployment": deployment, "client": client, "time": time,
    }  # fmt: skip
    named = [(role, name) for role, name in roles.items() if name is not None]
    for role, name in (*named, *(("features", name) for name in features)):
        if name not in table.columns:
            raise ValueError(
                f"effect: {role}={name!r} is not a column of the frame.{nearest(str(name), table.columns)}"
            )
    # A model's score may also be a feature, and a deployment the time: only these roles must be distinct.
    alone = [name for role, name in named if role in ("outcome", "decision", "propensity")] + list(features)
    if twice := sorted({name for name in alone if alone.count(name) > 1}):
        raise ValueError(f"effect: column {twice[0]!r} has two roles among outcome, decision, propensity and features.")
    if not len(table):
        raise ValueError("effect: frame has no rows.")

    def column(role: str) -> Any:
        name = roles[role]
        return None if name is None else table.get_column(name)

    def numbers(role: str, empty: bool = False) -> np.ndarray | None:
        return None if roles[role] is None else _numbers(column(role), role, empty)

    codes = {role: _codes(column(role), role) for role in ("deployment", "client", "time") if roles[role] is not None}

    def places(role: str) -> np.ndarray | None:
        return codes[role][0] if role in codes else None

    chosen = numbers("propensity")
    if chosen is not None and not np.all((chosen >= 0) & (chosen <= 1)):
        raise ValueError(f"effect: propensity={propensity!r} contains probabilities and must lie in [0, 1].")
    if threshold is not None and not np.isfinite(threshold):
        raise ValueError(f"effect: threshold must be a finite number; got {threshold!r}.")
    flags = _flags(column("randomized"), "randomized") if randomized is not None else None
    matrix = np.column_stack([_numbers(table.get_column(name), name, False) for name in features]) if features else None
    return Table(
        _numbers(table.get_column(outcome), "outcome", True),
        None if decision is None else _flags(column("decision"), "decision").astype(np.float64),
        numbers("score"), threshold, chosen, flags, places("deployment"), places("client"), places("time"), matrix,
        tuple(features), codes["client"][1] if "client" in codes else (),
    )  # fmt: skip


def _numbers(series: Any, role: str, empty: bool) -> np.ndarray:
    """A column as floats; missing values (NaN) are allowed only if `empty` is set."""
    import narwhals.stable.v2 as nw

    if not (series.dtype.is_numeric() or series.dtype == nw.Boolean):
        raise ValueError(f"effect: column {series.name!r} ({role}) must be numeric; got {series.dtype}. Encode it.")
    values = series.cast(nw.Float64).to_numpy().astype(np.float64)
    bad = ~np.isfinite(values)
    if empty:
        if np.any(np.isinf(values)):
            raise ValueError(f"effect: column {series.name!r} ({role}) contains infinite values; drop or clip them.")
        return values
    if np.any(bad):
        raise ValueError(
            f"effect: column {series.name!r} ({role}) is missing (NaN, empty or infinite) in {int(bad.sum())} of "
            f"{len(values)} rows; drop or fill them first."
        )
    return values


def _flags(series: Any, role: str) -> np.ndarray:
    """A column of 0 and 1, or of False and True."""
    values = _numbers(series, role, False)
    if not np.all((values == 0) | (values == 1)):
        strange = values[(values != 0) & (values != 1)][0]
        raise ValueError(f"effect: {role}={series.name!r} must contain 0 and 1 (or booleans); got {strange:g}.")
    return values == 1


def _codes(series: Any, role: str) -> tuple[np.ndarray, tuple[str, ...]]:
    """Values as codes in sorted order, and their names."""
    if series.null_count() or (series.dtype.is_float() and series.is_nan().any()):
        raise ValueError(f"effect: {role}={series.name!r} is missing in some rows; drop or fill them first.")
    values, codes = np.unique(series.to_numpy(), return_inverse=True)
    return codes.reshape(-1), tuple(str(value) for value in values)
