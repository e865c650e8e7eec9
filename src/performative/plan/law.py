"""The error of a recipe, round by round for any setting, from the engine's own rounds as in `pf.moments`.

Settings that differ in steps, samples and rates are just numbers in one machine, so each kind of cohort is compiled
once. For a nonlinear problem, rounds are those of its linear model at the stable point.
"""

import dataclasses
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.flatten_util import ravel_pytree
from jaxtyping import Array, Float, Int

from performative import batches, schedules
from performative.algorithm import Algorithm
from performative.moments.building import build, rebuild
from performative.moments.errors import square_error
from performative.moments.facts import batch_spread
from performative.moments.machine import Machine
from performative.moments.playing import maps_of
from performative.moments.recursion import AbstractRound, Law
from performative.participation import LocalWork
from performative.participation.latency import AbstractLatency
from performative.plan.settings import Recipe, Setting
from performative.problem import Problem
from performative.types import Theta

# Rounds whose maps are computed together, and rounds between checks.
_BLOCK, _SPAN = 16, 64
# An error this many times the initial one counts as diverged.
_GONE = 1e6


class Laws:
    """Errors of settings of one recipe; raises `ValueError` with the code not-affine if it has none.

    Args:
        exact: whether rounds must be affine; otherwise they are linearized at the stable point
        longest: E, the largest number of local steps that will be requested
    """

    def __init__(
        self, problem: Problem, recipe: Recipe, theta: Theta, stable: Theta, deploy: str,
        latency: AbstractLatency | None, exact: bool, longest: int,
    ):  # fmt: skip
        self.problem, self.recipe, self.theta, self.stable, self.deploy = problem, recipe, theta, stable, deploy
        self.latency, self.exact, self.longest = latency, exact, longest
        self._made: dict[Any, Machine] = {}

    def errors(self, setting: Setting, rounds: int) -> np.ndarray:
        """Root mean square of |theta - theta_PS| after each round, start first: [rounds + 1], fewer if it diverges."""
        with jax.enable_x64(True):
            machine = self._machine(setting)
            target = jnp.asarray(ravel_pytree(self.stable)[0], jnp.float64)
            law = jax.tree.map(jnp.asarray, machine.begin())
            found = [float(square_error(machine, law, target))]
            maps, size = None, machine.layout.model
            while len(found) <= rounds and found[-1] <= _GONE * (1.0 + found[0]):
                done = len(found) - 1
                which, count = np.arange(_SPAN), _BLOCK
                if maps is None or setting.decay is not None:
                    maps = self._maps(machine, setting, done)
                if setting.decay is None:  # all later rounds equal the last of the first block
                    which, count = np.minimum(which + done, _BLOCK - 1), _SPAN
                order = jnp.asarray(np.minimum(which, _BLOCK - 1), jnp.int32)
                law, squares = _advance(maps, order, jnp.asarray(count, jnp.int32), law, target, size)
                found += np.asarray(squares)[:count].tolist()
        return np.sqrt(np.maximum(found[: rounds + 1], 0.0))

    def _machine(self, setting: Setting) -> Machine:
        """The machine with the setting's steps and samples."""
        kind = setting.scheme, setting.k
        if kind not in self._made:
            self._made[kind] = self._make(setting)
        machine = self._made[kind]
        sampled = dataclasses.replace(machine.setup.algorithm, batch=batches.Fixed(setting.batch))
        setup = dataclasses.replace(machine.setup, algorithm=sampled)
        spread = jnp.asarray(batch_spread(setup, machine.first.theta), jnp.float64)
        steps = jnp.asarray([setting.local_steps], jnp.int32)
        chances = dataclasses.replace(machine.chances, steps=steps)
        return dataclasses.replace(machine, spread=spread, chances=chances)

    def _make(self, setting: Setting) -> Machine:
        """A machine with E local steps of size zero and one sample each."""
        algorithm = self._algorithm(setting)
        if self.exact:
            return build(self.problem, algorithm, self.theta, 2 * _BLOCK)[0]
        machine = build(self.problem, algorithm, self.stable, 2 * _BLOCK, exact=False)[0]
        machine = machine.around(np.asarray(machine.begin().mean)[1:])
        return dataclasses.replace(machine, start=rebuild(machine, self.problem, algorithm, self.theta).start)

    def _algorithm(self, setting: Setting) -> Algorithm:
        who = LocalWork(setting.participation(self.latency), [self.longest] * self.problem.clients)
        rate = schedules.Table(np.full(2 * _BLOCK * self.longest, setting.rate))
        return self.recipe(rate, batch=batches.Fixed(1), participation=who, deploy=self.deploy)

    def _maps(self, machine: Machine, setting: Setting, done: int) -> AbstractRound:
        """Maps of the next rounds.

        The machine's first rounds are those of the run, with empty memory; the ones after them are reused with the
        current rates.
        """
        E, first = setting.local_steps, 0 if done == 0 else _BLOCK
        t = (done + np.arange(_BLOCK))[:, None] * E + np.arange(self.longest)
        values = np.zeros((2 * _BLOCK, self.longest))
        values[first : first + _BLOCK] = setting.eta(t)
        rate = dataclasses.replace(machine.setup.algorithm.rate, values=jnp.asarray(values.ravel()))
        algorithm = dataclasses.replace(machine.setup.algorithm, rate=rate)
        machine = dataclasses.replace(machine, setup=dataclasses.replace(machine.setup, algorithm=algorithm))
        return maps_of(machine, jnp.arange(first, first + _BLOCK, dtype=jnp.int32))


@eqx.filter_jit
def _advance(
    maps: AbstractRound, which: Int[Array, " S"], count: Int[Array, ""], law: Law, target: Float[Array, " d"], size: int
) -> tuple[Law, Float[Array, " S"]]:
    """The moments after `count` rounds with these maps, and E|theta - target|^2 after each."""

    def once(k: Array, carry: tuple[Law, Array]) -> tuple[Law, Array]:
        law, errors = carry
        law = jax.tree.map(lambda leaf: leaf[which[k]], maps).advance(law)
        away, spread = law.mean[1 : 1 + size] - target, jnp.asarray(law.covariance)[1 : 1 + size, 1 : 1 + size]
        return law, errors.at[k].set(away @ away + jnp.trace(spread))

    return jax.lax.fori_loop(0, count, once, (law, jnp.zeros(which.shape)))
