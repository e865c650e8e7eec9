"""Solve the demo's problem: a static learner, P-FedAvg, and the exact points."""

import dataclasses
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from performative import cases
from performative._base.client_axis import client_axes
from performative._engine import run
from performative._engine.prepare import on_device
from performative._engine.programs import cache_compilations
from performative._engine.risk import decoupled_risk
from performative.algorithm import Parts
from performative.batches import Fixed
from performative.cli.demonstration.outcome import Model, Outcome
from performative.history import History
from performative.participation import SchemeTwo
from performative.problem import Problem
from performative.recipes import fedavg, p_fedavg
from performative.record import Record
from performative.schedules import harmonic

_RETRAININGS = 8


def run_demo(quick: bool = False) -> Outcome:
    """Solve for ten banks: a static learner, P-FedAvg, and the exact stable and optimal points."""
    from performative.solve import optimal_point, repeated_risk_minimization, stable_point

    began = time.perf_counter()
    cache_compilations()
    rounds, seeds = (60, 4) if quick else (300, 8)
    problem = cases.credit()
    with _step("solving for the exact stable and optimal points"):
        stable: Any = stable_point(problem, report=True)
        optimal: Any = optimal_point(problem, start=stable.theta, report=True)
        retrained = repeated_risk_minimization(problem, np.zeros_like(stable.theta), _RETRAININGS)
    parts: Parts = {"local_steps": 5, "batch": Fixed(32), "participation": SchemeTwo(5)}
    histories = {
        recipe.__name__: run(
            problem,
            recipe(harmonic(20.0, 100.0), **parts),
            rounds,
            repeats=seeds,
            record=Record(stable=stable.theta, optimal=optimal.theta),
        )
        for recipe in (fedavg, p_fedavg)
    }
    with _step("measuring"):
        models, scores, flipped = _measure_all(problem, histories, stable.theta, optimal.theta)
    distance = {name: history["distance_to_stable"].mean(axis=0) for name, history in histories.items()}
    numbers = {
        "decisions_changed": flipped,
        "feature_shift": _mean_shift(problem, np.asarray(histories["fedavg"].final)),
        "distance_start": float(distance["p_fedavg"][0]),
        "distance_end": float(distance["p_fedavg"][-1]),
        "static_distance": float(distance["fedavg"][-1]),
        "retraining": np.linalg.norm(np.asarray(retrained) - stable.theta, axis=1).tolist(),
        "contraction": float(stable.contraction),
        "stable_residual": float(stable.residual),
        "optimal_residual": float(optimal.residual),
        "clients": problem.clients,
        "rounds": rounds,
        "seeds": seeds,
        "models": [dataclasses.asdict(model) for model in models],
        "seconds": round(time.perf_counter() - began, 2),
    }
    return Outcome(models, scores, histories, numbers)


def _measure_all(
    problem: Problem, histories: dict[str, History], stable: np.ndarray, optimal: np.ndarray
) -> tuple[list[Model], tuple[np.ndarray, np.ndarray], float]:
    """The four models, the static model's scores before and after, and the share of decisions that change."""
    on = on_device(problem, jnp.float32)
    static, learned = (np.asarray(histories[name].final) for name in ("fedavg", "p_fedavg"))
    thetas = np.concatenate([static, learned, stable[None], optimal[None]]).astype(np.float32)
    # The static learner saw the data before anything was deployed, the others the data they induce.
    learned_from = np.concatenate([np.zeros_like(static), thetas[len(static) :]])
    expected = jax.tree.map(np.asarray, _measure(on, jnp.asarray(thetas), jnp.asarray(learned_from)))
    deployed = jax.tree.map(np.asarray, _measure(on, jnp.asarray(thetas), jnp.asarray(thetas)))
    n = len(static)
    rows = (
        (slice(0, n), "static (FedAvg)", "trained once, on the data before deployment"),
        (slice(n, 2 * n), "retrained (P-FedAvg)", "keeps training on the data as they shift"),
        (slice(2 * n, 2 * n + 1), "stable point", "exact: retraining on its own data returns the same model"),
        (slice(2 * n + 1, None), "optimal point", "exact: the model with the lowest risk after deployment"),
    )
    models = []
    for which, name, how in rows:
        means = {
            f"{when}_{what}": float(np.mean(found[what][which]))
            for when, found in (("expected", expected), ("deployed", deployed))
            for what in ("risk", "accuracy")
        }
        each = deployed["accuracy"][which]
        span = (float(each.min()), float(each.max())) if len(each) > 1 else None
        models.append(Model(name, how, accuracy_range=span, **means))
    weight = np.asarray(shares(on))
    before, after = expected["scores"][:n], deployed["scores"][:n]
    flipped = float(np.mean(np.sum(((before > 0) != (after > 0)) * weight, axis=(1, 2))))
    return models, (before[0][weight > 0], after[0][weight > 0]), flipped


def _mean_shift(problem: Problem, static: np.ndarray) -> float:
    """How far applicants shift a feature they can change, in standard deviations: p_i s_i |theta|."""
    population: Any = problem.population
    size = np.abs(static[:, list(population.features)]).mean()
    return float(size * np.sum(problem.client_weights * population.strength))


def shares(problem: Problem) -> Float[Array, "N m"]:
    """The weight of each row of the clients' tables: p_i / rows_i, 0 for padding."""
    population: Any = problem.population
    rows = jnp.broadcast_to(jnp.asarray(population.rows), (problem.clients,)).astype(jnp.float32)[:, None]
    real = jnp.arange(population.capacity, dtype=jnp.float32) < rows
    return jnp.where(real, jnp.asarray(problem.client_weights, jnp.float32)[:, None] / rows, 0.0)


@eqx.filter_jit
def _measure(problem: Problem, thetas: Float[Array, "M d"], deployed: Float[Array, "M d"]) -> dict[str, Array]:
    """Risk, accuracy and each applicant's log-odds: thetas[i] on the data under deployed[i]."""
    share = shares(problem)
    weights = jnp.asarray(problem.client_weights, jnp.float32)
    arrays, rest = eqx.partition(problem.population, eqx.is_array)
    capacity: Any = problem.population.capacity

    def one(theta: Array, deployed: Array) -> dict[str, Array]:
        def client(mine: Any) -> tuple[Array, Array]:
            population = eqx.combine(mine, rest)
            x, y = jax.vmap(lambda row: population.sample(row, None, deployed))(jnp.arange(capacity))
            return x @ theta, y

        scores, y = jax.vmap(client, in_axes=(client_axes(arrays),))(arrays)
        return {
            "risk": decoupled_risk(problem, weights, theta, deployed),
            "accuracy": jnp.sum(jnp.where((scores > 0) == (y > 0), share, 0.0)),
            "scores": scores,
        }

    return jax.vmap(one)(thetas, deployed)


@contextmanager
def _step(label: str) -> Iterator[None]:
    """Show a status line on a terminal."""
    from rich.console import Console

    console = Console(stderr=True)
    if not console.is_terminal:
        yield
        return
    with console.status(label):
        yield
