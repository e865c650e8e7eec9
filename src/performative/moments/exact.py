"""`pf.moments`: exact means and covariances of a run."""

import warnings
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.flatten_util import ravel_pytree
from jaxtyping import Array

from performative._base.arguments import checked
from performative._base.checks import check_counts
from performative._base.messages import PerformativeWarning
from performative.algorithm import Algorithm
from performative.moments.limits import Limits, limits
from performative.moments.machine import Machine, build
from performative.moments.outcome import Moments, Radii, Stationary
from performative.moments.recursion import AbstractRound, Law
from performative.problem import Problem
from performative.solve import optimal_point, stable_point
from performative.types import Theta

# Numbers of rounds' maps that are held at once.
_NUMBERS = 1 << 24


@checked
def moments(problem: Problem, algorithm: Algorithm, rounds: int, theta: Theta = None, *, full: bool = False) -> Moments:
    """Mean and covariance of the model after every round, exactly and without a simulation.

    A round is the engine's own: on problems whose gradients are linear in model and data it is, given who takes part,
    an affine map with random coefficients, and first and second moments close.

        x' = (A + noise) x + b + noise,      E x x^T -> E[A x x^T A^T] + ...

    Random are samples, cohorts, numbers of local steps and what channels draw; memories of clients and server and the
    worlds of `Sluggish` people are part of x. A part that is not affine, or does not say how likely its draws are, is
    refused by name.

    Args:
        theta: the start, None for zeros
        full: keep mean and covariance of all that is random, memories and worlds too
    """
    check_counts(rounds=rounds)
    with jax.enable_x64(True):
        machine, start, _ = build(problem, algorithm, theta, rounds)
        laws, last = follow_laws(machine, rounds)
        machine.check_around(laws)
        found = limits(last, machine.begin())
        points = _points(problem, algorithm, start)
        return _outcome(machine, laws, found, points, start, rounds, full)


def follow_laws(machine: Machine, rounds: int) -> tuple[Law, AbstractRound]:
    """The law after each round, [rounds + 1, ...]; and the maps of the last rounds that the machine knows, a period."""
    law, found = machine.begin(), []
    block = max(1, min(rounds, _NUMBERS // machine.numbers()))
    for first in range(0, rounds, block):
        maps = _maps(machine, jnp.arange(first, first + block, dtype=jnp.int32))
        laws = _scan(maps, law)
        found.append(jax.tree.map(lambda leaf, left=rounds - first: np.asarray(leaf[:left]), laws))
        law = jax.tree.map(lambda leaf: leaf[-1], laws)
    begin = jax.tree.map(lambda leaf: np.asarray(leaf)[None], machine.begin())
    return jax.tree.map(lambda *leaves: np.concatenate(leaves), begin, *found), last_maps(machine, block)


def last_maps(machine: Machine, block: int = 1) -> AbstractRound:
    """The maps of the last period that the machine knows; worked out in blocks of so many rounds."""
    block = max(block, machine.period)
    maps = _maps(machine, jnp.arange(machine.rounds - block, machine.rounds, dtype=jnp.int32))
    return jax.tree.map(lambda leaf: leaf[-machine.period :], maps)


@eqx.filter_jit
def _maps(machine: Machine, rounds: Array) -> AbstractRound:
    return jax.vmap(machine.round)(jnp.clip(rounds, 0, machine.rounds - 1))


@jax.jit
def _scan(maps: AbstractRound, law: Law) -> Law:
    def once(law: Law, one: AbstractRound) -> tuple[Law, Law]:
        after = one.advance(law)
        return after, after

    return jax.lax.scan(once, law, maps)[1]


def _points(problem: Problem, algorithm: Algorithm, start: Theta) -> dict[str, Any]:
    """The stable and the optimal point, None where it is not one point that stays and that everyone shares."""
    found: dict[str, Any] = {"stable": None, "optimal": None}
    if problem.population.reads_time or not algorithm.sharing.is_one:
        return found
    for name, solve in (("stable", stable_point), ("optimal", optimal_point)):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", PerformativeWarning)
            try:
                found[name] = solve(problem, start=start)
            except ValueError:  # there is none, or none that can be found: no distances to it
                continue
    return found


def _outcome(
    machine: Machine, laws: Law, found: Limits, points: dict[str, Any], start: Theta, rounds: int, full: bool
) -> Moments:
    d = machine.layout.model
    mean, covariance = np.asarray(laws.mean), np.asarray(laws.covariance)
    shared = machine.layout.join(*machine.start, machine.first).theta
    shaped = ravel_pytree(shared)[1]
    inside = slice(1, 1 + d)

    def errors(mean: np.ndarray, covariance: np.ndarray) -> dict[str, Any]:
        known = {name: ravel_pytree(point)[0] for name, point in points.items() if point is not None}
        spread = np.trace(covariance[..., inside, inside], axis1=-2, axis2=-1)
        gaps = {name: np.sum((mean[..., inside] - np.asarray(at)) ** 2, axis=-1) for name, at in known.items()}
        return {f"mse_{name}": gaps[name] + spread if name in gaps else None for name in points}

    stationary = None
    if found.law is not None:
        mu, S = np.asarray(found.law.mean), np.asarray(found.law.covariance)
        numbers = {name: None if value is None else float(value) for name, value in errors(mu, S).items()}
        at = jax.tree.map(np.asarray, shaped(jnp.asarray(mu[inside])))
        stationary = Stationary(at, S[inside, inside], **numbers)
    return Moments(
        jax.tree.map(np.asarray, jax.vmap(shaped)(laws.mean[:, inside])), covariance[:, inside, inside],
        **errors(mean, covariance), **points, spectral_radius=Radii(found.mean_radius, found.second_radius),
        stationary=stationary, steps=machine.setup.algorithm.steps,
        state=(mean[:, 1:], covariance[:, 1:, 1:]) if full else None, names=machine.names() if full else (),
    )  # fmt: skip
