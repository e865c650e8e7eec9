"""Off-policy evaluation from logged bandit feedback: what each of several policies would have earned."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from scipy import stats

from performative._base.arguments import Count, checked
from performative._base.checks import nearest
from performative.findings import Plain

METHODS = ("mean", "ips", "snipw", "dr")
_ROWS = 50


@dataclass(frozen=True)
class PolicyValue(Plain):
    """What a policy earns per row.

    Attributes:
        policy: the policy evaluated; logs: the policy whose rows were used
        method: "mean" (its own rows), "ips", "snipw" (self-normalized) or "dr" (doubly robust)
        value, standard_error, lower, upper: with the interval at the requested level; NaN if not identified
        rows: number of rows; effective: effective sample size, in rows of equal weight
        why: why it is not identified; "" otherwise
    """

    policy: str
    logs: str
    method: str
    value: float
    standard_error: float
    lower: float
    upper: float
    rows: int
    effective: float
    why: str = ""


class Log(NamedTuple):
    """Rows of one policy: outcome [n], propensity [n], action and position [n] as codes, features [n, k]."""

    outcome: np.ndarray
    propensity: np.ndarray
    action: np.ndarray
    position: np.ndarray
    features: Any


@checked
def policy_values(
    frames: Mapping[str, Any],
    *,
    outcome: str = "click",
    action: str = "item_id",
    propensity: str = "propensity_score",
    position: str | None = "position",
    features: str | Sequence[str] = "user_feature_",
    level: float = 0.95,
    folds: Count = 3,
    seed: int = 0,
) -> tuple[PolicyValue, ...]:
    """Estimate the value of each policy from its own rows, and from every other policy's. Open Bandit columns.

        ips    mean w y,   w = pi(a | position) / p_logged          snipw    sum w y / sum w
        dr     mean [ sum_a pi(a) q(x, a) + w (y - q(x, a_logged)) ],      q cross-fitted

    pi is the policy's empirical probability of an action at a position, over its own rows. So the value is that of the
    policy averaged over people, ignoring the context; its own rows (method "mean") include the context. The interval
    includes the sampling error of pi.

    Args:
        frames: policy -> its rows (pandas, Polars or PyArrow), such as {"random": ..., "bts": ...}
        propensity: the logged probability of the action taken
        position: where it was shown, None if there is one position
        features: columns that describe the person, or the prefix of their names; text is treated as categorical
    """
    if not frames:
        raise ValueError("policy_values: frames must contain at least one policy with its rows.")
    if not 0 < level < 1:
        raise ValueError(f"policy_values: level must lie between 0 and 1; got {level!r}.")
    logs, actions = _read(frames, outcome, action, propensity, position, features)
    found = []
    for target, own in logs.items():
        pi = _chances(own, actions, max(int(log.position.max()) for log in logs.values()) + 1)
        error = float(own.outcome.std(ddof=1) / np.sqrt(len(own.outcome)))
        n = len(own.outcome)
        found.append(_told(target, target, "mean", float(own.outcome.mean()), error, n, float(n), level))
        for source, log in logs.items():
            if source != target:
                found += _from_others(target, source, log, own, pi, level, folds, seed)
    return tuple(found)


def _from_others(
    target: str, source: str, log: Log, own: Log, pi: np.ndarray, level: float, folds: int, seed: int
) -> list[PolicyValue]:
    """IPS, SNIPW and DR of a target policy from the rows of another."""
    n, y = len(log.outcome), log.outcome
    taken = pi[log.position, log.action]
    w = taken / log.propensity
    effective = float(w.sum() ** 2 / max(float((w**2).sum()), 1e-300))
    unseen = _unseen(log, pi, own)
    why = ""
    if unseen > 0.01:
        why = f"{unseen:.1%} of what {target} shows was never shown by {source}"
    elif effective < _ROWS:
        why = f"the effective sample size of {source} for {target} is {effective:.0f} rows; {_ROWS} are needed"
    if why:
        return [
            PolicyValue(target, source, method, np.nan, np.nan, -np.inf, np.inf, n, effective, why)
            for method in METHODS[1:]
        ]
    q_all, q_taken = _outcomes(log, pi, folds, seed)
    share = w.mean()
    parts = {
        "ips": (float((w * y).mean()), w * y),
        "snipw": (float((w * y).sum() / w.sum()), w * (y - (w * y).sum() / w.sum()) / share),
        "dr": (float((q_all + w * (y - q_taken)).mean()), q_all + w * (y - q_taken)),
    }
    counted = _error_of_counts(log, own, pi)
    return [
        _told(
            target, source, method, value, float(np.hypot(psi.std(ddof=1) / np.sqrt(n), counted)), n, effective, level
        )
        for method, (value, psi) in parts.items()
    ]


def _told(
    policy: str, logs: str, method: str, value: float, error: float, rows: int, effective: float, level: float
) -> PolicyValue:
    half = float(stats.norm.ppf((1 + level) / 2)) * error
    return PolicyValue(policy, logs, method, value, error, value - half, value + half, rows, effective)


def _chances(own: Log, actions: int, positions: int) -> np.ndarray:
    """[positions, actions] how often a policy took each action at each position."""
    count = np.zeros((positions, actions))
    np.add.at(count, (own.position, own.action), 1.0)
    return count / np.maximum(count.sum(axis=1, keepdims=True), 1.0)


def _unseen(log: Log, pi: np.ndarray, own: Log) -> float:
    """Share of what the target shows that the logging policy never showed at that position."""
    seen = np.zeros(pi.shape, bool)
    seen[log.position, log.action] = True
    return float(np.mean(~seen[own.position, own.action]))


def _error_of_counts(log: Log, own: Log, pi: np.ndarray) -> float:
    """Standard error of the value due to pi: sd of the mean outcome over the target's choices, times 1 / sqrt(n).

    sum_a pi_hat(a) m(a) is a mean of m(a_j) over its n choices; m(a) is the logged mean, shrunk to the overall mean
    according to its noise, which would otherwise be counted twice.
    """
    total, count = np.zeros(pi.shape), np.zeros(pi.shape)
    np.add.at(total, (log.position, log.action), log.outcome)
    np.add.at(count, (log.position, log.action), 1.0)
    overall = log.outcome.mean()
    m = total / np.maximum(count, 1.0)
    noise = log.outcome.var() / np.maximum(count, 1.0)
    seen = count > 0
    between = max(float(np.average((m[seen] - overall) ** 2 - noise[seen], weights=count[seen])), 0.0)
    m = np.where(seen, overall + between / (between + noise + 1e-300) * (m - overall), overall)
    return float(m[own.position, own.action].std() / np.sqrt(len(own.outcome)))


def _outcomes(log: Log, pi: np.ndarray, folds: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """[n] sum_a pi(a | position) q(x, a), and [n] q(x, a_logged): ridge on action, position and features."""
    from scipy import sparse
    from sklearn.linear_model import Ridge
    from sklearn.model_selection import KFold

    n, (positions, actions) = len(log.outcome), pi.shape
    at = np.arange(n)
    one = sparse.csr_matrix((np.ones(n), (at, log.action)), shape=(n, actions))
    place = sparse.csr_matrix((np.ones(n), (at, log.position)), shape=(n, positions))
    X = sparse.hstack([one, place, log.features]).tocsr()
    everything, taken = np.empty(n), np.empty(n)
    for train, test in KFold(folds, shuffle=True, random_state=seed).split(at):
        model = Ridge(10.0, solver="lsqr").fit(X[train], log.outcome[train])
        taken[test] = model.predict(X[test])
        by_action = model.coef_[:actions]
        # The model is additive, so averaging over actions only involves the action's own term.
        everything[test] = taken[test] - by_action[log.action[test]] + (pi @ by_action)[log.position[test]]
    return everything, taken


def _read(
    frames: Mapping[str, Any], outcome: str, action: str, propensity: str, position: str | None,
    features: str | Sequence[str],
) -> tuple[dict[str, Log], int]:  # fmt: skip
    """Rows by policy, with the same codes for actions and categories."""
    import narwhals.stable.v2 as nw
    from scipy import sparse
    from sklearn.preprocessing import OneHotEncoder

    tables = {}
    for name, frame in frames.items():
        try:
            tables[str(name)] = nw.from_native(frame, eager_only=True)
        except TypeError:
            raise ValueError(
                f"policy_values: the rows of {name!r} must be a data frame; got {type(frame).__name__}."
            ) from None
    needed = [outcome, action, propensity, *([] if position is None else [position])]
    chosen: list[str] = []
    for name, table in tables.items():
        for column in needed:
            if column not in table.columns:
                raise ValueError(
                    f"policy_values: {column!r} is not a column of {name!r}.{nearest(column, table.columns)}"
                )
        mine = [c for c in table.columns if c.startswith(features)] if isinstance(features, str) else list(features)
        if chosen and mine != chosen:
            raise ValueError(f"policy_values: {name!r} has features {mine}, but the policy before it has {chosen}.")
        chosen = mine
    codes = {}
    for role in (action, position):
        if role is not None:
            values = [table.get_column(role).to_numpy() for table in tables.values()]
            codes[role] = np.unique(np.concatenate(values))
    encoder = None
    texts = [c for c in chosen if not all(t.get_column(c).dtype.is_numeric() for t in tables.values())]
    if texts:
        rows = np.concatenate([np.column_stack([t.get_column(c).to_numpy() for c in texts]) for t in tables.values()])
        encoder = OneHotEncoder(handle_unknown="ignore", min_frequency=10).fit(rows.astype(str))
    logs = {}
    for name, table in tables.items():
        y = table.get_column(outcome).cast(nw.Float64).to_numpy()
        e = table.get_column(propensity).cast(nw.Float64).to_numpy()
        if len(y) < _ROWS:
            raise ValueError(f"policy_values: {name!r} has {len(y)} rows; {_ROWS} are needed.")
        if not np.all(np.isfinite(y)) or not np.all((e > 0) & (e <= 1)):
            raise ValueError(
                f"policy_values: {outcome!r} of {name!r} must be finite, and {propensity!r} in (0, 1]; drop other rows."
            )
        numbers = [table.get_column(c).cast(nw.Float64).to_numpy() for c in chosen if c not in texts]
        parts = [sparse.csr_matrix(np.column_stack(numbers))] if numbers else []
        if encoder is not None:
            rows = np.column_stack([table.get_column(c).to_numpy() for c in texts]).astype(str)
            parts.append(encoder.transform(rows))
        matrix = sparse.hstack(parts).tocsr() if parts else sparse.csr_matrix((len(y), 0))
        place = np.zeros(len(y), int) if position is None else np.searchsorted(
            codes[position], table.get_column(position).to_numpy()
        )  # fmt: skip
        logs[name] = Log(y, e, np.searchsorted(codes[action], table.get_column(action).to_numpy()), place, matrix)
    return logs, len(codes[action])
