"""Hand-written jitted scans of the same work, without any of the engine's code.

`same` keeps the key discipline of the engine: a client's randomness does not depend on who else is drawn.
`bulk` draws all noise of a run in one call, without that property: the true limit of the hardware.
"""

import functools

import jax
import jax.numpy as jnp
from jax.extend.random import threefry_2x32


def fold_pair(key, first, second):
    """A client's key for a round in one hash, as in the engine."""
    counter = jnp.stack([first.astype(jnp.uint32), second.astype(jnp.uint32)])
    return jax.random.wrap_key_data(threefry_2x32(jax.random.key_data(key), counter))


def repeat_keys(repeats: int):
    return jax.vmap(lambda r: jax.random.fold_in(jax.random.key(0), r))(jnp.arange(repeats))


def _gaussian_round(theta, t, noise, mean, sensitivity, weights):
    """E steps of N clients on noise [N, E]; eta = 20 / (t + 200)."""

    def client(mean, sensitivity, noise):
        def step(local, inputs):
            e, u = inputs
            z = mean + sensitivity * local + u
            return local - 20.0 / (t + e + 200.0) * (local - z), None

        steps = jnp.arange(noise.shape[0], dtype=jnp.float32)
        if noise.shape[0] == 1:
            return step(theta, (steps[0], noise[0]))[0] - theta
        return jax.lax.scan(step, theta, (steps, noise))[0] - theta

    delta = jax.vmap(client)(mean, sensitivity, noise)
    return theta + jnp.sum(weights * delta)


@functools.partial(jax.jit, static_argnames=("rounds", "steps"))
def gaussian_same(keys, mean, sensitivity, weights, rounds, steps):
    def run(key):
        data = jax.random.split(key, 2)[0]

        def body(theta, r):
            def draw(client):
                return jax.random.normal(fold_pair(data, r, client), (steps,))

            noise = jax.vmap(draw)(jnp.arange(mean.shape[0]))
            theta = _gaussian_round(theta, (r * steps).astype(jnp.float32), noise, mean, sensitivity, weights)
            return theta, theta

        return jax.lax.scan(body, jnp.zeros(()), jnp.arange(rounds))[1]

    return jax.vmap(run)(keys)


@functools.partial(jax.jit, static_argnames=("rounds", "steps"))
def gaussian_bulk(keys, mean, sensitivity, weights, rounds, steps):
    def run(key):
        noise = jax.random.normal(key, (rounds, mean.shape[0], steps))

        def body(theta, inputs):
            r, u = inputs
            theta = _gaussian_round(theta, (r * steps).astype(jnp.float32), u, mean, sensitivity, weights)
            return theta, theta

        return jax.lax.scan(body, jnp.zeros(()), (jnp.arange(rounds), noise))[1]

    return jax.vmap(run)(keys)


def _strategic_round(theta, t, rows, x, y, strength, weights, penalty):
    """E steps of logistic regression on rows [N, E, n] of tables that react; eta = 5 / (t + 100)."""

    def client(x, y, strength, rows):
        def loss(local, a, b):
            score = jnp.sum(local * a)
            return jax.nn.softplus(score) - b * score + 0.5 * penalty * jnp.sum(local * local)

        def step(local, inputs):
            e, picked = inputs
            moved = x[picked] - strength * local
            gradient = jnp.mean(jax.vmap(jax.grad(loss), (None, 0, 0))(local, moved, y[picked]), axis=0)
            return local - 5.0 / (t + e + 100.0) * gradient, None

        steps = jnp.arange(rows.shape[0], dtype=jnp.float32)
        if rows.shape[0] == 1:
            return step(theta, (steps[0], rows[0]))[0] - theta
        return jax.lax.scan(step, theta, (steps, rows))[0] - theta

    delta = jax.vmap(client)(x, y, strength, rows)
    return theta + jnp.sum(weights[:, None] * delta, axis=0)


@functools.partial(jax.jit, static_argnames=("rounds", "steps", "batch"))
def strategic_same(keys, x, y, strength, weights, penalty, rounds, steps, batch):
    clients, people, d = x.shape

    def run(key):
        data = jax.random.split(key, 2)[0]

        def body(theta, r):
            def draw(client):
                return jax.random.randint(fold_pair(data, r, client), (steps, batch), 0, people)

            rows = jax.vmap(draw)(jnp.arange(clients))
            theta = _strategic_round(theta, (r * steps).astype(jnp.float32), rows, x, y, strength, weights, penalty)
            return theta, theta

        return jax.lax.scan(body, jnp.zeros(d), jnp.arange(rounds))[1]

    return jax.vmap(run)(keys)


@functools.partial(jax.jit, static_argnames=("rounds", "steps", "batch"))
def strategic_bulk(keys, x, y, strength, weights, penalty, rounds, steps, batch):
    clients, people, d = x.shape

    def run(key):
        rows = jax.random.randint(key, (rounds, clients, steps, batch), 0, people)

        def body(theta, inputs):
            r, picked = inputs
            theta = _strategic_round(theta, (r * steps).astype(jnp.float32), picked, x, y, strength, weights, penalty)
            return theta, theta

        return jax.lax.scan(body, jnp.zeros(d), (jnp.arange(rounds), rows))[1]

    return jax.vmap(run)(keys)
