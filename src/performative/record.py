"""What a run records: `Record` configures it, a `Metric` is one number per round."""

import dataclasses
from collections.abc import Callable, Mapping
from typing import Any, NoReturn

import equinox as eqx
import numpy as np
from jaxtyping import Array, Int, PyTree

from performative._base.checks import check_counts, check_flags, is_one_of
from performative.algorithm import Algorithm
from performative.problem import Problem
from performative.types import ArrayLike, Cohort, Numbers, Theta, Upload

__all__ = ["Change", "Metric", "Record", "Unseen", "View"]

# Number of points in a run at which risks are measured.
RISK_POINTS = 20


class Change(eqx.Module):
    """A memory before and after a round."""

    before: PyTree
    after: PyTree


class View(eqx.Module):
    """What a metric sees of a round.

    Args:
        theta: the model that the round ended with
        deployed: the model deployed during the round
        round: completed rounds, including this one: 1, 2, ...
        time: simulated time that the round took
        asked: the selected cohort
        cohort: the cohort that contributed: clients with non-finite updates are excluded
        upload: what clients sent, one row per row of the cohort
        clients: `ClientMemory` of all N clients, before and after
        server: `ServerMemory`, before and after
        previous: theta at the start of the round
        problem, algorithm: as passed to `pf.run`, on the device
        weights: p_i, [N]
        now: simulated time since the start of the run; None if no population reads it
    """

    theta: Theta
    deployed: Theta
    round: Int[Array, ""]
    time: Array
    asked: Cohort
    cohort: Cohort
    upload: Upload
    clients: Change
    server: Change
    previous: Theta
    problem: Problem
    algorithm: Algorithm
    weights: Numbers
    now: Array | None = None


class Unseen(ValueError):
    """A metric accessed something it may not see."""


class Published:
    """A view of published values only: theta, deployed and round. Anything else raises an error with the reason."""

    def __init__(self, theta: Theta, deployed: Theta, round: ArrayLike, why: str):
        self.theta, self.deployed, self.round, self._why = theta, deployed, round, why

    def __getattr__(self, name: str) -> NoReturn:
        if name in View.__dataclass_fields__:
            raise Unseen(f"view.{name}: {self._why}")
        raise AttributeError(f"a view has no {name!r}; it has {', '.join(View.__dataclass_fields__)}.")


class Metric(eqx.Module):
    """One number per round, computed in the compiled loop.

    Args:
        function: function(view) -> a number, with a `pf.record.View` of the round; JAX traces it
        kind: "level": its value at a record; "total": the sum over all rounds so far, with compensated summation
        label, unit: for plots and reports; None for the name
        unprotected: with privacy=, let it read more than published models (theta, deployed, round). The guarantee of
            such a run is void, and names the metric

    A level that reads only theta, deployed and round has a value at round 0, others are NaN there; a total is 0.
    """

    function: Callable[[Any], Any]
    kind: str = eqx.field(static=True, default="level")
    label: str | None = eqx.field(static=True, default=None)
    unit: str | None = eqx.field(static=True, default=None)
    unprotected: bool = eqx.field(static=True, default=False)

    def __check_init__(self) -> None:
        if not callable(self.function):
            raise ValueError(f"Metric: function must be called with a view of the round; got {self.function!r}.")
        if not is_one_of(self.kind, "level", "total"):
            raise ValueError(f'Metric: kind must be "level" or "total"; got {self.kind!r}.')
        for name in ("label", "unit"):
            if not isinstance(getattr(self, name), (str, type(None))):
                raise ValueError(f"Metric: {name} must be text; got {getattr(self, name)!r}.")
        check_flags("Metric", unprotected=self.unprotected)


@dataclasses.dataclass(frozen=True)
class Record:
    """What `pf.run` records.

    Attributes:
        every: rounds between records
        theta: "all" keeps the model of every record, "last" only the final one
        risks: number of points in the run at which risks are measured (True for 20, False for none)
        consensus: how far clients' models are apart after a round
        clients: quantities of each client at each record, [repeats, records, N], NaN for absent clients: "loss" (mean
            loss of its batches), "update_norm", "weight", "steps", a count such as "samples", or what participation
            remembers about each, present or not, such as "left" of `pf.participation.Retention`
        cohorts: who took part, with what weight and how many steps; needs every=1
        metrics: {name: Metric}, or a function of the view for a level
        stable, optimal: points to record distances to; by default closed forms, if the population has them
        limit: a repeat counts as diverged when |theta| exceeds limit * (1 + |start|)
    """

    every: int = 1
    theta: str = "all"
    risks: bool | int = True
    consensus: bool = True
    clients: tuple[str, ...] = ()
    cohorts: bool = False
    metrics: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    stable: Any = None
    optimal: Any = None
    limit: float = 1e8

    def __post_init__(self) -> None:
        check_counts(every=self.every)
        check_flags("Record", consensus=self.consensus, cohorts=self.cohorts)
        if not is_one_of(self.theta, "all", "last"):
            raise ValueError(f'theta must be "all" or "last" (every=n thins the rest); got {self.theta!r}.')
        risks, limit = self.risks, self.limit
        if not isinstance(risks, bool) and not (isinstance(risks, int) and risks >= 0):
            raise ValueError(f"risks must be True, False or a whole number of points; got {risks!r}.")
        if not isinstance(limit, (int, float, np.number)) or not (np.isfinite(limit) and limit > 0):
            raise ValueError(f"limit must be a positive number; got {limit!r}.")
        listed = isinstance(self.clients, (list, tuple, set, frozenset))
        if not listed or not all(isinstance(name, str) for name in self.clients):
            raise ValueError(f'clients must be a list of names, such as ("loss",); got {self.clients!r}.')
        if self.cohorts and self.every > 1:
            raise ValueError(f"cohorts=True: every round has its own cohort, so every must be 1; got {self.every}.")
        if not isinstance(self.metrics, Mapping):
            raise ValueError(f"metrics must map names to pf.Metric; got {self.metrics!r}.")
        object.__setattr__(self, "clients", tuple(dict.fromkeys(self.clients)))
        object.__setattr__(self, "metrics", {name: _metric(name, one) for name, one in self.metrics.items()})

    @property
    def points(self) -> int:
        """The number of points in the run at which risks are measured."""
        return RISK_POINTS * self.risks if isinstance(self.risks, bool) else self.risks

    @property
    def asks_losses(self) -> bool:
        return "loss" in self.clients

    def looks_at(self) -> tuple[str, ...]:
        """Records that read more than published models, in words: with privacy= they void the guarantee."""
        found = [f"metric {name!r} may read uploads" for name, metric in self.metrics.items() if metric.unprotected]
        found += [f"{name!r} of each client is recorded" for name in self.clients]
        return (*found, *(["who took part is recorded"] if self.cohorts else []))


def _metric(name: object, metric: object) -> Metric:
    if not isinstance(name, str) or not name.isidentifier():
        raise ValueError(f"metrics: a name must be a word such as 'gap'; got {name!r}.")
    if isinstance(metric, Metric):
        return metric
    if not callable(metric):
        raise ValueError(f"metrics: {name!r} must be a pf.Metric, or a function of the view; got {metric!r}.")
    return Metric(metric)
