"""A second reading where the model decided whose outcome is seen: labeled rows that stand for people of all models."""

import dataclasses

import numpy as np
from scipy import stats

from performative.audit.log import ClientLog
from performative.audit.missing import SEEN, Sums, compare
from performative.audit.rows import Pass
from performative.audit.rules import decide
from performative.audit.streams import Reservoir, row_hashes
from performative.audit.tables import Table, blocks

# Fewest labeled rows, or effective ones where they are weighted, of a client under a deployment.
LEAST = 20


@dataclasses.dataclass(frozen=True, eq=False)
class Plan:
    """Which rows count, and for how many.

    Attributes:
        kind: "propensity" (1 / the chance logged), "strata" (1 / chance[cell, accepted, side]), or "always": rows of
            people whom every deployed model accepts, each for one
        source: where the chances come from, in words
    """

    kind: str
    source: str
    chance: np.ndarray | None = None


@dataclasses.dataclass(frozen=True, eq=False)
class Outcomes:
    """What the second reading found.

    Attributes:
        logs: features and label of a client, count = effective rows (sum w)^2 / sum w^2; clients that can be tested
        coverage: share of all people that they stand for, the least over clients and deployments
        effective: the fewest and the most effective rows of a client under a deployment
        why: why they cannot be used, "" where they can
    """

    logs: dict[str, ClientLog]
    coverage: float
    effective: tuple[float, float]
    why: str


class Reading:
    """Weighted moments of labeled rows (of all rows where there is no label), about the means of the first reading.

    mean = sum w z / sum w,   cov = sum w (z - mean)(z - mean)' / sum w,   w = 1 / chance        (Hajek 1971)
    """

    def __init__(self, seen: Pass, plan: Plan, size: int):
        self.seen, self.plan = seen, plan
        self.width = seen.whole.moments.width
        n, q = seen.cells, self.width
        self.origin = seen.whole.moments.mean[:n]
        self.rows, self.people, self.weight, self.square = (np.zeros(n) for _ in range(4))
        self.first, self.doubled, self.doubled_squares = (np.zeros((n, q)) for _ in range(3))
        self.second = np.zeros((n, q, q))
        self.sample = Reservoir(q + 1, size)  # the chance is the last column
        self.inside, self.outside = Sums(len(seen.columns.features)), Sums(len(seen.columns.features))

    def read(self, table: Table, rows: int) -> None:
        """All rows of one file."""
        seen, columns = self.seen, self.seen.columns
        for block in blocks(table, columns.numbers, columns.texts, rows):
            client, deployment = seen.locate(block)
            x, label = seen.values(block)
            fit = (client >= 0) & (deployment >= 0) & np.isfinite(x).all(axis=1) & ~np.isinf(label)
            cell = client * len(seen.index) + deployment
            chance = np.ones(len(x))
            if self.plan.kind == "always":
                fit &= self._always(np.nan_to_num(seen.features(block)))
            elif self.plan.kind == "propensity":
                chance = seen.propensity(block, table)
            else:
                assert self.plan.chance is not None
                stratum = seen.stratum(block, deployment, seen.accepted(block, table, deployment))
                chance = self.plan.chance.reshape(-1, seen.strata)[cell, stratum]
            has = fit & (~np.isnan(label) if columns.label else True) & (chance > 0)
            self.people += np.bincount(cell[fit], minlength=len(self.people))[: len(self.people)]
            about = x - (0.0 if seen.center is None else seen.center[: x.shape[1]])
            for sums, use in ((self.inside, has), (self.outside, fit & ~has)):
                sums.add(cell[use], about[use], seen.cells)
            z = np.column_stack([x, label])[has] if columns.label else x[has]
            hashes = row_hashes(table.name, block.start, len(block), seen.seed)[has]
            self._add(cell[has], z, chance[has], hashes)

    def _always(self, x: np.ndarray) -> np.ndarray:
        assert self.seen.rule is not None
        weights, offset, threshold = self.seen.rule
        stay = np.ones(len(x), bool)
        for w, o in zip(weights, offset, strict=True):
            stay &= decide(x @ w + o, threshold, self.seen.settings.decision.accept) == 1
        return stay

    def _add(self, cell: np.ndarray, z: np.ndarray, chance: np.ndarray, hashes: np.ndarray) -> None:
        if not len(z):
            return
        w, d = 1 / chance, z - self.origin[cell]
        n = len(self.rows)
        self.rows += np.bincount(cell, minlength=n)
        self.weight += np.bincount(cell, w, minlength=n)
        self.square += np.bincount(cell, w**2, minlength=n)
        for j in range(self.width):
            self.first[:, j] += np.bincount(cell, w * d[:, j], minlength=n)
            self.doubled[:, j] += np.bincount(cell, w**2 * d[:, j], minlength=n)
            self.doubled_squares[:, j] += np.bincount(cell, w**2 * d[:, j] ** 2, minlength=n)
            for k in range(j + 1):
                self.second[:, j, k] += np.bincount(cell, w * d[:, j] * d[:, k], minlength=n)
        self.sample.add(cell, hashes, np.column_stack([z, chance]))

    def finish(self) -> Outcomes:
        """Logs by client, or why there are none."""
        seen, many = self.seen, len(self.seen.index)
        rows = (seen.bare or seen.whole).moments.count[: seen.cells].astype(float)
        with np.errstate(divide="ignore", invalid="ignore"):
            effective = np.where(self.square > 0, self.weight**2 / self.square, 0.0)
            shift = np.where(self.weight[:, None] > 0, self.first / self.weight[:, None], 0.0)
            second = self.second + np.swapaxes(np.tril(self.second, -1), 1, 2)
            cov = second / self.weight[:, None, None] - shift[:, :, None] * shift[:, None, :]
            cov *= (effective / (effective - 1))[:, None, None]
        there = rows >= 2
        coverage = float(np.min(self.people[there] / rows[there], initial=1.0)) if self.plan.kind == "always" else 1.0
        some = effective[there]
        span = (float(some.min(initial=np.inf)), float(some.max(initial=0.0)))
        logs = {}
        for name, i in sorted(seen.clients.items()):
            cells = np.arange(i * many, (i + 1) * many)[there[i * many : (i + 1) * many]]
            if not len(cells) or np.any(effective[cells] < LEAST):
                continue
            theta, time = seen.deployments.theta[cells - i * many], seen.deployments.time[cells - i * many]
            logs[name] = ClientLog(
                theta, time, effective[cells], self.origin[cells] + shift[cells], cov[cells],
                self._thinned(cells), self.names, seen.deployments.parameters, name,
            )  # fmt: skip
        return Outcomes(logs, coverage, span, self._why(logs, span))

    def _thinned(self, cells: np.ndarray) -> np.ndarray:
        """Rows that stand for everybody, each for as many: one that stands for w stays with probability w / max w."""
        rows = self.sample.of(cells)
        rows, chance = rows[..., :-1], rows[..., -1]
        if not rows.size:
            return rows
        least = np.min(np.where(np.isnan(chance), np.inf, chance), axis=1, keepdims=True)
        drawn = np.random.default_rng([self.seen.seed, *cells]).random(chance.shape)
        return np.where((drawn < least / chance)[..., None], rows, np.nan)

    @property
    def names(self) -> tuple[str, ...]:
        return (*self.seen.columns.features, *(["label"] if self.seen.columns.label else []))

    def _why(self, logs: dict[str, ClientLog], span: tuple[float, float]) -> str:
        if not logs:
            who = "whom every deployed model accepts" if self.plan.kind == "always" else "with a label, weighted"
            return f"people {who} are too few: {span[0]:.0f} (effective) rows under some deployment, {LEAST} are needed"
        name, p = self._balance()
        if p <= SEEN:
            rest = "among them" if self.plan.kind == "always" else "once weighted"
            return f"{rest}, people with a label still differ from those without in {name} (p = {p:.1g})"
        return ""

    def _balance(self) -> tuple[str, float]:
        """The feature in which the rows that count differ most from everybody that they stand for, and its p-value.

        Where each stands for w people, the mean of features is off that of all by sum w (w - 1)(x - mean)^2 / N^2.
        """
        features = self.seen.columns.features
        k, n = len(features), self.seen.cells
        inside, outside = self.inside.parts(n, 1, ()), self.outside.parts(n, 1, ())
        if self.plan.kind != "propensity":
            # Strata were compared in the first reading, each by itself.
            j, p = compare(inside, outside).first("depends") if self.plan.kind == "always" else (-1, 1.0)
            return features[j], p
        people, center = inside[0] + outside[0], self.seen.center
        assert center is not None  # the first reading of rows sets it
        with np.errstate(divide="ignore", invalid="ignore"):
            everybody = (inside[1] + outside[1]) / people + center[None, :k]
            d = everybody - self.origin[:, :k]
            gap = self.first[:, :k] / self.weight[:, None] - d
            doubled = self.doubled_squares[:, :k] - 2 * d * self.doubled[:, :k] + d**2 * self.square[:, None]
            single = (
                np.diagonal(self.second, axis1=1, axis2=2)[:, :k]
                - 2 * d * self.first[:, :k]
                + (d**2 * self.weight[:, None])
            )
            variance = (doubled - single) / people**2
        good = np.isfinite(gap) & (variance > 0)
        weight = np.where(good, 1 / np.where(good, variance, 1.0), 0.0)
        z = np.sum(np.where(good, gap, 0.0) * weight, axis=0) / np.sqrt(np.maximum(weight.sum(axis=0), 1e-300))
        squares = np.where(good, gap**2 * weight, 0.0).sum(axis=0)
        p = np.minimum(2 * stats.norm.sf(np.abs(z)), stats.chi2.sf(squares, np.maximum(good.sum(axis=0), 1)))
        return features[int(p.argmin())], min(1.0, 2 * k * float(p.min()))
