"""Rules for individual slots, and the list of rules by slot."""

from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, PyTree

from performative._base.client_axis import slice_client
from performative._base.run_once import quickly_compiled
from performative.populations import AbstractPopulation
from performative.problem import Problem
from performative.solve.worlds import check_rest
from performative.testing import client_rules
from performative.testing.cases import Case
from performative.testing.rules import assert_same, assert_types
from performative.testing.uses import INSTANCES, scene_of
from performative.types import Noise, Theta

_DRAWS = 4000
_ERRORS = 6.0  # standard errors: one false alarm in five hundred million numbers


def cohort(case: Case) -> bool:
    """K rows; ids of active rows are distinct; spare rows have id N and weight 0; tau_i within 1..E."""
    clients, part = case.setup.weights.shape[0], case.part
    rows, longest = part.size(clients), case.setup.algorithm.steps
    for i in range(INSTANCES):
        chosen, _ = case.fast(part, *case.instance(i))
        ids, weight = np.asarray(chosen.ids), np.asarray(chosen.weight)
        active = np.ones(len(ids), bool) if chosen.active is None else np.asarray(chosen.active)
        assert len(ids) == rows, f"size({clients}) is {rows} rows, but select returned {len(ids)}."
        real = ids[active]
        assert len(np.unique(real)) == len(real), f"a client is in two active rows: {ids.tolist()}."
        assert np.all((real >= 0) & (real < clients)), f"active rows need ids 0..{clients - 1}; got {ids.tolist()}."
        assert np.all(ids[~active] == clients), f"spare rows must have id N = {clients}; got {ids.tolist()}."
        assert np.all(weight[~active] == 0), f"spare rows must have weight 0; got {weight.tolist()}."
        assert np.all(np.isfinite(weight)) and np.all(weight >= 0), (
            f"weights must be finite and >= 0; got {weight.tolist()}."
        )
        if part.is_full:
            assert np.array_equal(ids, np.arange(clients)), (
                f"`everyone` means ids 0, 1, ... in order; got {ids.tolist()}."
            )
            assert_same(chosen.weight, case.setup.weights, "`everyone` means the weights p: weight")
        if part.sums_to_one:
            assert abs(weight.sum() - 1) < 1e-9, f"`sums_to_one`, but the weights of a round sum to {weight.sum():.6g}."
        if chosen.steps is not None:
            steps = np.asarray(chosen.steps)[active]
            assert np.all((steps >= 1) & (steps <= longest)), f"steps must lie in 1..{longest}; got {steps.tolist()}."
        assert np.isfinite(chosen.elapsed) and chosen.elapsed >= 0, (
            f"elapsed must be a time >= 0; got {chosen.elapsed}."
        )
    return True


def nodes(case: Case) -> bool:
    """Weights of `quadrature` are >= 0 and sum to one; `settle` returns a world like that of `init`."""
    loss, theta = case.setup.problem.loss, case.state.theta

    @quickly_compiled
    def look(population: AbstractPopulation, client: Array) -> PyTree:
        mine = slice_client(population, client)
        noise, share = mine.quadrature(theta, 64)
        scene = scene_of(mine, theta, loss)
        worlds = mine.init(scene), mine.settle(scene)
        return noise, share, worlds, jax.vmap(lambda u: mine.sample(u, worlds[1], theta))(noise)

    for client in range(min(INSTANCES, case.setup.weights.shape[0])):
        noise, share, worlds, z = look(case.part, jnp.asarray(client, jnp.int32))
        assert np.all(share >= 0), "weights of nodes must not be negative."
        assert abs(float(jnp.sum(share)) - 1) < 1e-9, (
            f"weights of nodes must sum to one; they sum to {float(jnp.sum(share)):.6g}."
        )
        for leaf in jax.tree.leaves((noise, z)):
            assert leaf.shape[0] == share.shape[0], f"{share.shape[0]} weights for {leaf.shape[0]} nodes."
        assert_types(worlds[0], worlds[1], "the world of init vs. that of settle: world")
    return True


def expectations(case: Case) -> bool:
    """E[arctan z] by `quadrature_within` equals that over draws, up to noise; arctan, as data need not have a mean."""
    loss, theta = case.setup.problem.loss, case.state.theta

    def rows(mine: AbstractPopulation, noise: Noise, world: PyTree) -> Array:
        def numbers(u: Noise) -> Array:
            leaves = jax.tree.leaves(mine.sample(u, world, theta))
            return jnp.concatenate([jnp.arctan(jnp.ravel(leaf).astype(jnp.float64)) for leaf in leaves])

        return jax.vmap(numbers)(noise)

    @quickly_compiled
    def look(population: AbstractPopulation, client: Array, key: Array) -> PyTree:
        mine = slice_client(population, client)
        scene = scene_of(mine, theta, loss)
        world = mine.deploy(mine.init(scene), scene)
        noise, share = mine.quadrature_within(world, theta, _DRAWS)
        drawn = rows(mine, mine.draw(key, (_DRAWS,), theta), world)
        return share @ rows(mine, noise, world), jnp.mean(drawn, axis=0), jnp.std(drawn, axis=0)

    for client in range(min(INSTANCES, case.setup.weights.shape[0])):
        ruled, drawn, spread = (np.asarray(v) for v in look(case.part, jnp.asarray(client, jnp.int32), case.keys.data))
        # Two means over the same number of draws, for nodes that are draws themselves.
        far = np.abs(ruled - drawn) - _ERRORS * spread * np.sqrt(2.0 / _DRAWS)
        worst = int(np.argmax(far))
        assert far[worst] <= 1e-9, (
            f"client {client}: E[arctan z] of number {worst} of a sample is {ruled[worst]:.4g} over `quadrature` and "
            f"{drawn[worst]:.4g} over {_DRAWS} draws, a significant difference."
        )
    return True


def settling(case: Case) -> bool:
    """deploy(settle(theta), theta) = settle(theta), and time steps under theta lead there after another model."""
    if not jax.tree.leaves(case.state.clients.world):
        return False
    theta, problem = case.state.theta, case.setup.problem
    for step in (0.0, 0.5):
        model = jax.tree.map(lambda leaf, step=step: leaf + step, theta)
        try:
            check_rest(Problem(problem.loss, case.part.at(1.0)), model, theta)
        except ValueError as refusal:
            raise AssertionError(str(refusal)) from refusal
    return True


def projection(case: Case) -> bool:
    """P(P(v)) = P(v) and |P(v) - P(w)| <= |v - w|."""
    points = [case.instance(i)[0] for i in range(INSTANCES)]
    images = [case.fast(case.part, point, None)[0] for point in points]

    def distance(v: Theta, w: Theta) -> float:
        gaps = jax.tree.map(lambda a, b: float(jnp.sum(jnp.square(a - b))), v, w)
        return float(np.sqrt(sum(jax.tree.leaves(gaps))))

    for point, image in zip(points, images, strict=True):
        assert_same(image, case.fast(case.part, image, None)[0], "projected twice: theta")
        for other, other_image in zip(points, images, strict=True):
            before, after = distance(point, other), distance(image, other_image)
            assert after <= before * (1 + 1e-9), f"points {before:.6g} apart are projected to {after:.6g} apart."
    return True


def step_size(case: Case) -> bool:
    """eta(t) is one finite floating number >= 0."""
    for i in range(INSTANCES):
        t, _ = case.instance(i)
        eta, _ = case.fast(case.part, t, None)
        assert jnp.shape(eta) == () and jnp.issubdtype(eta.dtype, jnp.floating), (
            f"eta({t}) is {eta!r}, not one floating number."
        )
        assert bool(jnp.isfinite(eta)) and float(eta) >= 0, (
            f"eta({t}) = {float(eta):.6g}; a step size must be finite and >= 0."
        )
    return True


SLOT_RULES: dict[str, dict[str, Callable[[Case], bool]]] = {
    "population": {
        "nodes": nodes,
        "expectations": expectations,
        "settling": settling,
        "padding": client_rules.padding_of_tables,
        "in_a_round": client_rules.in_a_round,
    },
    "estimator": {"padding": client_rules.padding_of_batches, "in_a_round": client_rules.in_a_round},
    "participation": {
        "cohort": cohort,
        "relabeling": client_rules.relabeling_of_participation,
        "in_a_round": client_rules.in_a_round,
    },
    "channel": {"in_a_round": client_rules.in_a_round},
    "aggregator": {
        "padding": client_rules.padding_of_cohorts,
        "relabeling": client_rules.relabeling_of_aggregators,
        "sitting_out": client_rules.sitting_out_of_aggregators,
        "sums": client_rules.sums_of_aggregators,
        "in_a_round": client_rules.in_a_round,
    },
    "sharing": {"in_a_round": client_rules.in_a_round},
    "batch": {"padding": client_rules.padding_of_tables, "in_a_round": client_rules.in_a_round},
    "schedule": {"step_size": step_size},
    "domain": {"projection": projection, "in_a_round": client_rules.in_a_round},
}
