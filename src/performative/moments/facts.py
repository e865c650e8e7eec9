"""What parts declare about their randomness: participation, steps, samples; errors name the part if unknown."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.flatten_util import ravel_pytree
from jaxtyping import Array, Float, Int, PyTree

from performative._base.messages import coded
from performative._engine.setup import Setup
from performative._engine.steps import client_slice
from performative.algorithm import Algorithm
from performative.draws import Everyone, WithoutReplacement, WithReplacement
from performative.facts import Uncertified, chain, declared, is_ours, said_bound
from performative.moments.layout import Layout
from performative.participation import AbstractParticipation
from performative.populations import AbstractPopulation
from performative.populations.nodes import Polynomial
from performative.problem import Problem
from performative.types import Scene, Theta, is_concrete

# Limit on the numbers that clients, or the server for them, remember: their covariance is the square of that.
MOST_MEMORY = 5_000
# Limit on the numbers in the maps of a round: two gigabytes.
MOST_NUMBERS = 1 << 28
# A sample may enter a step squared, and so its covariance to the fourth power.
DEGREE = 5
# To check that this suffices: a rule that is exact to a higher degree.
_HIGHER = 9


class Chances(eqx.Module):
    """Moments of f = (z, a) in each of P rounds, the period; and of the number of local steps.

    Args:
        mean: E f, [P, 2, N]; own: E f_i f_i^T, [P, 2, 2, N]; covariance: [P, 2, 2, N, N], None if f is deterministic
        steps: the step counts that occur, [T], None if all do E; work: their probabilities, [N, T]
    """

    mean: Float[Array, "P 2 N"]
    own: Float[Array, "P 2 2 N"]
    covariance: Float[Array, "P 2 2 N N"] | None
    steps: Int[Array, " T"] | None
    work: Float[Array, "N T"]


def check_covered(problem: Problem, algorithm: Algorithm, exact: bool) -> None:
    """Raise, naming the part, for what is known not to be affine or does not declare its distribution."""
    population, estimator = problem.population, algorithm.estimator
    if problem.domain is not None and exact:
        name = type(problem.domain).__name__
        raise ValueError(_told(f"domain={name}: a projection is not linear; remove the domain, or use pf.run"))
    if population.reads_models:
        raise ValueError(_told(f"population={type(population).__name__} reacts to all models at once; use pf.run"))
    if any(part.infinite_variance for part in chain(population, AbstractPopulation)):
        raise ValueError(_told(f"samples of population={type(population).__name__} have no finite variance"))
    if said_bound(estimator) is not None:
        raise ValueError(
            _told(f"estimator={type(estimator).__name__} clips gradients, which is not linear; use pf.run")
        )
    model = jnp.zeros(population.model_shape() or ())
    if estimator.draw(jax.random.key(0), 1, model) is not None:
        raise ValueError(_told(f"estimator={type(estimator).__name__} draws its own noise; use pf.run"))


def check_size(layout: Layout, size: int) -> None:
    """Raise if covariances would not fit in memory."""
    if layout.width * layout.clients > MOST_MEMORY:
        raise ValueError(_told(
            f"{layout.clients:,} clients that remember {layout.width:,} numbers each need a covariance of "
            f"{8e-9 * size**2:,.1f} GB; at most {MOST_MEMORY:,} remembered numbers are supported"
        ))  # fmt: skip


def check_numbers(count: int) -> None:
    """Raise if maps would not fit in memory."""
    if count > MOST_NUMBERS:
        raise ValueError(_told(
            f"the map of a round takes {8e-9 * count:,.1f} GB of derivatives; at most {8e-9 * MOST_NUMBERS:,.1f} GB "
            "are supported. Use a model with fewer parameters, clients with fewer rows, or pf.run"
        ))  # fmt: skip


def _told(text: str) -> str:
    return coded("not-affine", f"moments: {text}.")


def no_law(participation: AbstractParticipation) -> str:
    """The message for a participation whose cohorts have no known distribution."""
    name = type(participation).__name__
    if participation.keeps_time:
        return _told(
            f"participation={name} is supported if all clients are training and who comes next does not depend on who "
            "came before: latency=pf.participation.Exponential(mean) and clock=pf.Clock(compute=0); otherwise "
            "use pf.run"
        )
    return _told(
        f"participation={name} has no cohort distribution that is independent of the clients' data and of past "
        "rounds; use pf.run"
    )


def read_chances(setup: Setup) -> Chances:
    """Read what the participation's own class declares."""
    participation, weights = setup.algorithm.participation, np.asarray(setup.weights, np.float64)
    clients, E = len(weights), setup.algorithm.local_steps
    period = declared(participation, "repeats_after", clients)
    laws = [declared(participation, "cohort_moments", weights, r) for r in range(period or 0)]
    work = declared(participation, "step_law", clients, E)
    if not laws or any(law is None for law in laws) or work is None:
        raise ValueError(no_law(participation))
    # Traced probabilities are being differentiated: their values cannot be inspected.
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
    name, n = type(batch).__name__, batch.largest(population)
    if population.rows is None:
        if declared(batch, "sampling", None) is None:
            raise ValueError(_told(f"batch={name} does not declare how it draws; use pf.Fixed(n), or pf.run"))
        return np.full(clients, 1.0 / n)
    laws = [declared(batch, "sampling", int(m)) for m in np.broadcast_to(np.asarray(population.rows), (clients,))]
    if any(not isinstance(law, WithReplacement) for law in laws):
        nodes = _nodes(setup, theta, jnp.zeros((), jnp.int32), Polynomial(DEGREE))[1]
        if len(nodes) != population.capacity:
            raise ValueError(_told(
                f"batch={name} draws distinct rows, and population={type(population).__name__} draws more than a row; "
                "use pf.Fixed(n), or pf.run"
            ))  # fmt: skip
    return np.asarray([_spread(name, law) for law in laws])


def _spread(name: str, law: object) -> float:
    if isinstance(law, WithReplacement):
        return 1.0 / law.n
    if isinstance(law, WithoutReplacement):
        return (law.rows - law.n) / (law.n * max(law.rows - 1, 1))
    if isinstance(law, Everyone):
        return 0.0
    raise ValueError(_told(
        f"batch={name}: the rows of a step depend on other steps, or their number is random; use pf.Fixed(n), or pf.run"
    ))  # fmt: skip


def check_rules(setup: Setup, theta: Theta) -> None:
    """Raise if a third-party population's rule for polynomials is not exact for its samples.

    Means and squares of gradients by rules of two degrees: they agree if samples are quadratic in normal variables.
    """
    population = setup.problem.population
    strangers = [type(part).__name__ for part in chain(population, AbstractPopulation) if not is_ours(type(part))]
    if not strangers:
        return

    def squares(degree: int) -> Array:
        def of_client(client: Array) -> Array:
            nodes, weight = _nodes(setup, theta, client, Polynomial(degree))
            here = client_slice(population, client)
            world = here.init(Scene(theta, setup.problem.loss, jnp.zeros(())))

            def gradient(noise: PyTree) -> Array:
                return ravel_pytree(jax.grad(setup.problem.loss)(theta, here.sample(noise, world, theta)))[0]

            g = jax.vmap(gradient)(nodes)
            g = jnp.concatenate([jnp.ones((len(g), 1)), g], axis=1)
            return jnp.einsum("j,ja,jb->ab", weight, g, g)

        return jax.lax.map(of_client, jnp.arange(setup.weights.shape[0], dtype=jnp.int32))

    try:
        low, high = (np.asarray(squares(degree)) for degree in (DEGREE, _HIGHER))
    except Uncertified as reason:
        raise ValueError(_told(f"population={strangers[0]}: {reason}; define a `quadrature`, or use pf.run")) from None
    if np.abs(low - high).max() > 1e-9 * (1.0 + np.abs(high).max()):
        raise ValueError(_told(
            f"population={strangers[0]}: its samples are not quadratic in the underlying normal variables, so "
            "their variance is not known exactly; define an exact `quadrature` for it, or use pf.run"
        ))  # fmt: skip


def _nodes(setup: Setup, theta: Theta, client: Array, degree: Polynomial) -> tuple[PyTree, Array]:
    """A client's samples as nodes, at the start."""
    population = client_slice(setup.problem.population, client)
    world = population.init(Scene(theta, setup.problem.loss, jnp.zeros(())))
    return population.quadrature_within(world, theta, degree)
