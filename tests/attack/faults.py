"""The real step code with one fault each; what the parts say about themselves stays the same."""

import contextlib
from unittest import mock

import jax
import jax.numpy as jnp

from performative._base.noise import draw_noise
from performative._engine import chunk
from performative.channels import clipped_noise
from performative.estimators import clipped
from performative.executors import ClientKeys, RunKeys


@contextlib.contextmanager
def _with(module, name, fault):
    """A function of a module exchanged for a faulty one. Programs that were compiled do not know about it."""
    jax.clear_caches()
    with mock.patch.object(module, name, fault):
        yield
    jax.clear_caches()


def weak_noise(share, module=clipped):
    """Only a share of the noise that is named."""
    return _with(module, "draw_noise", lambda *arguments: share * draw_noise(*arguments))


def weak_channel(share):
    return weak_noise(share, clipped_noise)


def no_clip():
    """Gradients that nobody clips."""
    bounded = clipped.clipped_sum
    return _with(
        clipped, "clipped_sum", lambda loss, theta, batch, clip, *rest: bounded(loss, theta, batch, 1e6 * clip, *rest)
    )


class SharedKeys(RunKeys):
    """One key for the noise of all clients: what `RunKeys` would be without the client's number in it."""

    def of_client(self, round, client):
        mine, first = RunKeys.of_client(self, round, client), RunKeys.of_client(self, round, jnp.zeros_like(client))
        return ClientKeys(mine.data, first.estimator, first.channel, mine.standing)


def shared_keys():
    return _with(chunk, "run_keys", lambda key: SharedKeys(*jax.random.split(key, 5)))
