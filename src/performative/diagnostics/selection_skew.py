"""How strongly a client selection scheme favors clients with a high loss."""

from collections.abc import Sequence

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from performative._base.arguments import checked
from performative._base.checks import check_counts
from performative._base.client_axis import map_clients, slice_client
from performative._engine.clock import Clock
from performative._engine.prepare import check_fit, on_device, read_theta
from performative._engine.risk import client_risks
from performative._engine.round import measure_losses
from performative._engine.setup import Setup, prepare
from performative.algorithm import Algorithm
from performative.facts import cites
from performative.participation import AbstractParticipation, Selection
from performative.problem import Problem
from performative.solve.landscape import survey
from performative.solve.minimize import minimize
from performative.solve.roots import escaped
from performative.types import ClientMemory, Scene, ServerMemory, State, Theta

__all__ = ["selection_skew"]

# Draws processed in parallel.
_TOGETHER = 256
# Regrets below this fraction of the losses are rounding errors: the client is at its optimum.
_ROUNDING = 1e-12


@cites("cho2022biased")
@checked
def selection_skew(
    problem: Problem,
    participation: AbstractParticipation,
    models: Sequence[Theta],
    optimum: Theta,
    draws: int = 1000,
    seed: int = 0,
    *,
    deployed: Theta | None = None,
) -> tuple[float, float]:
    """rho_bar and rho_tilde, the selection skew over the given models.

        rho(x, x') = E[sum_{i in S(x)} a_i (F_i(x') - F_i*)] / sum_i p_i (F_i(x') - F_i*)
        rho_bar = min over x, x' of rho(x, x'),      rho_tilde = max over x of rho(x, optimum)

    S(x) is the cohort selected at the model x, a_i its weights (1/m in the paper). An unbiased scheme has 1 and 1.
    A larger rho_bar makes training faster, a larger rho_tilde / rho_bar its limit more biased.

    Args:
        deployed: the model that the data stay under (a run with deploy="never"); None if they react: F_i(x) is then
            the loss of client i on the data that settle under x, and F_i* its minimum
        draws: cohorts drawn at each model, in rounds 0, 1, ...; for a cyclic scheme, use a multiple of its period

    The expectation is a mean over the draws, so the minimum and the maximum are biased outwards by about its error. The
    memory of the scheme is as before the first round. F_i* is the lowest value found by descent from the models. If all
    clients are at their optimum, rho is 1. Cho, Wang and Joshi, AISTATS 2022, Definition of the selection skew.
    """
    check_counts(draws=draws)
    if len(models) == 0:
        raise ValueError("selection_skew: models must contain at least one model.")
    with jax.enable_x64(True):
        algorithm = Algorithm(rate=0.0, participation=participation)
        setup = on_device(prepare(problem, algorithm, Clock()), jnp.float64)
        points = [read_theta(problem, model, jnp.float64, "models") for model in models]
        points.append(read_theta(problem, optimum, jnp.float64, "optimum"))
        under = None if deployed is None else read_theta(problem, deployed, jnp.float64, "deployed")
        check_fit(setup.problem, points[0])
        risks = np.stack([_risks(setup, x, x if under is None else under) for x in points])
        regrets = risks - _least(problem, points, under)
        keys = jax.random.split(jax.random.key(seed), draws)
        chosen = np.stack([_mean_weight(setup, x, x if under is None else under, keys) for x in points[:-1]])
    regrets = np.where(regrets < _ROUNDING * (1 + np.abs(risks)), 0.0, regrets)
    overall = regrets @ np.asarray(problem.client_weights)
    rho = np.where(overall > 0, (chosen @ regrets.T) / np.where(overall > 0, overall, 1), 1.0)
    return float(rho[:, :-1].min()), float(rho[:, -1].max())


@eqx.filter_jit
def _risks(setup: Setup, theta: Theta, deployed: Theta) -> Float[Array, " N"]:
    return client_risks(setup.problem, theta, deployed)


def _least(problem: Problem, points: list[Theta], deployed: Theta | None) -> np.ndarray:
    """F_i* of each client: the lowest value found by descent from the given models."""
    least = np.full(problem.clients, np.inf)
    for i in range(problem.clients):
        mine = slice_client(problem.population, slice(i, i + 1))
        land, _ = survey(Problem(problem.loss, mine, domain=problem.domain), points[0])
        view = land.performative() if deployed is None else land.decoupled(land.flat(deployed))
        for point in points:
            start = land.flat(point)
            end = minimize(land, view, start)
            if escaped(start, end):
                raise ValueError(
                    f"selection_skew: the loss of client {i} keeps falling far out, so it has no minimum F_i*. "
                    "Set a domain for the problem, such as pf.Box(lo, hi)."
                )
            least[i] = min(least[i], view.value(end), view.value(start))
    return least


@eqx.filter_jit
def _mean_weight(setup: Setup, theta: Theta, deployed: Theta, keys: Array) -> Float[Array, " N"]:
    """E[a_i] of a cohort selected at theta, over the keys."""
    problem, participation, clients = setup.problem, setup.algorithm.participation, setup.weights.shape[0]
    world = map_clients(lambda mine: mine.settle(Scene(deployed, problem.loss)), problem.population, clients)
    zero = jnp.zeros((), jnp.int32)
    state = State(theta, deployed, ClientMemory(world, None, None, None), ServerMemory(None, None), zero, None)

    def measure(ids: Array, key: Array, samples: int | None = None) -> Array:
        return measure_losses(setup, state, ids, key, samples)

    def weight(drawn: tuple[Array, Array]) -> Array:
        key, round = drawn
        selection = Selection(setup.weights, setup.tables, round, theta, measure)
        memory = participation.begin(jax.random.fold_in(key, 1), selection, participation.init(clients))
        cohort, _ = participation.select(key, selection, memory)
        return jnp.zeros(clients, setup.weights.dtype).at[cohort.ids].add(cohort.weight, mode="drop")

    rounds = jnp.arange(keys.shape[0], dtype=jnp.int32)
    return jnp.mean(jax.lax.map(weight, (keys, rounds), batch_size=min(_TOGETHER, keys.shape[0])), axis=0)
