"""Read logs from any source into the form the statistics need; `performative.audit.schema` describes the format."""

import contextlib
import dataclasses
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from performative._base.arguments import spelt
from performative._base.checks import check_counts, nearest
from performative._base.messages import coded
from performative.audit.collect import Collector
from performative.audit.deployments import Deployments
from performative.audit.draws import Draw, draw_groups, draw_rows
from performative.audit.fillings import fillings
from performative.audit.labels import choose_rows, of_accepted, without_late
from performative.audit.log import ClientLog
from performative.audit.moments import Moments, covariances, merge
from performative.audit.noise import widened
from performative.audit.outcomes import LABEL, Outcomes, Plan, correct
from performative.audit.rates import Censoring, detect_censoring
from performative.audit.read_notes import dropped_notes, group_notes, listed, model_notes
from performative.audit.rules import parameter_places
from performative.audit.schema import Decision, LogError, Settings
from performative.audit.selection import Selection, incomplete_by_model, only_accepted
from performative.audit.source import Source, open_source
from performative.audit.summaries import Summaries
from performative.audit.tally import GroupLog, group_counts
from performative.findings import plain

SAMPLE = 1000


@dataclasses.dataclass(frozen=True)
class Logs:
    """The contents of a folder of logs.

    Attributes:
        clients: one `ClientLog` per client; the label, if used, is the last column, named "label"
        weights: p_i, which sum to one
        label: the label's name in the files, None if it is not in the client logs
        binary: whether all labels are 0 and 1
        parameters: feature -> entry of theta that is its weight
        groups: counts and samples by protected group; None if nothing is known about decisions or groups
        decides: the source of decisions: "accepted", "score", "theta" or None
        rule: weights [T, k], offsets [T] and threshold of the linear models, None if unknown
        selection: how labels are missing and what was done about it, None if none are
        outcomes: if labels are missing: a log with the label for each client whose label can still be tested
        fillings: if labels cannot be used as they are: name of an assumption -> logs with a label for everyone, from
            which the outlook is computed; the first is an estimate, the others are the extremes
        noise: standard deviation of the noise in scaled sums, 0 for none; with noise, covariances are not tested
        blocked: why these rows allow no conclusion at all, "" if they do
        dropped: rows by reason; a row with two faults counts under both
        notes: what was dropped or assumed, in sentences
    """

    folder: Path
    deployments: Deployments
    clients: dict[str, ClientLog]
    weights: dict[str, float]
    features: tuple[str, ...]
    label: str | None
    binary: bool
    loss: str
    penalty: float
    parameters: dict[str, int]
    decision: Decision
    decides: str | None
    rule: tuple[np.ndarray, np.ndarray, float] | None
    groups: GroupLog | None
    censoring: Censoring | None
    selection: Selection | None
    outcomes: dict[str, ClientLog]
    blocked: str
    rows: int
    used: int
    dropped: dict[str, int]
    notes: tuple[str, ...]
    noise: float = 0.0
    fillings: dict[str, dict[str, ClientLog]] = dataclasses.field(default_factory=dict)

    def to_dict(self) -> dict[str, Any]:
        """What was read, without the samples."""
        return {
            "folder": str(self.folder),
            "deployments": list(self.deployments.names),
            "time": self.deployments.time.tolist(),
            "time_unit": self.deployments.unit,
            "theta": self.deployments.theta.tolist(),
            "parameters": list(self.deployments.parameters),
            "scoring": plain(self.deployments.scoring),
            "features": list(self.features),
            "label": self.label,
            "loss": self.loss,
            "penalty": self.penalty,
            "clients": {name: [int(n) for n in log.count] for name, log in self.clients.items()},
            "weights": self.weights,
            "groups": None if self.groups is None else list(self.groups.names),
            "censoring": plain(self.censoring),
            "selection": plain(self.selection),
            "blocked": self.blocked or None,
            "rows": self.rows,
            "used": self.used,
            "dropped": self.dropped,
            "notes": list(self.notes),
        }


@spelt
def read_logs(
    source: Any, *, map: Any = None, groups: str | None = None, sample: int = SAMPLE, seed: int = 0, trust: bool = False
) -> Logs:
    """Query the engine that holds the rows for sums and a few rows; memory does not grow with the number of rows.

    Args:
        source: a folder, a file, a database (its URL), an Ibis table, or what `open_source` returned
        map: path of audit.toml if it is not next to the data
        groups: column of the protected group (default: the one named "group", if there is one)
        sample: rows kept per client and deployment (fewer if there are very many of these)
        seed: determines which rows are kept
        trust: whether models may be unpickled, which runs the code in their files
    """
    check_counts(sample=sample)
    with opening(source, map, trust) as opened:
        asks = ask(opened, groups)
        seen = asks.summaries()
        if not seen.labeled.rows + seen.unlabeled.rows:
            raise _nothing_usable(opened.name, seen)
        return logs_of(seen, opened.name, asks, sample, seed)


@contextlib.contextmanager
def opening(source: Any, map: Any, trust: bool) -> Iterator[Source]:
    """Open the source if needed, and close it afterwards if it was opened here."""
    if isinstance(source, Source):
        yield source
        return
    opened = open_source(source, map=map, trust=trust)
    try:
        yield opened
    finally:
        if not hasattr(source, "get_backend"):
            opened.close()


def ask(opened: Source, groups: str | None = None) -> Collector:
    """The rows of a source, prepared and checked, ready for queries."""
    people = opened.people(groups)
    settings, columns = people.settings, people.columns
    if columns.label is None and settings.loss in ("logistic", "ridge"):
        raise LogError(f"the {settings.loss} loss needs a column {settings.names['label']!r}.", opened.tables[0].name)
    for name in settings.decision.movable or ():
        if name not in columns.features:
            near = nearest(name, columns.features)
            raise LogError(f"decision.movable: there is no feature {name!r}.{near}", "audit.toml")
    asks = Collector(people, opened.tables)
    if settings.loss == "logistic" and asks.totals["odd"]:
        file, row, value = asks.odd_label()
        raise LogError(f"must be 0 or 1 for the logistic loss; got {value:g}.", file, row, columns.label or "")
    return asks


def _nothing_usable(name: str, seen: Summaries) -> LogError:
    why = "; ".join(f"{count} had {reason}" for reason, count in seen.dropped.items() if count)
    return LogError(f"no client has two usable rows under any deployment: of {seen.rows} rows, {why or 'none'}.", name)


def logs_of(seen: Summaries, name: str, asks: Collector | None = None, sample: int = SAMPLE, seed: int = 0) -> Logs:
    """Logs from sums. asks: queries for rows to keep and for sums that some corrections need; None for sums only."""
    notes = [*seen.deployments.notes, *dropped_notes(seen)]
    seen, late = without_late(seen)
    notes += [late] if late else []
    settings, columns, deployments = seen.settings, seen.columns, seen.deployments
    kept = None if asks is None else draw_rows(asks, seen, sample, seed)

    def again(plan: Plan) -> Outcomes:
        if plan.kind == "strata":
            return correct(seen, plan, kept, seed)
        if plan.kind == "propensity":
            weighted = seen.weighted
            if weighted is None and asks is not None:
                weighted = asks.weighted(seen.labeled.by_cell()[1])
            return Outcomes({}, 0.0, (0.0, 0.0), _NOT_ASKED) if weighted is None else (
                correct(seen, plan, kept, seed, weighted=weighted)
            )  # fmt: skip
        always, rows = seen.always, None
        if asks is not None:
            always = always or asks.always()
            usable = asks.people.always(asks.people.rows.filter(asks.people.rows.fit))
            usable = usable.filter(usable.has) if columns.label else usable
            rows = draw_rows(asks, seen, sample, seed, usable, always[0].by_cell()[0])
        return Outcomes({}, 0.0, (0.0, 0.0), _NOT_ASKED) if always is None else (
            correct(seen, plan, rows, seed, always=always)
        )  # fmt: skip

    if columns.passed:
        notes.append(f"Columns of the rows that are not features were ignored: {', '.join(map(repr, columns.passed))}.")
    notes += [f"{name} was clipped to {low:g} .. {high:g}." for name, (low, high) in settings.clip.items()]
    only_labeled, labeled, selection, outcomes = choose_rows(seen, notes, again)
    features = seen.labeled.without_last() if columns.label else seen.labeled
    moments = seen.labeled if labeled else features if only_labeled else merge(features, seen.unlabeled)
    names = (*columns.features, LABEL) if labeled else columns.features
    keep = _varying(moments, names, notes)
    clients = _client_logs(seen, moments, kept, labeled, names, keep, notes)
    if selection is not None and selection.method == "labeled" and not labeled:
        every = (*columns.features, LABEL)
        outcomes = _client_logs(seen, seen.labeled, kept, True, every, [*range(len(every))], [])
    blocked = incomplete_by_model(seen)
    if blocked:
        blocked = coded("features-missing-by-model", blocked + ".")
    elif only_accepted(seen):
        clients, blocked = of_accepted(seen, clients, again, notes)
    if not clients:
        raise _nothing_usable(name, seen)
    left = tuple(n for n in (names[j] for j in keep) if n != LABEL or not labeled)
    place = parameter_places(columns.features, deployments.parameters, settings)
    place = {name: i for name, i in place.items() if name in left}
    notes += model_notes(left, deployments, place)
    group_log = censoring = None
    if seen.decides or columns.group:
        group_log = group_counts(seen) if asks is None else draw_groups(asks, seen, 4 * sample, seed)
        censoring = detect_censoring(group_log.counts.sum(axis=(0, 1, 2)))
        notes += group_notes(seen, columns, censoring)
    has_label = labeled and LABEL in (names[j] for j in keep)
    loss = settings.loss or ("squared" if columns.label is None else "logistic" if seen.binary else "ridge")
    filled = _fillings(seen, kept, selection, loss)
    if loss != "squared" and not has_label and not filled:
        notes.append(f"The {loss} loss needs labels, which are left out: nothing that needs a loss is computed.")
    if settings.loss is None:
        notes.append(f"The loss is assumed to be {loss}; set [model] loss = ... in audit.toml if that is wrong.")
    return Logs(
        folder=Path(name),
        deployments=deployments,
        clients=clients,
        weights=_weights(settings, clients),
        features=left,
        label=columns.label if has_label else None,
        binary=seen.binary,
        loss=loss,
        penalty=settings.penalty,
        parameters=place,
        decision=settings.decision,
        decides=seen.decides,
        rule=seen.rule,
        groups=group_log,
        censoring=censoring,
        selection=selection,
        outcomes=outcomes,
        blocked=blocked,
        rows=seen.rows,
        used=int(sum(log.count.sum() for log in clients.values())),
        dropped={reason: count for reason, count in seen.dropped.items() if count},
        notes=tuple(notes),
        noise=seen.noise,
        fillings=filled,
    )


def _fillings(
    seen: Summaries, kept: Draw | None, selection: Selection | None, loss: str
) -> dict[str, dict[str, ClientLog]]:
    """Logs with a label for everyone, if the observed labels represent only some people."""
    partly = selection is not None and selection.method in ("withheld", "always accepted")
    if not partly or loss == "squared" or not seen.labeled.rows:
        return {}
    every = (*seen.columns.features, LABEL)
    return {
        one.name: _client_logs(seen, one.moments, one.kept, False, every, [*range(len(every))], [])
        for one in fillings(seen, kept)
    }


_NOT_ASKED = "the sums that this needs were not computed"


def _varying(moments: Moments, names: tuple[str, ...], notes: list[str]) -> list[int]:
    """Columns that are not constant over all rows, up to the rounding of a mean."""
    have = moments.count > 0
    mean, squares = moments.mean[have], moments.squares[have]
    keep = []
    for j, name in enumerate(names):
        apart = np.abs(mean[:, j] - mean[0, j]).max() if len(mean) else 0.0
        if len(mean) and np.all(squares[:, j, j] == 0) and apart <= _ROUNDING * abs(mean[0, j]):
            notes.append(f"Column {name!r} is {mean[0, j]:g} in all rows and was dropped.")
        else:
            keep.append(j)
    if len(mean) and not keep:
        raise LogError(f"all columns ({', '.join(names)}) are constant: nothing to audit.")
    return keep


# The mean of equal numbers is that number up to a few units in the last place.
_ROUNDING = 16 * np.finfo(np.float64).eps


def _client_logs(
    seen: Summaries, moments: Moments, kept: Draw | None, labeled: bool, names: tuple[str, ...], keep: list[int],
    notes: list[str],
) -> dict[str, ClientLog]:  # fmt: skip
    """One log per client. labeled: whether only labeled rows are used, with the label as the last column."""
    deployments, many = seen.deployments, len(seen.deployments.names)
    counts, means, squares = moments.by_cell()
    cov, logs = widened(seen, counts, means, covariances(counts, squares)), {}
    thin: list[str] = []
    gone: list[str] = []
    rowless = counts.reshape(-1, many).sum(axis=0) == 0
    if np.any(rowless):
        notes.append(
            f"No rows were collected under: {listed([deployments.names[t] for t in np.flatnonzero(rowless)])}."
        )
    for i, name in enumerate(seen.clients):
        cells = np.arange(i * many, (i + 1) * many)
        count = counts[cells]
        use = np.flatnonzero(count >= 2)
        if not len(use):
            gone.append(name)
            continue
        if np.any(count[~rowless] < 2):
            thin.append(name)
        rows = None if kept is None else kept.of(cells[use], kept.labeled if labeled else None)
        logs[name] = ClientLog(
            theta=deployments.theta[use],
            time=deployments.time[use],
            count=count[use],
            mean=means[cells[use]][:, keep],
            cov=cov[cells[use]][:, keep][:, :, keep],
            sample=None if rows is None else rows[:, :, keep],
            columns=tuple(names[j] for j in keep),
            parameters=deployments.parameters,
            name=name,
        )
    if gone:
        notes.append(f"Left out: {listed(gone)}, with fewer than two usable rows under every deployment.")
    if thin:
        notes.append(
            f"Clients with fewer than two rows under some deployments, which are ignored for them: {listed(thin)}."
        )
    return logs


def _weights(settings: Settings, clients: dict[str, ClientLog]) -> dict[str, float]:
    if settings.weights is None:
        raw = {name: float(log.count.sum()) for name, log in clients.items()}
    else:
        for name in settings.weights:
            if name not in clients:
                raise LogError(f"weights: there is no client {name!r} with rows.{nearest(name, clients)}", "audit.toml")
        missing = [name for name in clients if name not in settings.weights]
        if missing:
            raise LogError(f"weights: client {missing[0]!r} has rows but no weight; specify all or none.", "audit.toml")
        raw = settings.weights
    total = sum(raw.values())
    return {name: raw[name] / total for name in clients}
