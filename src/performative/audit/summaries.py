"""Everything an audit needs to know about rows, as sums: computed where the rows are, merged anywhere."""

import dataclasses
from collections import Counter

import numpy as np

from performative.audit.deployments import Deployments
from performative.audit.missing import DECISIONS, Sums
from performative.audit.moments import MOMENT_BYTES, Moments
from performative.audit.roles import Columns
from performative.audit.rules import linear_models, linear_rule
from performative.audit.schema import Settings
from performative.audit.weighted import Weighted


@dataclasses.dataclass(frozen=True, eq=False)
class Summaries:
    """Sums by client, deployment and decision, without any person's row.

    Attributes:
        labeled: features and label of usable labeled rows (features of all usable rows if there is no label)
        unlabeled: features of usable rows without a label
        scores: the model's score in rows with a label, and without one
        incomplete: features and score of rows with an empty feature
        counts: people by (client, deployment, group, accepted, qualified); accepted and qualified are 0, 1, 2 (unknown)
        always: labeled and unlabeled rows of people whom every deployed model accepts, None if not requested
        weighted: labeled rows, weighted by 1 / propensity, None if propensities were not logged
        rows, dropped, empty, unknown: number of rows, and of faulty ones by reason, by feature and by name of an
            unknown deployment
        odd: a label other than 0 and 1 and its location (file, row, value), None if there is none
        suppressed: number of dropped cells with too few rows, and of their rows
        noise: standard deviation of the Gaussian noise added to each scaled sum, 0 for none
        promise: (epsilon, delta) of the noise for each person, None without noise
    """

    columns: Columns
    deployments: Deployments
    settings: Settings
    decides: str | None
    labeled: Moments
    unlabeled: Moments
    scores: tuple[Sums, Sums]
    incomplete: Sums
    counts: dict[tuple[str, str, str, int, int], int]
    rows: int
    dropped: Counter[str]
    empty: Counter[str]
    unknown: Counter[str]
    odd: tuple[str, str, float] | None
    undecided: int = 0
    no_group: int = 0
    no_chance: int = 0
    always: tuple[Moments, Moments] | None = None
    weighted: Weighted | None = None
    suppressed: tuple[int, int] = (0, 0)
    noise: float = 0.0
    promise: tuple[float, float] | None = None

    @property
    def clients(self) -> tuple[str, ...]:
        return self.labeled.clients

    @property
    def cells(self) -> int:
        return len(self.clients) * len(self.deployments.names)

    @property
    def strata(self) -> int:
        return DECISIONS**2 if self.decides else 1

    @property
    def models(self) -> tuple[np.ndarray, np.ndarray] | None:
        return linear_models(self.columns.features, self.deployments, self.settings)

    @property
    def rule(self) -> tuple[np.ndarray, np.ndarray, float] | None:
        return linear_rule(self.models, self.deployments, self.settings)

    @property
    def binary(self) -> bool:
        return self.columns.label is not None and self.odd is None

    @property
    def comparable(self) -> bool:
        """Whether missingness patterns fit into memory, cell by cell."""
        return 3 * 24 * self.cells * self.strata * (len(self.columns.features) + 2) <= MOMENT_BYTES

    def parts(self, which: str, axes: tuple[int, ...]) -> np.ndarray:
        """[3, rest, k + 2] n, sums and squares about one center of features, score and decision.

        Args:
            which: rows "labeled", "unlabeled" or "incomplete"; axes: of the strata (accepted, side) that are summed
        """
        k, many, shape = len(self.columns.features), len(self.deployments.names), (3, 3) if self.strata > 1 else (1, 1)
        out = np.zeros((3, self.cells * self.strata, k + 2))
        center = self._center()
        if which == "incomplete":
            sums = self.incomplete
            at = (sums.client * many + sums.deployment) * self.strata + sums.stratum
            out[:, at, : k + 1] = sums.about(center[: k + 1])
            decided = np.bincount(at, sums.rows, minlength=out.shape[1])
        else:
            own = self.labeled if which == "labeled" else self.unlabeled
            at = (own.client * many + own.deployment) * self.strata + own.stratum
            away = own.mean[:, :k] - center[:k]
            spread = np.diagonal(own.squares, axis1=1, axis2=2)[:, :k]
            n = own.count[:, None]
            out[:, at, :k] = np.stack([n + 0 * away, n * away, spread + n * away**2])
            score = self.scores[0 if which == "labeled" else 1]
            out[:, (score.client * many + score.deployment) * self.strata + score.stratum, k : k + 1] = score.about(
                center[k : k + 1]
            )
            decided = np.bincount(at, own.count, minlength=out.shape[1])
        if self.strata > 1:
            value = (np.arange(len(decided)) % self.strata) // DECISIONS
            n = np.where(value < 2, decided, 0.0)
            away = value - center[k + 1]
            out[:, :, k + 1] = np.stack([n, n * away, n * away**2])
        out = out.reshape(3, self.cells, *shape, k + 2).sum(axis=tuple(2 + axis for axis in axes), keepdims=True)
        return out.reshape(3, -1, k + 2)

    def _center(self) -> np.ndarray:
        """Means of features, score and decision over usable rows: the center of all sums."""
        k = len(self.columns.features)
        out = np.zeros(k + 2)
        count = np.concatenate([self.labeled.count, self.unlabeled.count])
        if count.sum():
            mean = np.concatenate([self.labeled.mean[:, :k], self.unlabeled.mean[:, :k]])
            out[:k] = np.average(mean, axis=0, weights=count)
        n = np.concatenate([sums.n[:, 0] for sums in self.scores])
        if n.sum():
            out[k] = np.average(np.concatenate([sums.mean[:, 0] for sums in self.scores]), weights=n)
        out[k + 1] = 0.5 if self.strata > 1 else 0.0
        return out
