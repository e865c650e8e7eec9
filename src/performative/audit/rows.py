"""One pass over everybody's rows: what each column is, what is dropped, what is counted."""

from collections import Counter

import numpy as np

from performative.audit.deployments import Deployments
from performative.audit.missing import DECISIONS, Sums
from performative.audit.roles import Columns
from performative.audit.rules import decide, linear_models, linear_rule
from performative.audit.schema import LogError, Settings
from performative.audit.streams import MOMENT_BYTES, Moments, Reservoir, row_hashes
from performative.audit.tables import Block, Table, blocks
from performative.audit.tally import EVERYONE, GroupTally

ONLY_CLIENT = "all"
_YES, _NO = {"1", "1.0", "true", "t", "yes"}, {"0", "0.0", "false", "f", "no"}
# Names of unknown deployments that are remembered for the message; all are counted.
_NAMES = 1000


class Track:
    """Moments and a sample of the same rows."""

    def __init__(self, moments: Moments, sample: Reservoir):
        self.moments, self.sample = moments, sample

    def add(self, cell: np.ndarray, hashes: np.ndarray, x: np.ndarray) -> None:
        self.moments.add(cell, x)
        self.sample.add(cell, hashes, x)

    def without_last(self) -> "Track":
        return Track(self.moments.without_last(), self.sample.without_last())


class Pass:
    """Everything that is learnt from the rows. Cell = client * T + deployment."""

    def __init__(self, columns: Columns, deployments: Deployments, settings: Settings, size: int, seed: int):
        self.columns, self.deployments, self.settings, self.seed = columns, deployments, settings, seed
        width = len(columns.features) + (columns.label is not None)
        self.whole = Track(Moments(width), Reservoir(width, size))
        # Rows with or without a label; the same as `whole` until the first label is missing.
        self.bare: Track | None = None
        self.clients: dict[str, int] = {}
        self.index = {name: t for t, name in enumerate(deployments.names)}
        self.rows = self.unlabeled = self.undecided = self.no_group = 0
        self.dropped: Counter[str] = Counter()
        self.empty: Counter[str] = Counter()
        self.unknown: Counter[str] = Counter()
        self.odd_label: tuple[str, str, float] | None = None
        self.models = linear_models(columns.features, deployments, settings)
        self.rule = linear_rule(self.models, deployments, settings)
        # Features, the model's score and the decision of rows with a label, without one, and with an empty feature.
        self.labeled, self.bare_rows, self.incomplete = (Sums(len(columns.features) + 2) for _ in range(3))
        self.center: np.ndarray | None = None
        self.no_chance = 0
        self.tally = GroupTally(len(self.index), len(columns.features), 4 * size)

    @property
    def decides(self) -> str | None:
        """Where it comes from who was accepted."""
        if self.columns.accepted:
            return "accepted"
        if self.settings.decision.threshold is None:
            return None
        return "score" if self.columns.score else "theta" if self.rule else None

    @property
    def strata(self) -> int:
        """Kinds of decisions that a cell is cut into: accepted by side of the threshold; 1 where nothing is known."""
        return DECISIONS**2 if self.decides else 1

    @property
    def cells(self) -> int:
        return len(self.clients) * len(self.index)

    def read(self, table: Table, rows: int) -> None:
        """All rows of one file."""
        for block in blocks(table, self.columns.numbers, self.columns.texts, rows):
            self._add(block, table)

    def _add(self, block: Block, table: Table) -> None:
        c = self.columns
        self.rows += len(block)
        client, deployment = self._clients(block, table), self._deployments(block)
        known = (client >= 0) & (deployment >= 0)
        x, label = self.values(block)
        self._check_label(label, block, table)
        good = np.isfinite(x)
        fit = known & good.all(axis=1) & ~np.isinf(label)
        self.dropped["an infinite label"] += int(np.sum(known & np.isinf(label)))
        self.dropped["an empty or infinite feature"] += int(np.sum(known & ~good.all(axis=1) & ~np.isinf(label)))
        for name, lost in zip(c.features, np.sum(~good[known], axis=0), strict=True):
            self.empty[name] += int(lost)
        hashes = row_hashes(table.name, block.start, len(block), self.seed)
        cell = client * len(self.index) + deployment
        self._add_moments(cell, hashes, x, label, fit)
        accepted = self.accepted(block, table, deployment)
        self._add_sums(block, table, cell, deployment, x, label, accepted, known & ~np.isinf(label), fit)
        self._add_groups(block, table, known, client, deployment, label, accepted, hashes)

    def values(self, block: Block) -> tuple[np.ndarray, np.ndarray]:
        """Features [n, k], clipped where audit.toml says so, and labels [n], NaN where there are none."""
        k, x = len(self.columns.features), self.features(block)
        for name, limits in self.settings.clip.items():
            j = self.columns.features.index(name)
            x = x.copy()
            x[:, j] = np.where(np.isfinite(x[:, j]), np.clip(x[:, j], *limits), np.nan)
        return x, block.numbers[:, k] if self.columns.label else np.full(len(block), np.nan)

    def features(self, block: Block) -> np.ndarray:
        """[n, k] as they are logged: what the model saw."""
        return block.numbers[:, : len(self.columns.features)]

    def _add_sums(
        self, block: Block, table: Table, cell: np.ndarray, deployment: np.ndarray, x: np.ndarray, label: np.ndarray,
        accepted: np.ndarray, known: np.ndarray, fit: np.ndarray,
    ) -> None:  # fmt: skip
        """Who has a label, and who has all features: what they look like, and how they were decided on."""
        cells = self.cells * self.strata
        if self.labeled.bytes_for(3 * cells) > MOMENT_BYTES:
            return
        z = np.column_stack([x, self._score(block, deployment), accepted])
        z[np.isinf(z)] = np.nan
        if self.center is None and np.any(known):
            with np.errstate(invalid="ignore"):
                first = np.nansum(z[known], axis=0) / np.maximum(np.isfinite(z[known]).sum(axis=0), 1)
            self.center = first
        if self.center is not None:
            z -= self.center
        place = cell * self.strata + self.stratum(block, deployment, accepted)
        has = ~np.isnan(label) if self.columns.label else np.ones(len(x), bool)
        for sums, rows in ((self.labeled, fit & has), (self.bare_rows, fit & ~has), (self.incomplete, known & ~fit)):
            sums.add(place[rows], z[rows], cells)
        if self.columns.propensity:
            self.no_chance += int(np.sum(fit & ~(self.propensity(block, table) > 0)))

    def stratum(self, block: Block, deployment: np.ndarray, accepted: np.ndarray) -> np.ndarray:
        """Which decision, on which side of the threshold: 3 * accepted + side, 2 where it is not known."""
        if self.strata == 1:
            return np.zeros(len(block), np.int64)
        side = self.side(block, deployment)
        a, s = (np.where(np.isnan(v), DECISIONS - 1, v).astype(np.int64) for v in (accepted, side))
        return DECISIONS * a + s

    def propensity(self, block: Block, table: Table) -> np.ndarray:
        """The chance of being accepted, NaN where it is empty."""
        assert self.columns.propensity is not None
        values = block.numbers[:, self.columns.place(self.columns.propensity)]
        wrong = np.flatnonzero((values < 0) | (values > 1))
        if len(wrong):
            row = table.row(block.start + int(wrong[0]))
            came = f"{values[wrong[0]]:g}"
            raise LogError(f"must be a chance from 0 to 1; got {came}.", table.name, row, self.columns.propensity)
        return values

    def _score(self, block: Block, deployment: np.ndarray) -> np.ndarray:
        """What the model said, or what its parameters say; NaN where neither is known."""
        if self.columns.score:
            return block.numbers[:, self.columns.place(self.columns.score)]
        if self.models is None:
            return np.full(len(block), np.nan)
        x = self.features(block)
        weights, offset = self.models
        score = np.sum(weights[deployment] * np.nan_to_num(x), axis=1) + offset[deployment]
        return np.where(np.isfinite(x).all(axis=1), score, np.nan)

    def _add_moments(
        self, cell: np.ndarray, hashes: np.ndarray, x: np.ndarray, label: np.ndarray, fit: np.ndarray
    ) -> None:
        cells = self.cells
        if self.columns.label is None:
            self.whole.moments.grow(cells)
            self.whole.add(cell[fit], hashes[fit], x[fit])
            return
        labeled = fit & ~np.isnan(label)
        self.unlabeled += int(fit.sum() - labeled.sum())
        if self.bare is None and self.unlabeled:
            self.bare = self.whole.without_last()
        self.whole.moments.grow(cells)
        self.whole.add(cell[labeled], hashes[labeled], np.column_stack([x[labeled], label[labeled]]))
        if self.bare is not None:
            self.bare.moments.grow(cells)
            self.bare.add(cell[fit], hashes[fit], x[fit])

    def locate(self, block: Block) -> tuple[np.ndarray, np.ndarray]:
        """Client and deployment of rows that were read before, -1 where one is not known; counts nothing."""
        words, codes = block.words[self.columns.deployment], block.codes[self.columns.deployment]
        deployment = np.array([*(self.index.get(w, -1) for w in words), -1])[codes]
        if self.columns.client is None:
            return np.zeros(len(block), np.int64), deployment
        words, codes = block.words[self.columns.client], block.codes[self.columns.client]
        return np.array([*(self.clients[w] for w in words), -1])[codes], deployment

    def _clients(self, block: Block, table: Table) -> np.ndarray:
        column = self.columns.client
        if column is None:
            self.clients.setdefault(ONLY_CLIENT, 0)
            return np.zeros(len(block), np.int64)
        words, codes = block.words[column], block.codes[column]
        for word in words:
            self.clients.setdefault(word, len(self.clients))
        if self.whole.moments.bytes_for(len(self.clients) * len(self.index)) > MOMENT_BYTES:
            raise LogError(
                f"holds more than {len(self.clients) - len(words)} different clients, too many for "
                f"{self.whole.moments.width} columns and {len(self.index)} deployments; is it a person's id?",
                table.name,
                column=column,
            )
        self.dropped["no client"] += int(np.sum(codes < 0))
        return np.array([*(self.clients[w] for w in words), -1])[codes]

    def _deployments(self, block: Block) -> np.ndarray:
        words, codes = block.words[self.columns.deployment], block.codes[self.columns.deployment]
        place = np.array([*(self.index.get(w, -1) for w in words), -1])
        times = np.bincount(codes[codes >= 0], minlength=len(words))
        for word, count in zip(words, times, strict=True):
            if word not in self.index and (len(self.unknown) < _NAMES or word in self.unknown):
                self.unknown[word] += int(count)
        self.dropped["no deployment"] += int(np.sum(codes < 0))
        self.dropped["a deployment that is not listed"] += int(np.sum((place[codes] < 0) & (codes >= 0)))
        return place[codes]

    def _check_label(self, label: np.ndarray, block: Block, table: Table) -> None:
        odd = np.flatnonzero(~(np.isnan(label) | (label == 0) | (label == 1)))
        if len(odd) and self.odd_label is None:
            self.odd_label = (table.name, table.row(block.start + int(odd[0])), float(label[odd[0]]))

    def _add_groups(
        self, block: Block, table: Table, known: np.ndarray, client: np.ndarray, deployment: np.ndarray,
        label: np.ndarray, accepted: np.ndarray, hashes: np.ndarray,
    ) -> None:  # fmt: skip
        if self.decides is None and self.columns.group is None:
            return
        x, column = self.features(block), self.columns.group
        words, codes = (block.words[column], block.codes[column]) if column else ([EVERYONE], np.zeros(len(x), int))
        group = self.tally.code(words, codes, table.name, column or "")
        self.no_group += int(np.sum(known & (group < 0)))
        self.undecided += int(np.sum(known & np.isnan(accepted)))
        # A label other than 0 and 1 says nothing about who is qualified; a note tells.
        binary = (label == 0) | (label == 1)
        qualified = np.where(binary, label == self.settings.decision.qualified, np.nan).astype(np.float64)
        use = known & (group >= 0)
        self.tally.add(
            client[use], deployment[use], group[use], accepted[use], qualified[use], x[use], hashes[use]
        )  # fmt: skip

    def accepted(self, block: Block, table: Table, deployment: np.ndarray) -> np.ndarray:
        """0, 1, or NaN where it cannot be told."""
        if not self.columns.accepted:
            return self.side(block, deployment)
        words, codes = block.words[self.columns.accepted], block.codes[self.columns.accepted]
        values = [1.0 if w.lower() in _YES else 0.0 if w.lower() in _NO else np.inf for w in words]
        for j in np.flatnonzero(np.isinf(values)):
            row = table.row(block.start + int(np.argmax(codes == j)))
            raise LogError(f"must be 0 or 1; got {words[j]!r}.", table.name, row, self.columns.accepted)
        return np.array([*values, np.nan])[codes]

    def side(self, block: Block, deployment: np.ndarray) -> np.ndarray:
        """1 on the accepted side of the threshold, 0 on the other, NaN where it cannot be told."""
        decision = self.settings.decision
        if decision.threshold is None or (not self.columns.score and self.rule is None):
            return np.full(len(block), np.nan)
        threshold = decision.threshold if self.columns.score or self.rule is None else self.rule[2]
        return decide(self._score(block, deployment), threshold, decision.accept)
