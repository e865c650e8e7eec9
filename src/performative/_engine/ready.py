"""Prepare a problem and an algorithm: the first step of `run`, `estimate_memory` and a live federation."""

import dataclasses
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh
from jaxtyping import Array

from performative._base.checks import check_finite, check_like
from performative._base.describe import describe
from performative._engine.cautions import caution_before
from performative._engine.clock import Clock
from performative._engine.compute import Compute
from performative._engine.metrics import DistanceToMoving, distances
from performative._engine.prepare import check_fit, on_device, place_start, read_theta
from performative._engine.programs import cache_compilations, same_function
from performative._engine.setup import Setup, on_mesh, prepare
from performative._engine.sharding import everywhere
from performative.algorithm import Algorithm
from performative.populations import AbstractPopulation
from performative.problem import Problem
from performative.record import Record
from performative.types import Theta


def make_ready(
    problem: Problem, algorithm: Algorithm, theta: Theta, clock: Clock, record: Record, precision: Any,
    mesh: Mesh | None = None,
) -> tuple[Setup, Any, Any]:  # fmt: skip
    """On the device: the setup with all records, the start, and the stable point (None if unknown)."""
    cache_compilations()
    problem = with_known_loss(problem)
    ready = prepare(problem, algorithm, clock, record)
    caution_before(problem, algorithm)
    setup = on_device(ready, precision) if mesh is None else on_mesh(ready, precision, mesh)
    start = read_theta(problem, theta, precision)
    check_fit(setup.problem, start)
    algorithm.estimator.check(problem, start, algorithm.batch)
    start = place_start(setup.problem, start, given=theta is not None)
    algorithm.sharing.check(start)
    points = everywhere(on_device(find_points(problem, start, record, algorithm), precision), mesh)
    stable = None if isinstance(points["stable"], DistanceToMoving) else points["stable"]
    if stable is not None:
        algorithm.estimator.check_point(problem, stable)
    return with_distances(setup, points), start, stable


def with_known_loss(problem: Any) -> Any:
    """Reuse an equal loss that was seen before; anything but a problem is refused later."""
    return dataclasses.replace(problem, loss=same_function(problem.loss)) if isinstance(problem, Problem) else problem


def with_distances(setup: Setup, points: dict[str, Any]) -> Setup:
    """The setup that records distances to these points."""
    return dataclasses.replace(setup, metrics=setup.metrics | distances(points))


def about(algorithm: Algorithm, seed: int | None, setup: Setup, seconds: float, compute: Compute) -> dict[str, Any]:
    """The metadata of every history."""
    return {
        "algorithm": algorithm.name,
        "config": describe(algorithm),
        "seed": seed,
        "dtype": str(setup.weights.dtype),
        "seconds": round(seconds, 4),
        "compute": str(compute),
    }


def find_points(problem: Problem, start: Theta, record: Record, algorithm: Algorithm) -> dict[str, Any]:
    """Points to measure distances to: those given, else closed forms if the population has them.

    Closed forms assume one model for everybody.
    """
    stable, optimal, one = record.stable, record.optimal, algorithm.sharing.is_one
    start = algorithm.sharing.start(start)
    if stable is None and one:
        stable = _closed_form(problem, "stable_point")
    if optimal is None and one:
        optimal = _closed_form(problem, "optimal_point")
    for name, point in (("stable", stable), ("optimal", optimal)):
        if isinstance(point, str):
            raise ValueError(
                f"{name} must be a point shaped like theta, such as pf.{name}_point(problem); got {point!r}."
            )
        if point is None or isinstance(point, DistanceToMoving):
            continue
        for leaf in jax.tree.leaves(point):
            check_finite("run", **{name: leaf})
        check_like(name, point, start)
    return {"stable": stable, "optimal": optimal}


def _closed_form(problem: Problem, which: str) -> Any:
    """A closed form; None if it lies outside the domain, since training then converges elsewhere.

    If the data change with time the point moves; it can be tracked if it can be traced and there is no domain.
    """
    population = problem.population
    if population.reads_time:

        def at(population: AbstractPopulation, weights: Array, time: Array) -> Any:
            return getattr(population.at(time), which)(problem.loss, weights)

        try:
            shape = jax.ShapeDtypeStruct((), jnp.result_type(float))
            found = eqx.filter_eval_shape(at, population, problem.client_weights, shape)
        except jax.errors.JAXTypeError:  # computed on the host
            return None
        return None if found is None or problem.domain is not None else DistanceToMoving(which)
    point = getattr(population, which)(problem.loss, problem.client_weights)
    if point is None or problem.domain is None:
        return point
    return point if np.allclose(np.asarray(problem.domain.project(jnp.asarray(point))), point, rtol=1e-6) else None
