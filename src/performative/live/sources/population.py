"""Real people as a population: `Live` publishes a model and waits for rows, `Observed` holds those rows."""

import dataclasses
import math
import time
from typing import Any

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Int

from performative._base.checks import check_counts
from performative.families import AbstractFamily, ClassLocation, Location
from performative.live.sources.deployment import Deployed, check_version
from performative.live.sources.publish import Publisher
from performative.live.sources.readers import Reader
from performative.live.sources.rows import NEWER, OLDER, Rows
from performative.live.telling import Sayable
from performative.populations import AbstractPopulation
from performative.populations.base import AbstractRows
from performative.populations.rows import as_counts, as_labels, check_tables, labels_in
from performative.problem import Problem
from performative.types import Counts, Noise, Numbers, Sample, Theta, as_whole, per_client


class TooFewRows(Sayable, RuntimeError):
    """Not enough rows arrived under a version. `rows` contains those that did, and what was skipped."""

    sentence = "too few rows have arrived under this version"

    def __init__(self, rows: Rows, minimum: int, waited: float):
        self.rows, self.minimum, self.waited = rows, minimum, waited
        others = sum(rows.skipped.get(reason, 0) for reason in (OLDER, NEWER))
        reasons = "; ".join(f"{count} with {reason}" for reason, count in rows.skipped.items())
        super().__init__(
            f"{len(rows)} rows of version {rows.version} arrived within {waited:g} s, and minimum={minimum} are "
            f"needed; there were {others} rows of other versions. From {rows.source or 'the reader'}"
            f"{f', skipped: {reasons}' if reasons else ', nothing was skipped'}. "
            "Wait longer (patience=), require fewer rows (minimum=), or make sure that the service scores with "
            f"version {rows.version} and writes it into each row."
        )


@dataclasses.dataclass(frozen=True)
class Live:
    """One client's people: a model is published to them, and their rows come back.

    Attributes:
        publisher: `Callback`, `ModelFile`, `Endpoint`, or anything with `publish(deployed)`
        reader: `Folder`, `Query`, `Function`, or anything with `read(version) -> Rows`
        minimum: minimum number of rows to learn from
        most: keep only this many of the last rows, None for all
        patience: seconds to wait for `minimum` rows
        poll: seconds between reads
    """

    publisher: Publisher
    reader: Reader
    minimum: int = 1
    most: int | None = None
    patience: float = 0.0
    poll: float = 0.5

    def __post_init__(self) -> None:
        check_counts(**{"Live: minimum": self.minimum})
        if self.most is not None:
            check_counts(**{"Live: most": self.most})
            if self.most < self.minimum:
                raise ValueError(f"Live: most={self.most} rows must be at least minimum={self.minimum}.")
        for name, positive in (("patience", False), ("poll", True)):
            value = getattr(self, name)
            if not 0 <= value < math.inf or (positive and value == 0):
                rule = "above 0" if positive else ">= 0"
                raise ValueError(f"Live: {name} must be a finite number of seconds {rule}; got {value!r}.")

    def deploy(self, deployed: Deployed) -> None:
        """Publish the model; a no-op if it is already published."""
        self.publisher.publish(deployed)

    def sample(self, version: int) -> Rows:
        """The rows that arrived under exactly that version, as soon as there are `minimum` of them."""
        version, start = check_version(version), time.monotonic()
        while True:
            rows = self.reader.read(version)
            if rows.version != version:
                raise ValueError(
                    f"Live: {type(self.reader).__name__}.read({version}) returned rows of version {rows.version}; a "
                    "reader must return rows of the requested version."
                )
            if len(rows) >= self.minimum:
                return rows.newest(self.most)
            left = start + self.patience - time.monotonic()
            if left <= 0:
                raise TooFewRows(rows, self.minimum, self.patience)
            time.sleep(min(self.poll, left))


class Observed(AbstractRows[None]):
    """Rows that have already been observed: they do not depend on theta.

        Z = z_ij,      j ~ Unif([m_i])

    `x` [N, m, d] features, `y` [N, m] labels or None: samples are (x, y), or only x. Clients with fewer than m rows are
    padded, and `count` [N] is the number of real rows. `classes` means that labels are 0 .. classes - 1. How people
    react cannot be seen within one deployment: it takes past models (`Performative(window, term="score")`).
    """

    x: Numbers = per_client(table=True)
    y: Any = per_client(table=True, default=None, converter=lambda y: None if y is None else as_labels(y))
    count: Counts | None = per_client(default=None, converter=as_counts)
    classes: int | None = eqx.field(static=True, default=None, converter=as_whole)

    def __check_init__(self) -> None:
        if np.ndim(self.x) != 3 or 0 in np.shape(self.x):
            raise ValueError(f"Observed: x must be [clients, rows, features]; got shape {np.shape(self.x)}.")
        if self.y is not None and np.shape(self.y) != np.shape(self.x)[:2]:
            raise ValueError(
                f"Observed: y must be [clients, rows] = {np.shape(self.x)[:2]}, like x; got shape {np.shape(self.y)}."
            )
        check_tables("Observed", self.count, x=self.x, y=self.y)
        if self.classes is not None:
            check_counts(**{"Observed: classes": self.classes})
            whole, found = self.y is not None and jnp.issubdtype(self.y.dtype, jnp.integer), labels_in(self)
            if not whole or (found is not None and not np.all((found >= 0) & (found < self.classes))):
                raise ValueError(f"Observed: classes={self.classes} needs whole labels y from 0 to {self.classes - 1}.")
        _ = self.clients

    @property
    def capacity(self) -> int:
        return self.x.shape[-2]

    @property
    def smooth(self) -> bool:
        return False

    @property
    def group_count(self) -> int | None:
        return self.classes

    @property
    def family(self) -> AbstractFamily | None:
        if self.y is None:
            return Location()
        return None if self.classes is None else ClassLocation(self.classes)

    def model_shape(self) -> tuple[int, ...]:
        return (self.x.shape[-1],)

    def sample(self, noise: Noise, world: None, theta: Theta) -> Sample:
        return self.x[noise] if self.y is None else (self.x[noise], self.y[noise])

    def group(self, noise: Noise, world: None, theta: Theta) -> Int[Array, ""] | None:
        return None if self.classes is None else self.y[noise]


def people_of(source: Any, deployed: Deployed, problem: Problem) -> AbstractPopulation:
    """The people who respond to a deployed model, as a population of one client.

    A source may create them itself with `people(deployed, problem)`; one with only `deploy(deployed)` and
    `sample(version)`, such as `Live`, gets the model and is asked for the rows that arrived under it.
    """
    if hasattr(source, "people"):
        made: AbstractPopulation = source.people(deployed, problem)
        return made
    source.deploy(deployed)
    return observe(source.sample(deployed.version), classes=problem.population.group_count)


def deploy_to(source: Any, deployed: Deployed) -> None:
    """Publish a model to a source's people, if the source supports it."""
    if hasattr(source, "deploy"):
        source.deploy(deployed)


def observe(rows: Rows, capacity: int | None = None, classes: int | None = None) -> Observed:
    """One client's rows as a population of one, padded so that few compiled programs serve all sizes.

    Args:
        capacity: number of rows to allocate, rounded up to a power of two; None for the number of rows
        classes: labels are 0 .. classes - 1, kept as integers; None for arbitrary numeric labels
    """
    n = len(rows)
    capacity = n if capacity is None else capacity
    if n == 0:
        raise ValueError(f"observe: there are no rows of version {rows.version} to learn from.")
    if n > capacity:
        raise ValueError(f"observe: {n} rows do not fit into capacity={capacity}; raise it, or use Live(most=...).")
    room = 1 << (capacity - 1).bit_length()
    x = np.zeros((1, room, rows.x.shape[1]))
    x[0, :n] = rows.x
    y = None
    if rows.y is not None:
        y = np.zeros((1, room))
        y[0, :n] = rows.y
    if classes is not None:
        if y is None or np.any(y != np.floor(y)):
            raise ValueError(f"observe: classes={classes} needs labels that are whole numbers from 0 to {classes - 1}.")
        y = y.astype(np.int64)
    return Observed(x, y, [n], classes)
