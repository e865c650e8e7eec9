"""Kept rows: a bounded sample without replacement from every client and deployment, and from every group."""

import dataclasses
from typing import Any

import numpy as np

from performative.audit.collect import Collector
from performative.audit.queries import draw, fetch, smallest
from performative.audit.summaries import Summaries
from performative.audit.tally import GroupLog, group_counts

# Maximum number of bytes that all kept rows together may take; with many cells, each keeps fewer rows.
SAMPLE_BYTES = 1 << 27


@dataclasses.dataclass(frozen=True, eq=False)
class Draw:
    """Kept rows, the smallest hashes of each cell first.

    Attributes:
        cell: [m] client * T + deployment
        rows: [m, q] features, then the label if there is one, NaN for unlabeled rows
        stratum: [m] how the person was decided on; chance: [m] probability of acceptance, NaN if not logged
    """

    cell: np.ndarray
    rows: np.ndarray
    stratum: np.ndarray
    chance: np.ndarray
    size: int

    def of(self, cells: np.ndarray, use: np.ndarray | None = None, values: np.ndarray | None = None) -> np.ndarray:
        """The kept rows of those cells [cells, r, q], r the most that any of them has; padding rows are NaN.

        Args:
            use: [m] which rows to include; values: [m, q] what to return instead of the rows
        """
        values = self.rows if values is None else values
        places = np.arange(len(self.cell)) if use is None else np.flatnonzero(use)
        # Rows are sorted by cell and hash, so those of a cell are contiguous.
        own = self.cell[places]
        low, high = np.searchsorted(own, cells), np.searchsorted(own, cells, side="right")
        high = np.minimum(high, low + self.size)
        out = np.full((len(cells), int((high - low).max(initial=0)), values.shape[1]), np.nan)
        for i, (a, b) in enumerate(zip(low, high, strict=True)):
            out[i, : b - a] = values[places[a:b]]
        return out

    @property
    def labeled(self) -> np.ndarray:
        return ~np.isnan(self.rows[:, -1])


def kept_rows(size: int, width: int, cells: int) -> int:
    """The maximum number of rows that a cell may keep, given the number of cells."""
    return max(1, min(size, SAMPLE_BYTES // (8 * (width + 2) * max(1, cells))))


def draw_rows(asks: Collector, seen: Summaries, size: int, seed: int, rows: Any = None, count: Any = None) -> Draw:
    """Sample from every cell: enough of all rows, and enough labeled rows.

    Args:
        rows: the rows to draw from (default: all usable ones); count: [cells] how many there are in each cell
    """
    people, many = asks.people, len(asks.people.deployments.names)
    labeled, all_rows = _counts(seen) if count is None else (count, count)
    there = np.flatnonzero(all_rows > 0)
    size = kept_rows(size, len(people.measured), len(there))
    usable = people.rows if rows is None else rows
    cells: dict[str, Any] = {
        "client": [asks.clients[i // many] for i in there],
        "deployment": [people.deployments.names[i % many] for i in there],
    }
    counts = among = all_rows[there]
    if labeled.sum() < all_rows.sum():
        # There are fewer labeled rows to draw from, so their hash limit is higher.
        cells = {key: values * 2 for key, values in cells.items()} | {"has": [True] * len(there) + [False] * len(there)}
        counts = np.concatenate([labeled[there], (all_rows - labeled)[there]])
        among = np.concatenate([labeled[there], all_rows[there]])
    columns = [*people.measured, "stratum", "propensity"]
    found = fetch(draw(usable, people.row, seed, cells, counts, among, size, columns, "fit"))
    at = {name: i for i, name in enumerate(asks.clients)}
    t = {name: i for i, name in enumerate(people.deployments.names)}
    cell = np.array([at[c] * many + t[d] for c, d in zip(found["client"], found["deployment"], strict=True)], np.int64)
    values = np.stack([found[name].astype(np.float64) for name in people.measured], axis=1)
    values = values.reshape(len(cell), len(people.measured))
    order = np.lexsort((*([found[people.row]] if people.row else []), found["hash"], cell))
    return Draw(
        cell[order], values[order], found["stratum"].astype(np.int64)[order], found["propensity"].astype(float)[order],
        size,
    )  # fmt: skip


def _counts(seen: Summaries) -> tuple[np.ndarray, np.ndarray]:
    labeled = seen.labeled.by_cell()[0]
    return labeled, labeled + seen.unlabeled.by_cell()[0]


def draw_groups(asks: Collector, seen: Summaries, size: int, seed: int) -> GroupLog:
    """Counts by group, and a sample over all clients from each group under each deployment."""
    log = group_counts(seen)
    people, r = asks.people, asks.people.rows
    count = log.counts.sum(axis=(0, 3, 4)).ravel()
    there = np.flatnonzero(count > 0)
    groups = max(1, len(log.names))
    size = kept_rows(size, people.width + 2, len(there))
    cells: dict[str, Any] = {
        "deployment": [log.deployments[i // groups] for i in there],
        "group": [log.names[i % groups] for i in there],
    }
    good = people.settings.decision.qualified
    rows = r.filter(r.known & r.good & r.group.notnull())
    columns = [*people.seen, "label", "accepted"]
    found = fetch(draw(rows, people.row, seed, cells, count[there], count[there], size, columns))
    t, g = ({name: i for i, name in enumerate(names)} for names in (log.deployments, log.names))
    cell = np.array([t[d] * groups + g[w] for d, w in zip(found["deployment"], found["group"], strict=True)], np.int64)
    label = found["label"].astype(np.float64)
    # A label other than 0 and 1 does not say who is qualified; a note reports it.
    qualified = np.where((label == 0) | (label == 1), label == good, np.nan).astype(np.float64)
    values = np.column_stack(
        [found[name].astype(np.float64) for name in people.seen] + [qualified, found["accepted"].astype(np.float64)]
    )
    order = [*([found[people.row]] if people.row else []), found["hash"]]
    picked = dict(smallest(cell, order, size))
    most = max((len(rows) for rows in picked.values()), default=0)
    out = np.full((len(log.deployments) * groups, most, people.width + 2), np.nan)
    for i, places in picked.items():
        out[i, : len(places)] = values[places]
    out = out.reshape(len(log.deployments), len(log.names), *out.shape[1:]) if log.names else out[:, :0, None]
    return dataclasses.replace(log, x=out[..., :-2], qualified=out[..., -2], accepted=out[..., -1])
