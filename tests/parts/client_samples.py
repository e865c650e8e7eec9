"""One client of a population, its samples and its expectations."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from performative._engine.prepare import on_device
from performative.testing.uses import slice_client

DRAWS = 40_000


def one_client(part: Any, client: int) -> Any:
    """A client's own slice, in float64."""
    return slice_client(on_device(part, jnp.float64), jnp.asarray(client, jnp.int32))


def samples(mine: Any, theta: Any, world: Any = None, draws: int = DRAWS) -> Any:
    """Many samples of one client."""
    noise = mine.draw(jax.random.key(5), (draws,), theta)
    return jax.tree.map(np.asarray, jax.jit(jax.vmap(lambda u: mine.sample(u, world, theta)))(noise))


def expectation(mine: Any, theta: Any, world: Any, function: Any, count: int = 256, within: bool = True) -> Any:
    """E[function(Z)] by the population's own nodes: those for this world, or those for any."""
    noise, share = mine.quadrature_within(world, theta, count) if within else mine.quadrature(theta, count)
    np.testing.assert_allclose(np.sum(share), 1.0, rtol=1e-12)
    each = jax.vmap(lambda u: function(mine.sample(u, world, theta)))(noise)
    return np.tensordot(np.asarray(share), np.asarray(each), 1)


def assert_normal(z: Any, mean: Any, scale: Any) -> None:
    """Mean and variance of independent draws, within five standard errors."""
    n = len(z)
    assert np.all(np.abs(z.mean(axis=0) - mean) < 5 * scale / np.sqrt(n))
    assert np.all(np.abs(z.var(axis=0) - scale**2) < 5 * scale**2 * np.sqrt(2 / n))
