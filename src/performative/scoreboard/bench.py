"""Measure linear classifiers on people who react to them."""

from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float

from performative._base.client_axis import map_clients
from performative._engine.prepare import check_fit, on_device
from performative._engine.risk import NODES, decoupled_risk
from performative.populations import AbstractPopulation
from performative.problem import Problem
from performative.types import Scene

_DRAWS = 9999


class Bench:
    """The people that models are evaluated on, and their data before any reaction (under the model `before`).

    Everything is exact for finite tables, and over fixed draws otherwise. In float64.
    """

    def __init__(self, problem: Problem, before: np.ndarray):
        self._before = before
        self._weights = np.asarray(problem.client_weights, np.float64)[:, None]
        with jax.enable_x64(True):
            self._problem = on_device(problem, jnp.float64)
            _check_samples(self._problem, jnp.asarray(before, jnp.float64))
        _, self._label, self._share = self._verdicts(before, before)
        found = np.unique(self._label[self._share > 0])
        strange = found[~np.isin(found, (0, 1))]
        if len(strange):
            raise ValueError(
                f"scoreboard needs labels y of 0 and 1; those of {type(problem.population).__name__} take other values "
                f"too, such as {strange[:3].tolist()}."
            )

    @property
    def people(self) -> int | None:
        """Number of people, None if the population has no table."""
        return None if self._problem.population.capacity is None else int(np.sum(self._share > 0))

    @property
    def share_of_ones(self) -> float:
        """The probability that y = 1, by the clients' weights."""
        return float(np.sum(self._weights * self._share * (self._label > 0)))

    def score(self, theta: Float[np.ndarray, " d"]) -> dict[str, float]:
        """Accuracy and rates after people reacted to theta, and the accuracy believed before."""
        believed = self._rates(*self._verdicts(theta, self._before))["accuracy"]
        return self._rates(*self._verdicts(theta, theta)) | {"believed": believed}

    def constant(self, answer: bool) -> dict[str, float]:
        """The same for a constant prediction, to which nobody can react."""
        rates = self._rates(np.full(self._label.shape, answer), self._label, self._share)
        return rates | {"believed": rates["accuracy"]}

    def paired(self, first: Float[np.ndarray, " d"], second: Float[np.ndarray, " d"]) -> "Gain":
        """Accuracy of the first model minus that of the second: a paired difference over people, who are drawn client
        by client with fixed weights."""
        right = []
        for theta in (first, second):
            told, label, share = self._verdicts(theta, theta)
            right.append((told == (label > 0)).astype(np.float64))
        gain = right[0] - right[1]
        mean = np.sum(share * gain, axis=1, keepdims=True)
        total = float(np.sum(self._weights * mean))
        if self.people is None:
            return Gain(total, float("nan"), float("nan"))
        spread = np.sum(share * np.square(gain - mean), axis=1, keepdims=True)
        count = np.sum(share > 0, axis=1, keepdims=True)
        error = float(np.sqrt(np.sum(np.square(self._weights) * spread / count)))
        here = share > 0
        better, worse = np.sum(here & (gain > 0), axis=1), np.sum(here & (gain < 0), axis=1)
        return Gain(total, error, sign_test(better, worse, self._weights[:, 0] / count[:, 0]))

    def _verdicts(self, theta: np.ndarray, deployed: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        with jax.enable_x64(True):
            found = _verdicts(self._problem, jnp.asarray(theta, jnp.float64), jnp.asarray(deployed, jnp.float64))
        told, label, share = (np.asarray(part) for part in found)
        return told, label, share

    def _rates(self, told: np.ndarray, label: np.ndarray, share: np.ndarray) -> dict[str, float]:
        chance, one = self._weights * share, label > 0
        ones, zeros = np.sum(chance * one), np.sum(chance * ~one)
        hit, passed = np.sum(chance * (told & one)), np.sum(chance * (~told & ~one))
        return {
            "accuracy": float((hit + passed) / (ones + zeros)),
            "true_positive": float(hit / ones) if ones > 0 else float("nan"),
            "true_negative": float(passed / zeros) if zeros > 0 else float("nan"),
        }


class Gain(NamedTuple):
    """A difference of accuracies, its standard error over people, and the p-value of no difference.

    The last two are NaN if the population has no table.
    """

    value: float
    error: float
    chance: float


def sign_test(better: np.ndarray, worse: np.ndarray, weight: np.ndarray) -> float:
    """The p-value of a gain sum_i weight_i (better_i - worse_i) if those who change are equally likely to gain or lose.

    Args:
        better: People of client i whom only the first model classifies correctly; `worse`: only the second.

    With equal weights this is McNemar's exact test; unlike a normal approximation, it is valid for few people too.
    Computed over fixed draws.
    """
    changed = better + worse
    draws = np.random.default_rng(0).binomial(changed, 0.5, (_DRAWS, len(changed)))
    moved = np.abs((2 * draws - changed) @ weight)
    # Draws that are equal up to rounding count; the observed data count as one of the draws, so the test is exact.
    as_large = np.sum(moved >= abs((better - worse) @ weight) * (1 - 1e-12))
    return float((1 + as_large) / (1 + _DRAWS))


def performative_risk(problem: Problem, theta: Float[np.ndarray, " d"]) -> float:
    """f(theta; theta), in float64."""
    with jax.enable_x64(True):
        weights = jnp.asarray(np.asarray(problem.client_weights), jnp.float64)
        return float(_risk(on_device(problem, jnp.float64), weights, jnp.asarray(theta, jnp.float64)))


@eqx.filter_jit
def _verdicts(
    problem: Problem, theta: Float[Array, " d"], deployed: Float[Array, " d"]
) -> tuple[Bool[Array, "N n"], Array, Float[Array, "N n"]]:
    """1{theta.x > 0}, y and a person's weight within the client, once the world has settled under `deployed`."""

    def one(population: AbstractPopulation) -> tuple[Array, Array, Array]:
        world = population.settle(Scene(deployed, problem.loss))
        noise, share = population.quadrature_within(world, deployed, NODES)
        x, y = jax.vmap(lambda u: population.sample(u, world, deployed))(noise)
        return jnp.sum(theta * x, axis=1) > 0, y, share

    return map_clients(one, problem.population, problem.clients)


@eqx.filter_jit
def _risk(problem: Problem, weights: Array, theta: Array) -> Array:
    return decoupled_risk(problem, weights, theta, theta)


def _check_samples(problem: Problem, theta: Array) -> None:
    """Raise unless it is a linear classifier on samples (x, y), before anything is computed."""

    def probe(mine: AbstractPopulation) -> Any:
        noise = jax.tree.map(lambda leaf: leaf[0], mine.draw(jax.random.key(0), (1,), theta))
        return mine.sample(noise, mine.init(Scene(theta, problem.loss)), theta)

    z = jax.eval_shape(lambda: map_clients(probe, problem.population, problem.clients))
    shapes = [leaf.shape[1:] for leaf in jax.tree.leaves(z)]
    if not (isinstance(z, tuple) and len(z) == 2 and theta.ndim == 1 and shapes == [theta.shape, ()]):
        raise ValueError(
            "scoreboard needs samples (x, y), x a vector shaped like theta and y one label: a linear classifier. "
            f"{type(problem.population).__name__} has samples of shapes {shapes}, and theta has shape {theta.shape}."
        )
    check_fit(problem, theta)
