"""How often intervals hold the truth: `python tests/inference/coverage_cases.py [RUNS [CASE ...]]` prints the table."""

import dataclasses
import re
import sys
import warnings
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import performative as pf
from performative.solve.landscape import survey

RUNS, AT_ONCE = 10_000, 2500
EXPECTED_NOTES = r"in 0\.\d+% of repeats the run is too short|the interval ignores the bias of each fit on its rows"
M, EPS = np.linspace(0.0, 2.0, 5), np.array([-0.4, 0.0, 0.2, 0.5, 0.9])
P = np.array([0.1, 0.1, 0.2, 0.2, 0.4])


@dataclasses.dataclass(frozen=True)
class Case:
    """Runs of one problem, and how intervals are made of them.

    `models` makes sequences of models from a key instead: retraining. `knows`: problem and algorithm are given.
    """

    problem: pf.Problem
    algorithm: Any = None
    rounds: int = 400
    every: int = 1
    theta: Any = 0.0
    knows: bool = True
    method: str | None = None
    models: Callable[[Any], np.ndarray] | None = None

    def intervals(self, runs: int, seed: int) -> pf.Confidence:
        """Of so many runs."""
        if self.models is not None:
            with warnings.catch_warnings():
                warnings.filterwarnings("ignore", message=".*fitted to few rows")
                return pf.confidence(self.models(jax.random.split(jax.random.key(seed), runs)), problem=self.problem)
        record = pf.Record(risks=False, every=self.every, consensus=False)
        history = pf.run(
            self.problem, self.algorithm, self.rounds, self.theta, seed, runs, record=record, dtype="float64"
        )
        given = (self.problem, self.algorithm) if self.knows else (self.problem,)
        return pf.confidence(history, 0.95, *given, method=self.method)


def gaussian(eps, mean=1.0, scale=1.0, weights=None, around=lambda inner: inner):
    population = around(pf.populations.Gaussian(mean=mean, sensitivity=eps, scale=scale))
    return pf.Problem(pf.losses.squared, population, weights=weights)


def several(weights=P):
    return gaussian(EPS, M, np.linspace(0.5, 1.5, 5), weights)


def ridge():
    cov = np.array([[1.0, 0.3], [0.3, 1.0]])
    population = pf.populations.Regression(
        np.array([[0.0, 0.5], [0.5, 0.0]]), np.stack([cov, cov]), np.array([[1.0, -1.0], [2.0, 0.5]]), 0.6, 0.5
    )
    return pf.Problem(pf.losses.ridge(0.5), population, weights=[0.3, 0.7])


def strategic():
    rng = np.random.default_rng(0)
    x = rng.normal(size=(3, 40, 2))
    y = (x @ np.array([1.0, -1.0]) + 0.5 * rng.normal(size=(3, 40)) > 0).astype(float)
    return pf.Problem(pf.losses.logistic(0.2), pf.populations.Strategic(x, y, 0.5))


def retrain_ridge(rows=500, deployments=200):
    """Exact fits to a finite sample of the people under the model before: no gradient steps."""
    problem = pf.Problem(
        pf.losses.ridge(0.1),
        pf.populations.Regression(np.zeros((1, 2)), np.eye(2)[None], np.array([[1.0, -0.5]]), 0.5, 0.7),
    )
    inner = jax.tree.map(lambda leaf: jnp.asarray(leaf[0] if np.ndim(leaf) else leaf), problem.population)

    def fit(theta, key):
        x, y = jax.vmap(lambda u: inner.sample(u, None, theta))(inner.draw(key, (rows,), theta))
        theta = jnp.linalg.solve(x.T @ x / rows + 0.1 * jnp.eye(2, dtype=x.dtype), x.T @ y / rows)
        return theta, theta

    @jax.jit
    @jax.vmap
    def path(key):
        start = jnp.zeros(2)
        return jnp.concatenate([start[None], jax.lax.scan(fit, start, jax.random.split(key, deployments))[1]])

    return problem, path


def retraining(rows, deployments):
    """theta <- the mean of a sample of the people under theta, which one step of length 1 is."""
    return {"algorithm": pf.p_fedavg(1.0, batch=pf.Fixed(rows)), "rounds": deployments}


RIDGE, FITS = retrain_ridge()
CASES = {
    "no reaction": Case(gaussian(0.0), pf.p_fedavg(0.1), theta=3.0),
    "reaction 0.5, short run": Case(gaussian(0.5), pf.p_fedavg(0.1), rounds=100, theta=3.0),
    "reaction 0.5, batch means": Case(gaussian(0.5), pf.p_fedavg(0.2), rounds=8000, every=4, knows=False),
    "reaction -0.5, batch means": Case(gaussian(-0.5), pf.p_fedavg(0.2), rounds=3000, every=2, knows=False),
    "three coordinates": Case(
        gaussian(np.array([[0.5, 0.0, -0.5]]), np.array([[1.0, 2.0, 3.0]]), 1.0), pf.p_fedavg(0.1), theta=np.zeros(3)
    ),
    "Scheme I, unequal weights": Case(several(), pf.p_fedavg(0.1, participation=pf.SchemeOne(2))),
    "Scheme II, unequal weights": Case(several(), pf.p_fedavg(0.1, participation=pf.SchemeTwo(2))),
    "Scheme II, batch means": Case(
        several(), pf.p_fedavg(0.2, participation=pf.SchemeTwo(2), batch=pf.Fixed(4)), rounds=8000, every=4, knows=False
    ),
    "5 local steps, falling rate": Case(
        several(), pf.p_fedavg(pf.schedules.harmonic(20.0, 200.0), local_steps=5, participation=pf.SchemeOne(2))
    ),
    "5 local steps, deployed by round": Case(several(), pf.p_fedavg(0.1, local_steps=5, deploy="round")),
    "pricing": Case(
        pf.Problem(pf.losses.negative_revenue, pf.populations.Pricing(np.array([6.0, 7.0]), np.array([1.0, 3.0]), 1.0)),
        pf.p_fedavg(0.1, participation=pf.SchemeTwo(1)),
        theta=1.0,
    ),
    "ridge regression": Case(ridge(), pf.p_fedavg(0.05, batch=pf.Fixed(4)), rounds=1500, every=3, theta=np.zeros(2)),
    "strategic logistic": Case(strategic(), pf.p_fedavg(0.2, batch=pf.Fixed(4)), 1500, 3, theta=np.zeros(2)),
    "slow people, batch means": Case(
        gaussian(0.5, around=lambda inner: pf.populations.Sluggish(inner, 0.2)),
        pf.p_fedavg(0.2), rounds=8000, every=4, knows=False,
    ),
    "slow people": Case(gaussian(0.5, around=lambda inner: pf.populations.Sluggish(inner, 0.2)), pf.p_fedavg(0.2)),
    "batches of 10": Case(several(), pf.p_fedavg(0.3, batch=pf.Fixed(10), participation=pf.SchemeOne(3)), rounds=200),
    "retraining on 20 rows": Case(
        gaussian(0.6), **retraining(20, 250), knows=False, method="autoregression", theta=2.0
    ),
    "retraining, ridge on 500 rows": Case(RIDGE, models=FITS),
}  # fmt: skip


def coverage(case: Case, runs: int = RUNS) -> dict[str, list[float]]:
    """Shares of runs, in percent: of each coordinate of the stable point, of the risk there, of the gap."""
    stable = pf.stable_point(case.problem)
    truth = true_risks(case.problem, stable)
    held: dict[str, list[np.ndarray]] = {"stable point": [], "risk": [], "gap": []}
    for seed in range(-(-runs // AT_ONCE)):
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", message=r".*\[interval-in-doubt\]")
            found = case.intervals(min(AT_ONCE, runs - seed * AT_ONCE), seed)
        # A few runs of thousands look more correlated than they are; fits to few rows have a bias, which 500 rows hide.
        assert all(re.match(EXPECTED_NOTES, note) for note in found.notes), found.notes
        held["stable point"].append(found.covers(stable).reshape(found.repeats, -1))
        for name in ("risk", "gap"):
            if getattr(found, name) is not None:
                held[name].append(getattr(found, name).covers(truth[name])[:, None])
    return {name: list(100 * np.concatenate(rows).mean(axis=0)) for name, rows in held.items() if rows}


def true_risks(problem: pf.Problem, stable: Any) -> dict[str, float]:
    with jax.enable_x64(True):
        land, _ = survey(problem, stable)
        here, best = land.risks(np.stack([land.flat(stable), land.flat(pf.optimal_point(problem))]))
    return {"risk": float(here), "gap": float(here - best)}


def line(name: str, found: dict[str, list[float]]) -> str:
    cells = [", ".join(f"{share:.1f}" for share in found.get(what, ())) for what in ("stable point", "risk", "gap")]
    return f"{name:34s} {cells[0]:20s} {cells[1]:6s} {cells[2]}"


if __name__ == "__main__":
    wanted = sys.argv[2:] or CASES
    print(f"{'':34s} {'stable point':20s} {'risk':6s} gap")
    for name in wanted:
        print(line(name, coverage(CASES[name], int(sys.argv[1]) if len(sys.argv) > 1 else RUNS)), flush=True)
