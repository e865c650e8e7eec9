"""Models known only through their scores, summarized by a linear regression of the score on the features."""

import dataclasses
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from performative.audit.files import Table, embedded, load, open_table
from performative.audit.moments import covariances
from performative.audit.queries import cross_moments, engine_name, fetch
from performative.audit.schema import LogError, Settings
from performative.audit.typed import refuse_text
from performative.audit.values import finite, number
from performative.findings import Plain

# Below this share of explained variance the coefficients represent the model poorly, and a note says so.
ENOUGH = 0.9
INTERCEPT = "intercept"


@dataclasses.dataclass(frozen=True)
class ScoringFit(Plain):
    """How well the linear summary of one scoring file fits. link is "identity" or "logit"."""

    file: str
    rows: int
    link: str
    r_squared: float


class Scored(NamedTuple):
    """Moments of (features, score, logit) of complete rows, whether all scores lie in (0, 1), number of rows lost."""

    rows: int
    mean: np.ndarray
    cov: np.ndarray
    inside: bool
    lost: int


def summarize_scoring(
    files: list[tuple[str, str]], folder: Path, settings: Settings
) -> tuple[np.ndarray, tuple[str, ...], tuple[ScoringFit, ...], list[str]]:
    """Coefficients [T, d] (features, then the intercept), their names, the fits, and notes.

        g(score) = b . x + b_0 + rest,      b = Cov(x)^+ Cov(x, g(score)),    R^2 = 1 - Var(rest) / Var(g(score))

    g is the logit if all scores of all files lie strictly between 0 and 1, else the identity: one g for all, so models
    can be compared. `files` contains (path, row of the deployments file). If the model is not linear, the coefficients
    also depend on which rows were scored: score the same rows with every model.
    """
    features: tuple[str, ...] = ()
    sums: dict[str, Scored] = {}
    engine = embedded()
    first = files[0][0]
    for path, row in files:
        if path in sums:
            continue
        table = _open(path, row, folder, settings)
        mine = scored_features(table, settings)
        if features and set(mine) != set(features):
            odd = sorted(set(mine) ^ set(features))[0]
            raise LogError(f"column {odd!r} is in {first} or here, not in both; use one set of columns.", table.name)
        features = features or mine
        sums[path] = _collect(engine, table, features, settings)
    logit = all(found.inside for found in sums.values())
    fits = {path: linear_summary(path, found, logit, features) for path, found in sums.items()}
    notes = [note for _, _, lines in fits.values() for note in lines]
    notes += [
        f"{path}: {found.lost} rows with an empty or infinite value were dropped."
        for path, found in sums.items()
        if found.lost
    ]
    link = "logit of the score" if logit else "score"
    notes.insert(0, f"Models are summarized by a linear regression of the {link} on {len(features)} features.")
    theta = np.stack([fits[path][0] for path, _ in files])
    return theta, (*features, INTERCEPT), tuple(fits[path][1] for path, _ in files), notes


def _open(path: str, row: str, folder: Path, settings: Settings) -> Table:
    if not (folder / path).resolve().is_relative_to(folder.resolve()):
        raise LogError(f"scoring files must lie inside the folder; got {path!r}.", row=row)
    if not (folder / path).is_file():
        raise LogError(f"scoring names {path!r}, but there is no such file in {folder}.", row=row)
    table = open_table(folder / path, folder, settings.delimiter, settings.decimal)
    table.require(settings.names["score"])
    return table


def scored_features(table: Table, settings: Settings) -> tuple[str, ...]:
    """The columns that the score is regressed on."""
    roles = set(settings.names.values()) | set(settings.ignore)
    found = tuple(c for c in table.columns if c not in roles and (not settings.features or c in settings.features))
    if not found:
        raise LogError("there are no features besides the score.", table.name)
    return found


def _collect(engine: Any, table: Table, features: tuple[str, ...], settings: Settings) -> Scored:
    score = settings.names["score"]
    (raw,) = load(engine, [table], [*features, score])
    refuse_text(raw, [table], [*features, score], settings)
    return scored_moments(raw, features, score, settings.decimal, table.name)


def scored_moments(raw: Any, features: tuple[str, ...], score: str, decimal: str, name: str) -> Scored:
    """Moments of scored rows, computed by their engine."""
    made = {f"f{j}": finite(number(raw[n], engine_name(raw), decimal)) for j, n in enumerate([*features, score])}
    k = len(features)
    rows = raw.select(**made)
    whole = rows.filter([rows[column].notnull() for column in made])
    y = whole[f"f{k}"]
    told = fetch(
        whole.agg(
            rows=whole.count(), low=y.min(), high=y.max(), **{f"m{j}": whole[f"f{j}"].mean() for j in range(k + 1)}
        )
    )
    total = int(fetch(rows.agg(n=rows.count()))["n"][0])
    n = int(told["rows"][0])
    if n < k + 2:
        raise LogError(f"{n} complete rows are too few for {k + 1} coefficients; score more rows.", name)
    inside = bool(told["low"][0] > 0 and told["high"][0] < 1)
    columns, center = [f"f{j}" for j in range(k + 1)], [float(told[f"m{j}"][0]) for j in range(k + 1)]
    if inside:
        whole, columns = whole.mutate(logit=y.ln() - (1.0 - y).ln()), [*columns, "logit"]
        center.append(np.log(center[-1]) - np.log1p(-center[-1]))
    _, count, mean, squares = cross_moments(whole, [], columns, np.array(center))
    return Scored(n, mean[0], covariances(count, squares)[0], inside, total - n)


def linear_summary(
    path: str, found: Scored, logit: bool, features: tuple[str, ...]
) -> tuple[np.ndarray, ScoringFit, list[str]]:
    """Coefficients (features, then the intercept), how well they fit, and notes."""
    k, notes = len(features), []
    target = k + 1 if logit else k
    cov, mean, rows = found.cov, found.mean, found.rows
    spread = np.sqrt(np.diag(cov)[:k])
    scale = np.where(spread > 0, spread, 1.0)
    # In units of each feature's spread, the cutoff of the pseudo-inverse means the same for all.
    among, with_score = cov[:k, :k] / np.outer(scale, scale), cov[:k, target] / scale
    b = np.linalg.pinv(among, rcond=1e-10, hermitian=True) @ with_score / scale
    if np.linalg.matrix_rank(among, tol=1e-10 * k, hermitian=True) < k:
        notes.append(
            f"{path}: some features are constant or collinear, so their coefficients are not unique; "
            "the minimum-norm ones were used."
        )
    total = cov[target, target]
    r_squared = float(np.clip(b @ cov[:k, target] / total, 0.0, 1.0)) if total > 0 else 1.0
    if r_squared < ENOUGH:
        notes.append(
            f"{path}: the linear summary explains {r_squared:.0%} of the score (less than {ENOUGH:.0%}): the model is "
            "not close to linear, so results about parameters refer to this summary."
        )
    theta = np.append(b, mean[target] - b @ mean[:k])
    return theta, ScoringFit(path, rows, "logit" if logit else "identity", r_squared), notes
