"""Theorem 3.5 and the assumptions on the quadratic: points are roots, and constants are derivatives."""

import itertools
import math
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from scipy.optimize import brentq
from scipy.stats import wasserstein_distance

import performative as pf
from performative.papers.outcome import Outcome, over
from performative.papers.runs import power
from performative.theory import ClippedQuadratic, bias_bound


def lower_bound(
    p: float, a: float, b: float, beta: float, clip: float, betas: list[float], beyond: float, box: float, start: float,
    step: float, rounds: int,
) -> Outcome:  # fmt: skip
    """Theorem 3.5: roots of the mean gradient, clipped and unclipped, against the formulas."""
    q = ClippedQuadratic(p, a, b, beta)

    def pull(theta: Any, at: float = beta, c: float = math.inf) -> Any:
        u = (1 - a * at) * theta
        return p * np.clip(u + a * b, -c, c) + (1 - p) * np.clip(u, -c, c)

    def root(at: float = beta, c: float = math.inf) -> float:
        return float(brentq(pull, -1e3, 1e3, args=(at, c), xtol=1e-14))

    theta = start  # clipping the mean gradient changes only its length
    for _ in range(rounds):
        theta -= step * float(np.clip(pull(theta), -clip, clip))

    def tilt(at: float, many: float, h: float = 1e-4) -> float:
        """|slope| of the performative risk: the few react by beta, the many by `many`."""
        few, rest = (theta + a * (value - by * theta)
                     for theta in [np.asarray([at + h, at - h])] for value, by in ((b, beta), (0.0, many)))  # fmt: skip
        return float(abs(np.diff((p * few**2 + (1 - p) * rest**2) / 2)[0]) / (2 * h))

    apart = -p * a * b / (1 - p * a * beta)
    biases = np.asarray([(root(at, clip) - root(at)) ** 2 for at in betas])
    numbers = {
        "stable_root": root(),
        "stable_printed": -p * a / q.mu_tilde,
        "stable_corrected": q.stable,
        "clipped_root": root(c=clip),
        "clipped_printed": -p * clip / ((1 - p) * q.mu_tilde),
        "roots": float(np.sum(np.diff(np.sign(pull(np.linspace(-50, 50, 100_001), c=clip))) != 0)),
        "stable_distance": abs(root()),
        "radius_printed": q.radius(clip, printed=True),
        "radius_corrected": q.radius(clip),
        "power_of_the_bias": power(1 - a * np.asarray(betas), biases),
        "bias_beyond": (root(beyond, clip) - root(beyond)) ** 2,
        "bias_beyond_exact": (p * (a * b - clip / (1 - p)) / (1 - a * beyond)) ** 2,
        "deterministic_end": theta,
        "slope_of_the_risk": tilt(root(), beta),
        "slope_elsewhere": tilt(apart, 0.0),
        "unclipped_root": root(c=q.assumptions(box, start).G),
        **_assumptions(q, box),
    }
    bound = [bias_bound(ClippedQuadratic(p, a, b, at).assumptions(box, start), clip, printed=True) for at in betas]
    lines = {"exact": biases, r"$8 C_1 / \tilde\mu^2$": bound}
    return Outcome(numbers, {"bias": over(betas, lines)})


def _assumptions(q: ClippedQuadratic, box: float) -> dict[str, float]:
    """Assumptions 3.1 to 3.3 of the library's own problem, by derivatives of its loss and distances of its samples."""
    problem = pf.cases.quadratic(q.beta, q.p, q.a, q.b, 100, box=box)
    theta, z = jnp.asarray([-box, 0.5, box]), jnp.asarray([0.0, q.b, -1.0])
    slope = jax.grad(problem.loss)
    within = jax.vmap(jax.grad(slope))(theta, z), jax.vmap(jax.grad(slope, argnums=1))(theta, z)
    every: Any = problem.population  # a Database
    people = eqx.tree_at(lambda table: table.z, every, jnp.asarray(every.z[0]))

    def people_under(at: float) -> np.ndarray:
        return np.asarray(jax.vmap(lambda row: people.sample(row, None, jnp.asarray(at)))(jnp.arange(100)), np.float64)

    worlds = {at: people_under(at) for at in (-box, 0.0, box)}
    apart = [
        wasserstein_distance(one, other) / abs(u - v)
        for (u, one), (v, other) in itertools.combinations(worlds.items(), 2)
    ]
    largest = max(float(np.abs(jax.vmap(slope, (None, 0))(jnp.asarray(at), jnp.asarray(one))).max())
                  for at, one in worlds.items())  # fmt: skip
    return {
        "curvature": float(within[0].min()),
        "slope_in_z": float(jnp.abs(within[1]).max()),
        "a": q.a,
        "beta": q.beta,
        "sensitivity": max(apart),
        "largest_gradient": largest,
        "G": q.assumptions(box, 0.0).G,
    }
