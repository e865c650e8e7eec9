"""Traces of client availability, as published in studies of phones."""

import csv
from pathlib import Path
from typing import Any

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int, PRNGKeyArray

from performative._base.checks import check_finite
from performative.participation.latency import AbstractLatency
from performative.types import Numbers, Unchecked, is_concrete, number

_COLUMNS = ("client", "start", "end")


class Trace(AbstractLatency):
    """Clients train only while they are available; unfinished work continues in the next window.

        finish = the smallest t with  |[start, t] and the client's windows| = work + latency

    Args:
        begin, end: windows of each client, [N, W], in order and within 0..period; rows with fewer windows repeat
            `period` as both
        period: time after which the trace repeats, such as a week
        latency: time a client takes in addition to its work, as in `Asynchronous`; None for zero

    `Trace.read(path)` reads a file with one row per window.
    """

    references = ()
    ignores_data = True

    begin: Numbers = number()
    end: Numbers = number()
    period: Numbers = number()
    latency: Unchecked[AbstractLatency | None] = None

    def __check_init__(self) -> None:
        check_finite("Trace", begin=self.begin, end=self.end, period=self.period)
        if np.ndim(self.begin) != 2 or np.shape(self.begin) != np.shape(self.end):
            raise ValueError(
                "Trace: begin and end must contain the windows of each client, both of shape [clients, windows]; got "
                f"{np.shape(self.begin)} and {np.shape(self.end)}."
            )
        if self.latency is not None and not isinstance(self.latency, AbstractLatency):
            raise ValueError(f"Trace: latency must be a distribution of waiting times or None; got {self.latency!r}.")
        if not all(map(is_concrete, (self.begin, self.end, self.period))):
            return
        begin, end, period = (np.asarray(v) for v in (self.begin, self.end, self.period))
        if period.ndim or not period > 0:
            raise ValueError(f"Trace: period must be a number > 0; got {self.period}.")
        if np.any(begin < 0) or np.any(end > period) or np.any(end < begin) or np.any(begin[:, 1:] < end[:, :-1]):
            bad = (begin < 0) | (end > period) | (end < begin)
            bad[:, 1:] |= begin[:, 1:] < end[:, :-1]
            row, at = np.argwhere(bad)[0]
            raise ValueError(
                f"Trace: window {at} of client {row} is {begin[row, at]:g} to {end[row, at]:g}; windows must be in "
                f"order, must not overlap, and must lie within 0..{float(period):g}."
            )
        never = np.flatnonzero((end - begin).sum(axis=1) <= 0)
        if len(never):
            raise ValueError(f"Trace: client {never[0]} is never available; leave it out.")

    @staticmethod
    def read(path: str | Path, period: float | None = None, latency: AbstractLatency | None = None) -> "Trace":
        """Read a CSV file with the columns client (0, 1, ...), start, end and one row per window, in any order.

        `period` defaults to the last end.
        """
        windows: dict[int, list[tuple[float, float]]] = {}
        with Path(path).open(newline="") as file:
            reader = csv.DictReader(file)
            missing = [name for name in _COLUMNS if name not in (reader.fieldnames or ())]
            if missing:
                raise ValueError(f"{path}: a trace has the columns {', '.join(_COLUMNS)}; there is no {missing[0]}.")
            for row in reader:
                try:
                    client, start, end = int(row["client"]), float(row["start"]), float(row["end"])
                except (TypeError, ValueError):
                    raise ValueError(
                        f"{path}, line {reader.line_num}: a window needs a whole number and two times; got "
                        f"{', '.join(str(row[name]) for name in _COLUMNS)}."
                    ) from None
                windows.setdefault(client, []).append((start, end))
        gaps = sorted(set(range(max(windows, default=-1) + 1)) ^ windows.keys())
        if gaps or not windows:
            said = f"client {gaps[0]} has no window" if gaps else "there are no windows"
            raise ValueError(f"{path}: {said}; number clients 0, 1, ... without gaps, each with at least one window.")
        last = max(end for each in windows.values() for _, end in each) if period is None else period
        longest = max(map(len, windows.values()))
        table = np.full((len(windows), longest, 2), float(last))
        for client, each in windows.items():
            table[client, : len(each)] = sorted(each)
        return Trace(table[..., 0], table[..., 1], last, latency)

    def check(self, owner: str, clients: int) -> None:
        if np.shape(self.begin)[0] != clients:
            raise ValueError(f"{owner}: the Trace has {np.shape(self.begin)[0]} clients, the problem {clients}.")
        if self.latency is not None:
            self.latency.check(owner, clients)

    def draw(self, key: PRNGKeyArray, clients: int) -> Float[Array, " N"]:
        raise ValueError(
            "Trace: how long a client takes depends on when it starts, but this participation does not track time; "
            "use it "
            "with pf.Asynchronous(buffer, latency=...)."
        )

    def finish(
        self,
        key: PRNGKeyArray,
        ids: Int[Array, " K"],
        clients: int,
        start: Float[Array, " K"],
        work: Float[Array, " K"],
    ) -> Float[Array, " K"]:
        if self.latency is not None:
            work = work + self.latency.of(key, ids, clients).astype(work.dtype)
        begin, end = (jnp.take(v, ids, axis=0, mode="clip") for v in (self.begin, self.end))
        length, period = end - begin, jnp.asarray(self.period)
        upto = jnp.cumsum(length, axis=1)
        cycle = jnp.floor(start / period)
        passed = jnp.clip((start - cycle * period)[:, None] - begin, 0, length).sum(axis=1)
        todo, whole = passed + work, upto[:, -1]
        full = jnp.maximum(jnp.ceil(todo / whole) - 1, 0)
        rest = todo - full * whole
        at = jnp.minimum(jnp.sum(upto < rest[:, None], axis=1), upto.shape[1] - 1)

        def of(rows: Array) -> Any:
            return jnp.take_along_axis(rows, at[:, None], axis=1)[:, 0]

        return (cycle + full) * period + of(begin) + rest - (of(upto) - of(length))
