"""The watch: takes in batches, and reports at any time what they show."""

import dataclasses
import math
import os
from collections.abc import Collection, Mapping
from fractions import Fraction
from pathlib import Path
from typing import Any, cast

import numpy as np

from performative.watch import state
from performative.watch.alarms import Alarms
from performative.watch.batch import ONLY_CLIENT, Batch, Fault, Rows, Schema, read_batch
from performative.watch.people import People
from performative.watch.report import WatchReport, make_report
from performative.watch.seen import Seen
from performative.watch.series import Series
from performative.watch.settings import Settings
from performative.watch.tally import History, Tally

# Each pair of column and parameter has its own sums; this many pairs, parameters and clients fit in a few megabytes.
_PAIRS, _PARAMETERS, _CLIENTS = 128, 8, 1000
# Share of the capital reserved for clients that join after the first look: half of what is left to each.
_LATER = Fraction(1, 10)


@dataclasses.dataclass(frozen=True)
class Outcome:
    """What happened to a batch: "look", "late" (rows of an earlier deployment), "seen", "too late", "quarantined"."""

    status: str
    reason: str = ""
    alarms: tuple[dict[str, Any], ...] = ()


class Watch:
    """A monitored deployment; created by `watch` or `Watch.load`.

    `update` takes a batch and never raises for faults in it; `report` returns what is known so far; `save` and `load`
    keep the state, whose size depends on columns, parameters and clients, never on the number of looks.
    """

    def __init__(self, settings: Settings | None = None):
        self.settings = settings or Settings()
        self.schema: Schema | None = None
        self.series: dict[str, Series] = {}
        self.models: Series | None = None
        self.previous: tuple[int, list[float]] | None = None
        self.people = People(self.settings)
        self.seen = Seen(self.settings.window)
        self.tally, self.history, self.alarms = Tally(), History(), Alarms()
        self.last_time: float | None = None

    def update(
        self,
        rows: Any,
        *,
        theta: Mapping[str, float] | None = None,
        explored: Mapping[str, float] | None = None,
        deployment: str | None = None,
        time: Any = None,
        id: str | None = None,
    ) -> Outcome:
        """Take in a batch.

        Args:
            rows: a DataFrame, an Arrow table or a dictionary of columns: features and, if known, `client`, `label`,
                `score`, `accepted`, `group`, `loss`, `row` (an id), `deployment`, `time`, `theta_<name>`,
                `explore_<name>`
            theta: the model that these people faced, if no column contains it
            explored: its random part, symmetric about 0; used only if it is given from the first batch on
            time: a number or an ISO date; rows from before the last look are late if their deployment is known,
                and quarantined if it is not
            id: identifies the batch if it arrives again; None for a digest of its content
        """
        self.tally.batches += 1
        asked = self.settings
        try:
            batch = read_batch(
                rows, schema=self.schema, columns=asked.columns, parameters=asked.parameters, theta=theta,
                explored=explored, deployment=deployment, time=time, id=None if id is None else str(id),
            )  # fmt: skip
            return self._take(batch)
        except Fault as fault:
            name = id if id is not None else deployment if deployment is not None else f"#{self.tally.batches}"
            return self.refuse(str(name), str(fault), fault.code)

    def refuse(self, id: str, why: str, code: str = "unreadable") -> Outcome:
        """Quarantine a batch; the same batch with the same fault counts once."""
        if self.seen.add_refused(id, code):
            self.tally.refuse(id, code, why)
        else:
            self.tally.seen_again += 1
        return Outcome("quarantined", why)

    def _take(self, batch: Batch) -> Outcome:
        if (known := self._known(batch)) is not None:
            return known
        self._check_size(batch)
        time = max((part.time for part in batch.parts if part.time is not None), default=None)
        old = [part for part in batch.parts if self._is_late(part)]
        new = [part for part in batch.parts if not self._is_late(part)]
        if not new and self.tally.looks == 0:
            raise Fault("clock", "these rows are late, but nothing has been deployed yet.")
        self.schema = batch.schema
        self.seen.add_batch(batch.id, batch.digest, time)
        self.tally.dropped.update(batch.dropped)
        alarms: list[dict[str, Any]] = []
        for part in old:
            self._add_late(part)
        for part in new:
            alarms += self._look(part, batch.bounded_loss)
        return Outcome("look" if new else "late", "", tuple(alarms))

    def _known(self, batch: Batch) -> Outcome | None:
        times = [part.time for part in batch.parts if part.time is not None]
        if batch.id in self.seen.batches:
            if self.seen.batches[batch.id][0] == batch.digest:
                self.tally.seen_again += 1
                return Outcome("seen")
            if any(part.ids is None for part in batch.parts):
                raise Fault("changed", "arrived before with other rows; give rows an id (`row`) to add to a batch.")
            for part in batch.parts:
                self._add_late(part)
            self.seen.add_batch(batch.id, batch.digest, max(times, default=None))
            return Outcome("late")
        if self.seen.forgotten is not None and times and max(times) <= self.seen.forgotten:
            self.tally.too_late += 1
            return Outcome("too late", "older than all remembered batches.")
        return None

    def _is_late(self, part: Rows) -> bool:
        """Whether rows are of a deployment that was followed by another, or from before the last look."""
        newest = next(reversed(self.seen.deployments), None)
        earlier = part.deployment != newest and part.deployment in self.seen.deployments
        back = part.time is not None and self.last_time is not None and part.time < self.last_time
        if back and not (part.deployment and part.deployment in self.seen.deployments):
            raise Fault("clock", f"time goes back, from {self.last_time:g} to {part.time:g}, for a new deployment.")
        return bool(part.deployment) and (earlier or back)

    def _check_size(self, batch: Batch) -> None:
        q, d = len(batch.schema.columns), len(batch.schema.parameters)
        if d > _PARAMETERS or d * q > _PAIRS:
            raise Fault(
                "too large",
                f"{q} columns and {d} parameters are too many to monitor: pass at most {_PARAMETERS} parameters= and "
                f"{_PAIRS} pairs of column and parameter, for example a score's mean instead of all weights.",
            )
        names = {name for part in batch.parts for name in part.client} - set(self.series)
        if len(self.series) + len(names) > _CLIENTS:
            raise Fault("too many clients", f"more than {_CLIENTS} clients; is `client` a person's id?")
        if self.settings.clients is not None and (strange := names - set(self.settings.clients)):
            raise Fault("unknown client", f"client {min(strange)!r} is not in clients=.")
        first = self._first() or set(batch.parts[0].client)
        if self.settings.clients is None and first == {ONLY_CLIENT} and (strange := names - first):
            raise Fault(
                "clients named late",
                f"client {min(strange)!r} appears, but the first rows named no client and were given the whole "
                "capital, so nothing is left for others. Drop the column `client` to monitor everybody together, or "
                "start a new state to monitor clients.",
            )

    def _fresh(self, part: Rows) -> Rows:
        """The rows that are new, by their ids."""
        if part.ids is None:
            return part
        new = self.seen.add_rows(part.ids)
        self.tally.rows_seen_again += int((~new).sum())
        names = ("numbers", "client", "group", "loss", "accepted", "ids")
        kept = {name: value[new] for name in names if (value := getattr(part, name)) is not None}
        return dataclasses.replace(part, **kept)

    def _add_late(self, part: Rows) -> None:
        """Late rows enter losses and gaps, in order of arrival; evidence is not recomputed."""
        part = self._fresh(part)
        self.tally.late_rows += len(part.numbers)
        self.people.add(part)

    def _look(self, part: Rows, bounded_loss: bool) -> list[dict[str, Any]]:
        part = self._fresh(part)
        if not len(part.numbers):
            return []
        self.tally.looks += 1
        at = self.tally.looks
        self.tally.rows += len(part.numbers)
        self.last_time = part.time if part.time is not None else self.last_time
        if part.deployment:
            self.seen.add_deployment(part.deployment)
        self.people.begin(bounded_loss)
        self.people.add(part)
        for name in sorted(set(part.client)):
            rows = part.numbers[part.client == name]
            self._client(str(name)).look(at, len(rows), rows.mean(axis=0), part.theta, part.explored)
        self._follow_models(at, part.theta)
        overall = self.log_evidence()
        self.history.add(at, log_evidence=max(overall, -20.0))
        return self.alarms.check(self, at)

    def _client(self, name: str) -> Series:
        if name not in self.series:
            assert self.schema is not None
            self.series[name] = Series(self.settings.drift, len(self.schema.columns), len(self.schema.parameters))
        return self.series[name]

    def _follow_models(self, at: int, theta: np.ndarray) -> None:
        """Record the next model against the last one: the retraining map."""
        if self.previous is not None and self.previous[1] != theta.tolist():
            if self.models is None:
                law = "none" if self.settings.drift == "none" else "linear"
                self.models = Series(law, len(theta), len(theta))
            self.models.look(self.models.looks + 1, 1, theta, np.asarray(self.previous[1]), None)
        self.previous = (at, theta.tolist())

    def client_evidence(self, name: str) -> float:
        """log E of a client: the mean over columns and parameters."""
        values = self.series[name].log_evidence()
        return float(np.logaddexp.reduce(values, axis=None) - math.log(values.size))

    def _first(self) -> set[str]:
        """The clients of the first look."""
        return {name for name, series in self.series.items() if series.first["at"] == 1}

    def share(self, name: str) -> float:
        """A client's share of the capital; see `share_at_joining`."""
        return float(share_at_joining(list(self.series).index(name), self._first(), self.settings.clients))

    def log_evidence(self) -> float:
        """log E of all clients: their mean weighted by `share`; capital kept for future clients counts as 1.

            E = sum_k w_k E_k + 1 - sum_k w_k

        An E_k is 1 until client k joins, and its w_k is fixed by then, so E is an e-process if every E_k is one.
        """
        if not self.series:
            return -math.inf
        shares = np.array([self.share(name) for name in self.series])
        values = np.array([self.client_evidence(name) for name in self.series])
        rest = max(1 - shares.sum(), 0.0)
        parts = np.append(values + np.log(shares), math.log(rest) if rest > 1e-12 else -math.inf)
        return float(np.logaddexp.reduce(parts))

    def report(self) -> WatchReport:
        """What is known so far."""
        return make_report(self)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the state atomically; it survives a kill at any moment."""
        state.save(self, Path(path))

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> "Watch":
        """Restore a watch from its saved state; raises `Damaged` if the file was altered."""
        return cast("Watch", state.load(Path(path), cls))


def share_at_joining(place: int, first: Collection[str], named: Collection[str] | None) -> Fraction:
    """The share w of the capital of the client that joined in this place, counted from 0.

        w = 1 / |named|               if all clients were named at the start
        w = 1                         if the first rows name no client; no other client can join
        w = 0.9 / |first|             for the clients of the first look
        w = 0.1 / 2^j                 for the j-th that joins later

    It depends only on what is known when the client joins, and the shares sum to at most 1 however many join.
    """
    if named is not None:
        return Fraction(1, len(named))
    if set(first) == {ONLY_CLIENT}:
        return Fraction(place == 0)
    if place < len(first):
        return (1 - _LATER) / len(first)
    return _LATER / 2 ** (1 + place - len(first))
