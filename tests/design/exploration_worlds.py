"""Is the width that a design promises the one that comes? `python tests/design/exploration_worlds.py [RUNS]`.

People of each world meet the models of its design, their rows are summarized as a log, and `audit.response` gives the
interval of the slope. Beside the mean width stands the share of intervals that hold the true slope and, where a
reaction of a size was asked for, the share that exclude zero.
"""

import dataclasses
import functools
import sys
from collections.abc import Callable
from typing import Any

import jax
import numpy as np

import performative as pf
from performative._base.client_axis import slice_client
from performative.audit import ClientLog, response
from performative.certify.client_data import samples_under
from performative.design import conditions_of
from performative.solve.landscape import survey

RUNS = 300


@dataclasses.dataclass(frozen=True)
class World:
    """people(rng, client, models [T, d]) -> rows [T, n, q]; `slope` is the true one of the column asked about."""

    made: Callable[[], Any]
    people: Callable[[np.random.Generator, int, np.ndarray, int], np.ndarray]
    slope: float
    options: dict[str, Any]


def normal(slope, scale, drift=0.0, over=0.0, level=1.0):
    """Rows about level + slope * theta, with a trend, and a shock of its own for each deployment."""

    def people(rng, client, models, n):
        T = len(models)
        means = level + slope * models[:, :1] + drift * np.arange(T)[:, None]
        means = means + over * rng.normal(size=(T, 1))
        return (means + scale[client] * rng.normal(size=(T, n)))[..., None]

    return people


def gaussian(sensitivity, scale, weights=None):
    population = pf.populations.Gaussian(np.ones(len(scale)), np.full(len(scale), sensitivity), np.array(scale))
    return pf.Problem(pf.losses.squared, population, weights=weights)


def two_parameters(rng, client, models, n):
    B = np.array([[0.5, 0.0], [0.2, 0.5]])
    return (models @ B.T)[:, None] + rng.normal(size=(len(models), n, 2))


def clicks(rng, client, models, n):
    """A share of ones: the noise is that of coins."""
    p = 0.3 + 0.2 * models[:, :1]
    return (rng.random((len(models), n)) < p).astype(float)[..., None]


def strategic():
    rng = np.random.default_rng(0)
    x = rng.normal(size=(1, 400, 2))
    y = (x @ np.array([1.0, -1.0]) + 0.5 * rng.normal(size=(1, 400)) > 0).astype(float)
    return pf.Problem(pf.losses.logistic(0.2), pf.populations.Strategic(x, y, 0.5))


@functools.cache
def drawing(n):
    """Rows of the strategic population under a model, as a compiled function of key and model."""
    with jax.enable_x64(True):
        land, _ = survey(strategic(), np.zeros(2))
        people = slice_client(land.problem.population, 0)
        return jax.jit(jax.vmap(lambda key, model: samples_under(land, people, land.model(model), key, n)))


def applicants(rng, client, models, n):
    """People of a table who move against a score: rows are drawn anew under each model."""
    with jax.enable_x64(True):
        return np.asarray(drawing(n)(jax.random.split(jax.random.key(int(rng.integers(2**31))), len(models)), models))


WORLDS = {
    "one client, width 0.2": World(
        lambda: gaussian(0.4, [1.0]), normal(0.4, [1.0]), 0.4, {"width": 0.2, "rows": 100}
    ),
    "one client, 8 deployments": World(
        lambda: gaussian(0.4, [1.0]), normal(0.4, [1.0]), 0.4, {"width": 0.3, "rows": 50, "deployments": 8}
    ),
    "one client, effect 0.3, power 0.9": World(
        lambda: gaussian(0.3, [1.0]), normal(0.3, [1.0]), 0.3, {"effect": 0.3, "rows": 100}
    ),
    "one client, trend": World(
        lambda: gaussian(0.4, [1.0]), normal(0.4, [1.0], drift=0.3), 0.4, {"width": 0.2, "rows": 100}
    ),
    "one client, no drift allowed for": World(
        lambda: gaussian(0.4, [1.0]), normal(0.4, [1.0]), 0.4, {"width": 0.2, "rows": 100, "drift": "none"}
    ),
    "three clients, one slope": World(
        lambda: gaussian(0.4, [1.0, 2.0, 0.5], [0.5, 0.3, 0.2]), normal(0.4, [1.0, 2.0, 0.5]), 0.4,
        {"width": 0.1, "rows": [100, 50, 200]},
    ),
    "three clients, steps of 0.2 at most": World(
        lambda: gaussian(0.4, [1.0, 2.0, 0.5], [0.5, 0.3, 0.2]), normal(0.4, [1.0, 2.0, 0.5]), 0.4,
        {"effect": 0.4, "rows": 30, "size": 0.2},
    ),
    "two parameters, two columns": World(
        lambda: pf.Conditions(spread=np.ones((1, 2)), rows=np.array([80]), theta=np.zeros(2)), two_parameters, 0.5,
        {"width": 0.25, "deployments": 24, "column": 0},
    ),
    "shocks between deployments": World(
        lambda: pf.Conditions(np.array([[1.0]]), np.array([100]), np.zeros(1), over_dispersion=np.array([[2.0]])),
        normal(0.4, [1.0], over=0.1), 0.4, {"width": 0.3},
    ),
    "applicants who answer a score": World(
        strategic, applicants, -0.5, {"width": 0.4, "rows": 200, "deployments": 16, "column": 0},
    ),
    "clicks": World(
        lambda: pf.Conditions(np.array([[np.sqrt(0.21)]]), np.array([500]), np.zeros(1)), clicks, 0.2,
        {"effect": 0.2, "power": 0.8},
    ),
}  # fmt: skip


@dataclasses.dataclass(frozen=True)
class Line:
    """What was promised, and what came."""

    promised: float
    came: float
    held: float
    power: float | None
    seen: float

    def __str__(self) -> str:
        power = "" if self.power is None else f"{100 * self.power:.1f}"
        return f"{self.promised:10.4f}{self.came:10.4f}{100 * self.held:8.1f}{power:>10s}{100 * self.seen:8.1f}"


def summarize(models: np.ndarray, rows: np.ndarray, **names: Any) -> ClientLog:
    """[T, n, q] rows as a log."""
    means = rows.mean(axis=1)
    left = rows - means[:, None]
    cov = np.einsum("tnj,tnk->tjk", left, left) / (rows.shape[1] - 1)
    T = len(models)
    return ClientLog(models, np.arange(T), np.full(T, rows.shape[1]), means, cov, **names)


def carry_out(world: World, runs: int = RUNS) -> Line:
    """The design, its deployments, and the intervals that come of them."""
    design = pf.design(world.made(), **world.options)
    found = world.made()
    if isinstance(found, pf.Problem):
        found = conditions_of(found, world.options.get("rows", 100))
    column = found.columns.index(design.column)
    who = [found.clients.index(name) for name in design.clients]
    precision = found.information(column)[who]
    widths, held, seen = [], [], []
    for run in range(runs):
        rng = np.random.default_rng([7, run])
        logs = [
            summarize(design.models, world.people(rng, i, design.models, int(found.rows[i])), name=found.clients[i])
            for i in who
        ]
        answer = response(
            pooled(logs, precision), drift=design.drift, level=design.level, method="least squares", draws=2
        )
        low, high = answer.lower[column, 0], answer.upper[column, 0]
        widths.append(high - low)
        held.append(low <= world.slope <= high)
        seen.append(low > 0 or high < 0)
    power = design.power if design.asked == "effect" else None
    return Line(design.width, float(np.mean(widths)), float(np.mean(held)), power, float(np.mean(seen)))


def pooled(logs: list[ClientLog], precision: np.ndarray) -> ClientLog:
    """One slope for all: means weighted by their precision."""
    from performative.audit.client_report import pool

    return logs[0] if len(logs) == 1 else pool(logs, list(precision))


def line(name: str, world: World, runs: int = RUNS) -> str:
    return f"{name:38s}{carry_out(world, runs)}"


if __name__ == "__main__":
    print(f"{'':38s}{'planned':>10s}{'achieved':>10s}{'cover %':>8s}{'power %':>10s}{'found %':>8s}")
    for name, world in WORLDS.items():
        print(line(name, world, int(sys.argv[1]) if len(sys.argv) > 1 else RUNS), flush=True)
