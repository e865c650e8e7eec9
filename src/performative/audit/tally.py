"""Counts and samples of people by protected group, in the same pass as the moments."""

import dataclasses

import numpy as np
from jaxtyping import Float, Int

from performative.audit.schema import LogError
from performative.audit.streams import MOMENT_BYTES, Reservoir

# More groups than this are a sign that the column is a person's id.
GROUPS = 128
EVERYONE = "all"
# Second axis of a table of counts: what is known of the outcome. The first: rejected, accepted, not known.
NOT_QUALIFIED, QUALIFIED, UNKNOWN = 0, 1, 2


@dataclasses.dataclass(frozen=True)
class GroupLog:
    """People by client, deployment and group.

    counts[c, t, g, a, l]: a = 0 rejected, 1 accepted, 2 not known; l = 0 not qualified, 1 qualified, 2 no label.
    x [T, G, r, k], qualified [T, G, r] and accepted [T, G, r] hold a sample drawn without replacement over all clients;
    NaN where a value is not known and in spare rows, whose x is NaN too.
    """

    names: tuple[str, ...]
    clients: tuple[str, ...]
    deployments: tuple[str, ...]
    features: tuple[str, ...]
    counts: Int[np.ndarray, "C T G 3 3"]
    x: Float[np.ndarray, "T G r k"]
    qualified: Float[np.ndarray, "T G r"]
    accepted: Float[np.ndarray, "T G r"]


class GroupTally:
    """Collects what a `GroupLog` holds, block by block."""

    def __init__(self, deployments: int, features: int, size: int):
        self.deployments = deployments
        self.counts = np.zeros((0, deployments, 0, 3, 3), np.int64)
        self.names: dict[str, int] = {}
        self.sample = Reservoir(features + 2, size)

    def code(self, words: list[str], codes: np.ndarray, file: str, column: str) -> np.ndarray:
        """Numbers of the groups, -1 where none is named."""
        for word in words:
            self.names.setdefault(word, len(self.names))
        if len(self.names) > GROUPS:
            raise LogError(
                f"holds more than {GROUPS} different groups; a group is a trait that many share, not a person's id.",
                file,
                column=column,
            )
        return np.array([*(self.names[w] for w in words), -1])[codes]

    def add(
        self,
        client: np.ndarray,
        deployment: np.ndarray,
        group: np.ndarray,
        accepted: np.ndarray,
        qualified: np.ndarray,
        x: np.ndarray,
        hashes: np.ndarray,
    ) -> None:
        """Rows of one block. accepted and qualified are 0, 1 or NaN."""
        self._grow(int(client.max(initial=-1)) + 1)
        a = np.where(np.isnan(accepted), UNKNOWN, accepted).astype(np.int64)
        l = np.where(np.isnan(qualified), UNKNOWN, qualified).astype(np.int64)
        place = np.ravel_multi_index((client, deployment, group, a, l), self.counts.shape)
        spots, times = np.unique(place, return_counts=True)
        self.counts.reshape(-1)[spots] += times
        whole = np.all(np.isfinite(x), axis=1)
        rows = np.column_stack([x, qualified, accepted])[whole]
        self.sample.add((deployment * GROUPS + group)[whole], hashes[whole], rows)

    def _grow(self, clients: int) -> None:
        c, _, g = self.counts.shape[:3]
        if clients > c or len(self.names) > g:
            if 72 * max(clients, c) * self.deployments * len(self.names) > MOMENT_BYTES:
                raise LogError(
                    f"{clients} clients by {self.deployments} deployments by {len(self.names)} groups are too many to "
                    "count; is the client or the group column a person's id?"
                )
            more = ((0, max(0, clients - c)), (0, 0), (0, len(self.names) - g), (0, 0), (0, 0))
            self.counts = np.pad(self.counts, more)

    def finish(self, clients: tuple[str, ...], deployments: tuple[str, ...], features: tuple[str, ...]) -> GroupLog:
        """The log, groups in the order of their names."""
        self._grow(len(clients))
        names = sorted(self.names)
        order = [self.names[name] for name in names]
        cells = np.arange(self.deployments)[:, None] * GROUPS + np.array(order, np.int64)[None, :]
        rows = self.sample.of(cells.ravel())
        rows = rows.reshape(self.deployments, len(names), *rows.shape[1:])
        return GroupLog(
            names=tuple(names),
            clients=clients,
            deployments=deployments,
            features=features,
            counts=self.counts[:, :, order],
            x=rows[..., :-2],
            qualified=rows[..., -2],
            accepted=rows[..., -1],
        )
