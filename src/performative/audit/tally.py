"""Counts of people by protected group, decision and outcome, and a few of their rows."""

import dataclasses

import numpy as np
from jaxtyping import Float, Int

from performative.audit.summaries import Summaries

# More groups than this suggest that the column is a person's id.
GROUPS = 128
EVERYONE = "all"
# Second axis of a table of counts: the outcome. The first: rejected, accepted, unknown.
NOT_QUALIFIED, QUALIFIED, UNKNOWN = 0, 1, 2


@dataclasses.dataclass(frozen=True)
class GroupLog:
    """People by client, deployment and group.

    counts[c, t, g, a, l]: a = 0 rejected, 1 accepted, 2 unknown; l = 0 not qualified, 1 qualified, 2 no label.
    x [T, G, r, k], qualified [T, G, r] and accepted [T, G, r] are a sample drawn without replacement over all clients;
    NaN for unknown values and in padding rows, whose x is NaN too.
    """

    names: tuple[str, ...]
    clients: tuple[str, ...]
    deployments: tuple[str, ...]
    features: tuple[str, ...]
    counts: Int[np.ndarray, "C T G 3 3"]
    x: Float[np.ndarray, "T G r k"]
    qualified: Float[np.ndarray, "T G r"]
    accepted: Float[np.ndarray, "T G r"]


def group_counts(seen: Summaries) -> GroupLog:
    """The counts only, with groups sorted by name; no rows are kept."""
    names = tuple(sorted({group for _, _, group, _, _ in seen.counts}))
    c, t, g = ({name: i for i, name in enumerate(each)} for each in (seen.clients, seen.deployments.names, names))
    counts = np.zeros((len(seen.clients), len(seen.deployments.names), len(names), 3, 3), np.int64)
    for (client, deployment, group, accepted, qualified), n in seen.counts.items():
        counts[c[client], t[deployment], g[group], accepted, qualified] += n
    none = np.zeros((len(seen.deployments.names), len(names), 0))
    return GroupLog(
        names, seen.clients, seen.deployments.names, seen.columns.features, counts,
        np.zeros((*none.shape, len(seen.columns.features))), none, none,
    )  # fmt: skip
