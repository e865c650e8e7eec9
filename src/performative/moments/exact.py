"""`pf.moments`: exact means and covariances of a run."""

import dataclasses
import warnings
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.flatten_util import ravel_pytree

from performative._base.arguments import checked
from performative._base.checks import check_counts
from performative._base.messages import PerformativeWarning
from performative._engine.clock import Clock
from performative.algorithm import Algorithm
from performative.moments.building import build
from performative.moments.decay import falls_as_one_over, rate_limit
from performative.moments.limits import Limits, limits
from performative.moments.machine import Machine
from performative.moments.outcome import Moments, Radii, Stationary
from performative.moments.playing import follow_laws
from performative.problem import Problem
from performative.solve import optimal_point, stable_point
from performative.types import Theta


@checked
def moments(
    problem: Problem,
    algorithm: Algorithm,
    rounds: int,
    theta: Theta = None,
    *,
    clock: Clock | None = None,
    full: bool = False,
) -> Moments:
    """Compute the mean and covariance of the model after every round, exactly and without simulation.

    The rounds are the engine's own: on problems whose gradients are linear in model and data, a round is, given who
    participates, an affine map with random coefficients, so first and second moments close.

        x' = (A + noise) x + b + noise,      E x x^T -> E[A x x^T A^T] + ...

    Samples, cohorts, numbers of local steps and channel draws are random; memories of clients and server and the worlds
    of `Sluggish` people are part of x. A part that is not affine, or does not declare the distribution of its draws,
    raises an error that names it. Asynchronous clients are supported if all are training, with exponential latencies
    and no compute time: `clock=pf.Clock(compute=0)`.

    Args:
        theta: the start, None for zeros
        clock: as in `pf.run`; time matters if people drift or clients are asynchronous
        full: keep mean and covariance of everything random, including memories and worlds
    """
    check_counts(rounds=rounds)
    with jax.enable_x64(True):
        machine, start, _ = build(problem, algorithm, theta, rounds, clock)
        laws, turn = follow_laws(machine, rounds)
        machine.check_around(*laws)
        found = limits(turn, np.asarray(machine.begin().mean))
        points = known_points(problem, algorithm, start)
        decay = None if points["stable"] is None else _decay(machine, np.asarray(ravel_pytree(points["stable"])[0]))
        return dataclasses.replace(_outcome(machine, laws, found, points, full), decay=decay)


def _decay(machine: Machine, stable: np.ndarray) -> Callable[[], float] | None:
    """A function that computes the limit of t E|theta - theta_PS|^2, if steps decay as 1 / t."""
    if not falls_as_one_over(machine.setup.algorithm.eta):
        return None

    def work_out() -> float:
        with jax.enable_x64(True):
            return rate_limit(machine, stable)

    return work_out


def known_points(problem: Problem, algorithm: Algorithm, start: Theta) -> dict[str, Any]:
    """The stable and the optimal point, None unless it is one fixed point shared by all clients."""
    found: dict[str, Any] = {"stable": None, "optimal": None}
    if problem.population.reads_time or not algorithm.sharing.is_one:
        return found
    for name, solve in (("stable", stable_point), ("optimal", optimal_point)):
        found[name] = getattr(problem.population, f"{name}_point")(problem.loss, problem.client_weights)
        if found[name] is not None:
            continue
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", PerformativeWarning)
            try:
                found[name] = solve(problem, start=start)
            except ValueError:  # there is none, or none was found: no distances to it
                continue
    return found


def _outcome(
    machine: Machine,
    laws: tuple[np.ndarray, np.ndarray],
    found: Limits,
    points: dict[str, Any],
    full: bool,
) -> Moments:
    d = machine.layout.model
    mean, covariance = laws
    shared = machine.layout.join(*machine.start, machine.first).theta
    shaped = ravel_pytree(shared)[1]
    inside = slice(1, 1 + d)

    def errors(mean: np.ndarray, covariance: np.ndarray) -> dict[str, Any]:
        known = {name: ravel_pytree(point)[0] for name, point in points.items() if point is not None}
        spread = np.trace(covariance[..., inside, inside], axis1=-2, axis2=-1)
        gaps = {name: np.sum((mean[..., inside] - np.asarray(at)) ** 2, axis=-1) for name, at in known.items()}
        return {f"mse_{name}": gaps[name] + spread if name in gaps else None for name in points}

    stationary = None
    if found.law is not None and not machine.setup.problem.population.reads_time:
        mu, S = np.asarray(found.law.mean), np.asarray(found.law.covariance)
        numbers = {name: None if value is None else float(value) for name, value in errors(mu, S).items()}
        at = jax.tree.map(np.asarray, shaped(jnp.asarray(mu[inside])))
        stationary = Stationary(at, S[inside, inside], **numbers)
    return Moments(
        jax.tree.map(np.asarray, jax.vmap(shaped)(jnp.asarray(mean[:, inside]))), covariance[:, inside, inside],
        **errors(mean, covariance), **points, spectral_radius=Radii(found.mean_radius, found.second_radius),
        stationary=stationary, steps=machine.setup.algorithm.steps,
        state=(mean[:, 1:], covariance[:, 1:, 1:]) if full else None, names=machine.names() if full else (),
    )  # fmt: skip
