"""Credit scores that borrowers react to: three schemes on a real table, with three strengths of reaction.

The data come through `pf.data` (PERFORMATIVE_DATA, the cache, or a download), which raises if none has them.
"""

import dataclasses
from collections.abc import Mapping
from typing import Any, NamedTuple

import equinox as eqx
import jax.numpy as jnp
import numpy as np

import performative as pf
from performative.batches import AbstractBatch
from performative.history import History
from performative.papers.outcome import Outcome, curves, mean
from performative.papers.p_fedavg.instance import SCHEMES, ratio, taking_part
from performative.papers.runs import distance, ends, given, sweep, word
from performative.types import number, whole


class FirstOf(AbstractBatch):
    """Use n of n_max independent samples: sizes differ only in a number, so one program serves them all."""

    n: Any = number()
    n_max: int = whole()

    def expected(self, population: Any) -> Any:
        return self.n

    def draw(self, key, standing_key, population, theta, steps, memory):
        counted = jnp.arange(self.n_max, dtype=jnp.int32) < jnp.asarray(self.n).astype(jnp.int32)
        return population.draw(key, (steps, self.n_max), theta), jnp.broadcast_to(counted, (steps, self.n_max))


class Whole(AbstractBatch):
    """All n rows of a client's table at every step, in order: `Uniform` would shuffle them needlessly."""

    n: int = whole()

    def expected(self, population: Any) -> float:
        return float(self.n)

    def draw(self, key, standing_key, population, theta, steps, memory):
        rows = jnp.broadcast_to(jnp.arange(self.n, dtype=jnp.int32), (steps, self.n))
        return population.draw(key, (steps, self.n), theta, rows), None


class Field(NamedTuple):
    """Quantities at one model theta, on the data it induces.

    Args:
        gradient: grad f, [d]; slope: the derivative of grad f(theta; theta), the reaction included, [d, d]
        noise: covariance of the mean over clients of one sample's gradient each, sum_i p_i^2 C_i; risk: f(theta; theta)
    """

    gradient: np.ndarray
    slope: np.ndarray
    noise: np.ndarray
    risk: float


def field(problem: pf.Problem, theta: np.ndarray, reaction: float = 1.0) -> Field:
    """Logistic loss, L2 penalty except on the intercept; x = x_bar - reaction eps_i theta on strategic columns."""
    population, loss = _parts(problem)
    moves, ridge = np.zeros(len(theta)), np.full(len(theta), float(loss.penalty))
    moves[list(population.features)] = 1.0
    ridge[loss.intercept] = 0.0
    gradient, slope = ridge * theta, np.diag(ridge)
    noise, risk = np.zeros_like(slope), 0.5 * float(ridge @ theta**2)
    rows = np.broadcast_to(np.asarray(population.rows), (problem.clients,))
    strength = reaction * np.asarray(population.strength, np.float64)
    for i, p in enumerate(np.asarray(problem.client_weights, np.float64)):
        x = np.asarray(population.x[i][: rows[i]], np.float64) - strength[i] * moves * theta
        y = np.asarray(population.y[i][: rows[i]], np.float64)
        score = x @ theta
        chance = 1 / (1 + np.exp(-score))
        each = (chance - y)[:, None] * x
        bend = x * (chance * (1 - chance))[:, None]
        gradient = gradient + p * each.mean(axis=0)
        slope = slope + p * (bend.T @ x) / len(y)
        slope = slope - p * strength[i] * (
            np.outer(bend.mean(axis=0), moves * theta) + np.diag(moves) * np.mean(chance - y)
        )
        noise = noise + p**2 * np.cov(each.T)
        risk += p * float(np.mean(np.logaddexp(0, score) - y * score))
    return Field(gradient, slope, noise, risk)


def solve(effect: str) -> tuple[pf.Problem, np.ndarray, np.ndarray]:
    """The problem, the minimizer on pre-reaction data, and the stable point, by Newton's method.

    Args:
        effect: "paper" (eps in [0.9, 1.1], penalty 1/n), "released" (ten times both), or "strong" (ours)
    """
    problem, _ = pf.cases.strategic_credit("p_fedavg", "strong" if effect == "strong" else "paper")
    if effect == "released":
        problem = eqx.tree_at(lambda p: p.loss.penalty, _reacting(problem, 10.0), 10 * _parts(problem)[1].penalty)
    points, theta = [], np.zeros(_parts(problem)[0].x.shape[2])
    for reaction in (0.0, 1.0):
        for _ in range(50):
            at = field(problem, theta, reaction)
            if np.linalg.norm(at.gradient) < 1e-12:
                break
            theta = theta - np.linalg.solve(at.slope, at.gradient)
        else:
            raise RuntimeError(f"credit, {effect}: Newton's method did not converge in 50 steps.")
        points.append(theta)
    return problem, points[0], points[1]


@dataclasses.dataclass(frozen=True)
class Runs:
    """P-FedAvg with eta_t = beta / (t + gamma), recorded every `every` rounds; risks at `points` points."""

    beta: float
    gamma: float
    local_steps: int
    k: int
    rounds: int
    every: int
    points: int
    repeats: int
    seed: int

    def simulate(
        self, problem: pf.Problem, start: np.ndarray, stable: np.ndarray, settings: Mapping[Any, Mapping[str, Any]],
        repeats: int | None = None,
    ) -> dict[Any, History]:  # fmt: skip
        """Run these settings; those that differ only in numbers share one program."""
        algorithm = pf.p_fedavg(pf.schedules.harmonic(self.beta, self.gamma), local_steps=self.local_steps)
        how: Any = {"stable": stable, "optimal": stable, "every": self.every, "risks": self.points, "dtype": None}
        return sweep(problem, algorithm, settings, self.rounds, start, self.seed, repeats or self.repeats, **how)

    def drawn(self, sizes: list[int]) -> dict[tuple[str, int], dict[str, Any]]:
        """All schemes with these batch sizes."""
        who, most = {name: taking_part(name, self.k) for name in SCHEMES}, max(sizes)
        return {(x, n): {"participation": who[x], "batch": FirstOf(n, most)} for x in SCHEMES for n in sizes}


@given(Runs)
def schemes(run: Runs, effects: list[str], batch: int) -> Outcome:
    """Figures 2c and 2d: from the static minimizer, with the printed, the released and a strong reaction.

    The static learner, for comparison, takes the same steps on data that do not react.
    """
    numbers: dict[str, Any] = {}
    data = {}
    for effect in effects:
        problem, static, stable = solve(effect)
        settings = {name: one for (name, _), one in run.drawn([batch]).items()}
        settings["static FedAvg"] = settings["full"] | {"problem": _reacting(problem, 0.0)}
        runs = run.simulate(problem, static, stable, settings)
        way, first = float(np.linalg.norm(stable - static)), field(problem, static).risk
        last = {name: distance(history)[:, -1] for name, history in runs.items()}
        numbers |= {f"gap_{effect}": way, f"gain_{effect}": first - field(problem, stable).risk}
        for name in SCHEMES:
            key = f"{word(name)}_{effect}"
            end, error = mean(last[name])
            numbers[f"left_{key}"] = end / way, error / way
            numbers[f"over_static_{key}"] = ratio(last[name], last["static FedAvg"])
            numbers[f"loss_change_{key}"] = mean([field(problem, end).risk - first for end in ends(runs[name])])
        numbers[f"one_over_full_{effect}"] = ratio(last["Scheme I"], last["full"])
        data[f"distance_{effect}"] = curves(runs, "distance_to_stable")
        data[f"loss_{effect}"] = curves({name: runs[name] for name in SCHEMES}, "performative_risk")
    return Outcome(numbers, data)


def _reacting(problem: pf.Problem, factor: float) -> pf.Problem:
    """The same people, reacting `factor` times as strongly."""
    return eqx.tree_at(lambda p: p.population.strength, problem, factor * np.asarray(_parts(problem)[0].strength))


def _parts(problem: pf.Problem) -> tuple[Any, Any]:
    """Population and loss, of the types that `pf.cases.strategic_credit` uses."""
    return problem.population, problem.loss
