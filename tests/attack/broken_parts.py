"""Private parts with one fault each; what they say about themselves stays the same."""

import dataclasses

import jax.numpy as jnp

from performative.channels import ClippedNoise
from performative.engine import ClientKeys, RunKeys
from performative.estimators import Clipped


class WeakNoise(Clipped):
    """Only a share of the noise that it names."""

    share: float = 0.5

    def estimate(self, noise, theta, batch, local, memory):
        weak = Clipped(self.clip, self.noise_multiplier * self.share)
        return weak.estimate(noise, theta, batch, local, memory)


class NoClip(Clipped):
    """The noise that it names on gradients that nobody clipped."""

    def estimate(self, noise, theta, batch, local, memory):
        far = 1e6
        return Clipped(self.clip * far, self.noise_multiplier / far).estimate(noise, theta, batch, local, memory)


class SharedKeys(RunKeys):
    """One key for the noise of all clients: what `RunKeys` would be without the client's number in it."""

    def of_client(self, round, client):
        mine, first = RunKeys.of_client(self, round, client), RunKeys.of_client(self, round, jnp.zeros_like(client))
        return ClientKeys(mine.data, first.estimator, first.channel, mine.standing)


class WeakChannel(ClippedNoise):
    """Half of the noise that it names: each client adds its share of a sum of four times as many."""

    def send(self, noise, delta, broadcast, memory):
        more = dataclasses.replace(broadcast, clients=4 * broadcast.clients)
        return ClippedNoise(self.clip, self.noise_multiplier).send(noise, delta, more, memory)
