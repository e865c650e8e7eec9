"""What parts say of their chances: who takes part, how many steps, how many samples; refused by name where unknown."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from performative._base.messages import coded
from performative._engine.setup import Setup
from performative.algorithm import Algorithm
from performative.draws import Everyone, WithoutReplacement, WithReplacement
from performative.facts import chain, declared
from performative.moments.layout import Layout
from performative.populations import AbstractPopulation
from performative.problem import Problem
from performative.types import Theta, is_concrete

# Numbers that clients, or the server for them, remember: their covariance is the square of that.
MOST_MEMORY = 5_000


class Chances(eqx.Module):
    """Moments of f = (z, a) in each of P rounds, after which they repeat; and of the number of local steps.

    Args:
        mean: E f, [P, 2, N]; own: E f_i f_i^T, [P, 2, 2, N]; covariance: [P, 2, 2, N, N], None where f is certain
        steps: the numbers of steps that occur, [T], None where all do E; work: their chances, [N, T]
    """

    mean: Float[Array, "P 2 N"]
    own: Float[Array, "P 2 2 N"]
    covariance: Float[Array, "P 2 2 N N"] | None
    steps: Int[Array, " T"] | None
    work: Float[Array, "N T"]


def check_covered(problem: Problem, algorithm: Algorithm) -> None:
    """Refuse by name what is known not to be affine, or whose chances nobody tells."""
    population, estimator = problem.population, algorithm.estimator
    if problem.domain is not None:
        raise ValueError(_told(f"the domain {type(problem.domain).__name__}: a projection is not linear; leave it out"))
    if population.reads_models:
        raise ValueError(_told(f"population={type(population).__name__} reacts to all models at once; use pf.run"))
    if any(part.infinite_variance for part in chain(population, AbstractPopulation)):
        raise ValueError(_told(f"samples of {type(population).__name__} have no variance"))
    model = jnp.zeros(population.model_shape() or ())
    if estimator.draw(jax.random.key(0), 1, model) is not None:
        raise ValueError(_told(f"estimator={type(estimator).__name__} draws noise of its own; use pf.run"))
    if declared(algorithm.channel, "quadrature", model) is None:
        name = type(algorithm.channel).__name__
        raise ValueError(
            _told(f"channel={name} is not linear in the update, or does not say what it draws; use pf.run")
        )


def check_size(layout: Layout, size: int) -> None:
    """Refuse covariances that would not fit."""
    if layout.width * layout.clients > MOST_MEMORY:
        raise ValueError(_told(
            f"{layout.clients:,} clients that remember {layout.width:,} numbers each are a covariance of "
            f"{8e-9 * size**2:,.1f} GB; {MOST_MEMORY:,} remembered numbers are the most"
        ))  # fmt: skip


def _told(text: str) -> str:
    return coded("not-affine", f"moments: {text}.")


def read_chances(setup: Setup) -> Chances:
    """From what the participation's own class declares."""
    participation, weights = setup.algorithm.participation, np.asarray(setup.weights, np.float64)
    name, clients, E = type(participation).__name__, len(weights), setup.algorithm.local_steps
    period = declared(participation, "repeats_after", clients)
    laws = [declared(participation, "cohort_moments", weights, r) for r in range(period or 0)]
    work = declared(participation, "step_law", clients, E)
    if not laws or any(law is None for law in laws) or work is None:
        raise ValueError(f"moments: participation={name} does not say how likely cohorts are, whatever clients hold.")
    # Chances that are traced are those of a law whose derivatives somebody wants: nothing can be looked at.
    known = is_concrete([law.both for law in laws])
    xp = np if known else jnp
    both = xp.stack([law.both for law in laws])
    covariance = xp.stack([law.covariance for law in laws])
    certain = known and float(np.max(np.abs(covariance))) <= 1e-14
    used = np.flatnonzero(work.any(axis=0))
    plain = len(used) == 1 and used[0] + 1 == setup.algorithm.steps
    return Chances(
        jnp.asarray(xp.stack([xp.stack([law.present, law.weight]) for law in laws])),
        jnp.asarray(xp.diagonal(both, axis1=3, axis2=4)),
        None if certain else jnp.asarray(covariance),
        None if plain else jnp.asarray(used + 1, jnp.int32),
        jnp.asarray(work[:, used]),
    )


def batch_spread(setup: Setup, theta: Theta) -> np.ndarray:
    """Variance of a batch's mean over that of one sample, [N]."""
    batch, population, clients = setup.algorithm.batch, setup.problem.population, setup.weights.shape[0]
    n = batch.largest(population)
    if population.rows is None:
        if declared(batch, "sampling", None) is None:
            raise ValueError(f"moments: batch={type(batch).__name__} does not say how it draws.")
        return np.full(clients, 1.0 / n)
    rows = np.broadcast_to(np.asarray(population.rows), (clients,))
    return np.asarray([_spread(type(batch).__name__, declared(batch, "sampling", int(m))) for m in rows])


def _spread(name: str, law: object) -> float:
    if isinstance(law, WithReplacement):
        return 1.0 / law.n
    if isinstance(law, WithoutReplacement):
        return (law.rows - law.n) / (law.n * max(law.rows - 1, 1))
    if isinstance(law, Everyone):
        return 0.0
    raise ValueError(f"moments: batch={name}: how many rows a step has, or which, depends on chance or on other steps.")
