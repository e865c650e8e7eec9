"""How often intervals of causal designs hold the truth: `python tests/audit/cause_worlds.py [RUNS [WORLD ...]]`.

Each world makes logs whose truth is known, and all four designs are asked. A cell is the share of answers whose nominal
95% interval held the truth and, in brackets, the share of logs in which the design refused; "-" where it always did.
A star marks an assumption that is broken in a way that the columns given cannot show, or seldom do: there the share is
low, and is told.
"""

import dataclasses
import sys
from collections.abc import Callable

import numpy as np

from performative.audit.causes.pick import cause_of
from performative.audit.causes.table import Table
from performative.audit.causes.words import DESIGNS

RUNS = 1000


@dataclasses.dataclass(frozen=True)
class World:
    """make(rng) -> (table, truth by design); `unseen`: designs whose assumption is broken without a trace."""

    make: Callable[[np.random.Generator], tuple[Table, dict[str, float]]]
    unseen: tuple[str, ...] = ()
    answers: tuple[str, ...] = ()


def sigmoid(v):
    return 1 / (1 + np.exp(-v))


def drifting(rng, periods, scale):
    return np.cumsum(rng.normal(size=periods)) * scale


def people(rng, n, hidden=0.0):
    """Two features, a score made of them, and an outcome without decision that bends in both."""
    x = rng.normal(size=(n, 2))
    u = rng.normal(size=n)
    score = x[:, 0] + 0.5 * x[:, 1] + 0.3 * rng.normal(size=n)
    y = 1 + x[:, 0] + 0.4 * x[:, 1] ** 2 - 0.5 * x[:, 0] * x[:, 1] + hidden * u + rng.normal(size=n)
    return x, u, score, y


def randomized(rng, n=600, drift=0.0, heavy=False, growing=False):
    """A share of rows is explored; the rest follow the threshold. Exploration may grow while outcomes drift."""
    x, _, score, y = people(rng, n)
    t = np.sort(rng.integers(0, 6, n))
    y = y + drifting(rng, 6, drift)[t] + drift * t
    chance = 0.1 + 0.12 * t if growing else np.full(n, 0.5)
    explored = rng.random(n) < 0.6
    e = np.where(explored, chance, (score >= 0).astype(float))
    D = (rng.random(n) < e).astype(float)
    tau = 0.5 + 0.5 * x[:, 0]
    noise = rng.standard_t(3, n) if heavy else 0.0
    table = Table(y + D * tau + noise, D, score, 0.0, None, explored, t, None, None, x, ("a", "b"))
    # Of the strata drawn: what is asked is the mean over people, 0.5.
    return table, dict.fromkeys(DESIGNS, 0.5)


def drawn_clients(rng, clients=12):
    """Whole clients were drawn for decision 1."""
    client = np.repeat(np.arange(clients), 40)
    D = rng.permutation(clients)[client] < clients // 2
    y = rng.normal(size=clients)[client] + rng.normal(size=len(client)) + 0.7 * D
    n = len(client)
    return Table(y, D.astype(float), randomized=np.ones(n, bool), client=client), {"randomized": 0.7}


def at_threshold(rng, n=1500, drift=0.0, sorting=0.0, bend=True):
    """Decisions by a threshold. Sorting: people just below push themselves above, the eager ones first."""
    x = rng.normal(size=(n, 2))
    score = 0.8 * x[:, 0] + 0.6 * rng.normal(size=n)
    eager = rng.normal(size=n)
    if sorting:
        moved = (score < 0) & (score > -sorting) & (eager > 0)
        score = np.where(moved, -score, score)
    t = rng.integers(0, 6, n)
    y = (np.sin(2 * score) + 0.8 * score**2 if bend else score) + 0.5 * rng.normal(size=n) * (1 + 0.5 * (score > 0))
    y = y + (0.8 * eager if sorting else 0.0) + drifting(rng, 6, drift)[t]
    D = (score >= 0).astype(float)
    tau = 0.6 + 0.3 * score
    return Table(y + D * tau, D, score, 0.0, deployment=t, features=x[:, 1:], names=("b",)), {"threshold": 0.6}


def policies(rng, n=1500, logged=False, hidden=0.0, drift=0.0, misses=False):
    """Decisions at random, more often for some. Hidden: a cause of both that no column holds, but the chances know."""
    x, u, _, y = people(rng, n, hidden)
    t = np.sort(rng.integers(0, 4, n))
    y = y + drifting(rng, 4, drift)[t] + drift * t
    e = sigmoid(0.5 * x[:, 0] - 0.4 * x[:, 1] + 0.8 * hidden * u + 0.3 * drift * (t - 1.5))
    D = (rng.random(n) < e).astype(float)
    told = np.clip(0.7 * e, 0.01, 0.99) if misses else e
    tau = 0.5 + 0.3 * x[:, 1]
    table = Table(
        y + D * tau, D, propensity=told if logged else None, deployment=t, features=x, names=("a", "b"),
    )  # fmt: skip
    return table, {"overlap": 0.5}


def changes(rng, clients=10, treated=5, periods=8, trend=0.0, shock=0.0, controls=True, staggered=True):
    """Clients change their model, some later; all share a random walk, each has noise of its own that lasts."""
    n = 15
    client = np.repeat(np.arange(clients), periods * n)
    time = np.tile(np.repeat(np.arange(periods), n), clients)
    change = np.full(clients, periods)
    change[:treated] = 4 + (np.arange(treated) % 2 if staggered else 0)
    if not controls:
        change[treated:] = 5
    own = np.zeros((clients, periods))
    own[:, 0] = 0.3 / np.sqrt(0.75) * rng.normal(size=clients)
    for k in range(1, periods):
        own[:, k] = 0.5 * own[:, k - 1] + 0.3 * rng.normal(size=clients)
    after = (np.arange(periods) >= change[:, None]).astype(float)
    own += rng.normal(size=(clients, 1)) + drifting(rng, periods, 0.5)
    own += trend * (change < periods)[:, None] * np.arange(periods) + shock * after
    tau = 0.8 + 0.2 * rng.normal(size=(clients, 1))
    y = (own + tau * after)[client, time] + rng.normal(size=len(client))
    model = after.astype(int)[client, time]
    return Table(y, client=client, time=time, deployment=model), {"breaks": 0.8}


WORLDS = {
    "randomized share": World(randomized, answers=("randomized",)),
    "randomized share, heavy tails": World(lambda r: randomized(r, heavy=True), answers=("randomized",)),
    "randomized share, drift, share grows": World(
        lambda r: randomized(r, n=1500, drift=0.5, growing=True), answers=("randomized",)
    ),
    "randomized clients": World(drawn_clients, answers=("randomized",)),
    "threshold, bending outcome": World(at_threshold, answers=("threshold",)),
    "threshold, drift": World(lambda r: at_threshold(r, drift=0.5), answers=("threshold",)),
    "threshold, people sort themselves": World(lambda r: at_threshold(r, sorting=0.25)),
    "policies, known causes": World(policies, answers=("overlap",)),
    "policies, known causes, drift": World(lambda r: policies(r, drift=0.5), answers=("overlap",)),
    "policies, hidden cause, chances logged": World(
        lambda r: policies(r, logged=True, hidden=1.0), answers=("overlap",)
    ),
    "policies, hidden cause": World(lambda r: policies(r, hidden=1.0), ("overlap",)),
    "policies, chances logged wrongly": World(lambda r: policies(r, logged=True, misses=True)),
    "breaks, controls, drift": World(changes, answers=("breaks",)),
    "breaks, 2 of 7 clients": World(lambda r: changes(r, 7, 2), answers=("breaks",)),
    "breaks, trends differ": World(lambda r: changes(r, trend=0.8)),
    "breaks, trends differ a little": World(lambda r: changes(r, trend=0.2), ("breaks",)),
    "breaks, all clients change": World(lambda r: changes(r, controls=False)),
    "breaks, a shock at the same time": World(lambda r: changes(r, shock=0.8), ("breaks",)),
}


@dataclasses.dataclass(frozen=True)
class Cell:
    """held: share of answers that held the truth, in percent; refused: share of logs without an answer."""

    held: float
    refused: float
    answers: int

    def __str__(self) -> str:
        return "-" if not self.answers else f"{self.held:.1f} ({self.refused:.0f})"


def coverage(world: World, runs: int = RUNS, seed: int = 0) -> dict[str, Cell]:
    """By design."""
    held: dict[str, list[bool]] = {name: [] for name in DESIGNS}
    for run in range(runs):
        table, truth = world.make(np.random.default_rng([seed, run]))
        for name in DESIGNS:
            found = cause_of(table, "outcome", name)
            if found.identified:
                low, high = found.interval
                held[name].append(low <= truth[name] <= high)
    return {
        name: Cell(100 * float(np.mean(of)) if of else np.nan, 100 * (1 - len(of) / runs), len(of))
        for name, of in held.items()
    }


def line(name: str, world: World, cells: dict[str, Cell]) -> str:
    return f"{name:40s}" + "".join(
        f"{str(cells[design]) + ('*' if design in world.unseen else ''):>16s}" for design in DESIGNS
    )


if __name__ == "__main__":
    print(f"{'95% intervals: coverage (declined)':40s}" + "".join(f"{design:>16s}" for design in DESIGNS))
    for name in sys.argv[2:] or WORLDS:
        print(
            line(name, WORLDS[name], coverage(WORLDS[name], int(sys.argv[1]) if len(sys.argv) > 1 else RUNS)),
            flush=True,
        )
