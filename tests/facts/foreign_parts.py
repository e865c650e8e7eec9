"""Parts as somebody else would write them, with what they say of themselves."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import performative as pf
from performative.aggregators import weighted_sum
from performative.draws import WithoutReplacement
from performative.facts import Bound, declared
from performative.populations.linear import moved

BOOK = "@book{somebody2025shelves,\n  author = {Somebody Else},\n  title = {{Shelves}},\n  publisher = {Nobody},\n}"


class Shelf(pf.populations.AbstractPopulation):
    """A row of the client's table, moved by slope * theta."""

    references = (BOOK,)

    z: Any = pf.per_client(table=True)
    slope: Any = pf.number(default=0.2)

    @property
    def capacity(self):
        return self.z.shape[-1]

    def equal_rows(self):
        return (self.capacity,)

    def translations(self):
        return moved(self.slope, self.clients)

    def draw(self, key, shape, theta, rows=None):
        return jax.random.randint(key, shape, 0, self.capacity, jnp.int32) if rows is None else rows

    def sample(self, noise, world, theta):
        return self.z[noise] + self.slope * theta

    def quadrature(self, theta, count):
        return jnp.arange(self.capacity, dtype=jnp.int32), jnp.full((self.capacity,), 1 / self.capacity)


class Handful(pf.batches.AbstractBatch):
    """n different rows a step."""

    references = ("abadi2016deep",)

    n: int = pf.whole()

    def expected(self, population):
        return float(self.n)

    def largest(self, population):
        return self.n

    def sampling(self, rows):
        return WithoutReplacement(self.n, self.n if rows is None else rows)

    def draw(self, *arguments):
        return pf.Uniform(self.n).draw(*arguments)


class Capped(pf.estimators.AbstractEstimator):
    """Clipped gradients with noise."""

    references = ()
    sends_update_only = True

    cap: Any = pf.number()
    sigma: Any = pf.number()

    def bound(self):
        return Bound(self.cap, self.sigma, owner="Capped")

    def draw(self, key, steps, theta):
        return self._ours().draw(key, steps, theta)

    def estimate(self, noise, theta, batch, local, memory):
        return self._ours().estimate(noise, theta, batch, local, memory)

    def _ours(self):
        return pf.estimators.Clipped(jnp.asarray(self.cap), jnp.asarray(self.sigma))


class Gentle(pf.estimators.AbstractEstimator):
    """Half a step of another estimator: what is done to a noisy direction looks at no data."""

    inner: pf.estimators.AbstractEstimator
    sends_update_only = True

    def bound(self):
        return declared(self.inner, "bound")

    def draw(self, key, steps, theta):
        return self.inner.draw(key, steps, theta)

    def estimate(self, noise, theta, batch, local, memory):
        out = self.inner.estimate(noise, theta, batch, local, memory)
        return type(out)(jax.tree.map(lambda v: v / 2, out.direction), out.memory, out.metrics)


class Total(pf.aggregators.AbstractAggregator):
    """The weighted sum of updates."""

    references = ("mcmahan2017communication",)
    ignores_data = True
    uses_sums_only = True

    def aggregate(self, theta, upload, cohort, weights, memory):
        return weighted_sum(upload.delta, cohort.weight, cohort.active), memory


class Hush(pf.channels.AbstractChannel):
    """Updates that are clipped and blurred."""

    references = ()
    ignores_data = True

    cap: Any = pf.number()
    sigma: Any = pf.number()

    def bound(self):
        return Bound(self.cap, self.sigma, owner="Hush")

    def draw(self, key, theta):
        return self._ours().draw(key, theta)

    def send(self, noise, delta, broadcast, memory):
        return self._ours().send(noise, delta, broadcast, memory)

    def _ours(self):
        return pf.channels.ClippedNoise(jnp.asarray(self.cap), jnp.asarray(self.sigma))


class Lottery(pf.participation.AbstractParticipation):
    """k different clients, every set equally likely."""

    references = ()
    ignores_data = True

    k: int = pf.whole()

    def size(self, clients):
        return self.k

    def sampling(self, clients):
        return WithoutReplacement(self.k, clients)

    @property
    def sums_to_one(self):
        return False

    def select(self, key, selection, memory):
        return pf.SchemeTwo(self.k).select(key, selection, memory)


class Grudging(Shelf):
    """The same people, who remember one number."""

    references = ()

    def equal_rows(self):
        return (self.capacity,)

    def init(self, scene):
        return jnp.zeros(())


def table(clients=4, rows=50, seed=0):
    return np.random.default_rng(seed).normal(size=(clients, rows))
