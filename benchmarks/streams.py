"""Simulated deployment streams, many at once: drift, retraining, exploration, and what each monitor reports."""

import functools
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from performative.watch import evidence, randomized
from performative.watch.guesses import guesses

# Distance of the first model from where retraining would settle without an effect, in standard errors of a batch mean.
START = 3.0
ALPHA = 0.05
# Fewest looks before the repeated test is applied.
FIRST = 8


class World(NamedTuple):
    """A kind of stream. Means have standard error 1; people react by `effect` times the deployed model.

    `law` is the drift; `policy` how the next model is trained: on the last batch ("last"), or halfway to it ("half");
    `explore` the standard deviation of the random perturbation of a model.
    """

    law: str = "none"
    effect: float = 0.0
    explore: float = 0.0
    policy: str = "last"
    skewed: bool = False


class Streams(NamedTuple):
    """[S, T] means, deployed models, and their random perturbations."""

    y: np.ndarray
    theta: np.ndarray
    explored: np.ndarray


def drift(law: str, streams: int, looks: int, rng: np.random.Generator) -> np.ndarray:
    """[S, T] levels, with a separate drift size per stream, in standard errors of a batch mean."""
    t = np.arange(looks)
    if law == "none":
        return np.zeros((streams, looks))

    def size(low: float, high: float) -> np.ndarray:
        return 10 ** rng.uniform(low, high, (streams, 1))

    steps = rng.normal(size=(streams, looks))
    if law == "linear":
        return np.sign(steps[:, :1]) * size(-2, 0) * t
    if law == "walk":
        return size(-1.5, 0.3) * steps.cumsum(axis=1)
    if law == "bending":
        return size(-2.5, -0.5) * steps.cumsum(axis=1).cumsum(axis=1)
    if law == "season":
        return size(-0.3, 1) * np.sin(2 * np.pi * (t / size(0.7, 2) + rng.uniform(size=(streams, 1))))
    raise ValueError(f"law must be none, linear, walk, bending or season; got {law!r}.")


def simulate(world: World, streams: int, looks: int, seed: int = 0) -> Streams:
    """Simulate batches under models that are retrained on them."""
    rng = np.random.default_rng(seed)
    level = drift(world.law, streams, looks, rng)
    if world.skewed:  # five rows per batch, from a distribution with skewness above 6
        rows = rng.exponential(size=(streams, looks, 5)) ** 1.5
        mean, square = 1.3293403881791372, 6.0
        noise = (rows.mean(axis=-1) - mean) / np.sqrt((square - mean**2) / 5)
    else:
        noise = rng.normal(size=(streams, looks))
    explored = world.explore * rng.normal(size=(streams, looks))
    y, theta = np.empty_like(level), np.empty_like(level)
    model = np.full(streams, START)
    for t in range(looks):
        theta[:, t] = model + explored[:, t]
        y[:, t] = level[:, t] + world.effect * theta[:, t] + noise[:, t]
        model = y[:, t] if world.policy == "last" else 0.5 * model + 0.5 * y[:, t]
    return Streams(y, theta, explored)


def first_alarm(log_evidence: np.ndarray, alpha: float = ALPHA) -> np.ndarray:
    """[S] the look of the first alarm, 0 if there is none."""
    above = log_evidence >= np.log(1 / alpha)
    return np.where(above.any(axis=1), above.argmax(axis=1) + 1, 0)


def watched(streams: Streams, law: str, block: int = 100) -> np.ndarray:
    """[S] the first alarm of the e-process, with the same functions that a `Watch` calls."""
    if law == "any":
        return first_alarm(_randomized(streams))
    with jax.enable_x64(True):
        found = []
        for start in range(0, len(streams.y), block):
            y, theta = (values[start : start + block] for values in (streams.y, streams.theta))
            missing = block - len(y)
            y, theta = (np.pad(values, ((0, missing), (0, 0))) for values in (y, theta))
            found.append(np.asarray(_evidence(jnp.asarray(y), jnp.asarray(theta), law))[: block - missing])
        return first_alarm(np.concatenate(found))


@functools.partial(jax.jit, static_argnames="law")
def _evidence(y: jax.Array, theta: jax.Array, law: str) -> jax.Array:
    told = guesses(law)
    sums = evidence.begin(law, 1, 1, (len(y),))
    sums = jax.tree.map(lambda leaf: jnp.asarray(leaf, jnp.float64), sums)
    y, theta = (y - y[:, :1])[..., None], (theta - theta[:, :1])[..., None]
    one = jnp.ones(())
    sums = evidence.look(sums, told, y[:, 0], theta[:, 0], one, 0 * one, 0.0, jnp)

    def step(sums, told_now):
        y, theta, t = told_now
        sums = evidence.look(sums, told, y, theta, one, t, 1.0, jnp)
        return sums, evidence.log_evidence(sums, xp=jnp)[:, 0, 0]

    times = jnp.arange(1.0, y.shape[1])
    _, found = jax.lax.scan(step, sums, (y[:, 1:].swapaxes(0, 1), theta[:, 1:].swapaxes(0, 1), times))
    return jnp.concatenate([jnp.full((1, len(y)), -jnp.inf), found]).T


def _randomized(streams: Streams) -> np.ndarray:
    signs = randomized.begin(1, 1, (len(streams.y),))
    found = []
    for t in range(streams.y.shape[1]):
        signs = randomized.look(signs, streams.y[:, t, None], streams.explored[:, t, None])
        found.append(randomized.log_evidence(signs)[:, 0, 0])
    return np.stack(found, axis=1)


def repeated_test(streams: Streams) -> np.ndarray:
    """[S] the first look at which a t-test of the model's slope, repeated at each look, has p < 5%."""
    from scipy import stats

    y, x = streams.y - streams.y[:, :1], streams.theta - streams.theta[:, :1]
    n = np.arange(1, y.shape[1] + 1)
    sx, sy, sxx, sxy, syy = (values.cumsum(axis=1) for values in (x, y, x * x, x * y, y * y))
    spread, across, total = sxx - sx**2 / n, sxy - sx * sy / n, syy - sy**2 / n
    with np.errstate(divide="ignore", invalid="ignore"):
        t = across / np.sqrt(np.maximum(total - across**2 / spread, 0) / (n - 2) * spread)
        p = 2 * stats.t.sf(np.abs(t), n - 2)
    p[:, :FIRST] = 1.0
    return first_alarm(np.where(p < ALPHA, np.inf, -np.inf))


def adwin(streams: Streams) -> np.ndarray:
    """[S] the first change that river's ADWIN detects in the means, at its own level of 5%."""
    from river.drift import ADWIN

    found = np.zeros(len(streams.y), int)
    for i, values in enumerate(streams.y.tolist()):
        monitor = ADWIN(delta=ALPHA)
        for t, value in enumerate(values, 1):
            monitor.update(value)
            if monitor.drift_detected:
                found[i] = t
                break
    return found
