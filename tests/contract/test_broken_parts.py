"""check_part says which rule a part breaks."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import performative as pf
from performative.aggregators import AbstractAggregator, weighted_sum
from performative.channels import AbstractChannel
from performative.domains import AbstractDomain
from performative.estimators import AbstractEstimator
from performative.participation import AbstractParticipation
from performative.populations import AbstractPopulation
from performative.schedules import AbstractSchedule
from performative.testing import check_part
from performative.types import Cohort, Estimate, number, per_client

pytestmark = pytest.mark.slow

PROBLEM = pf.Problem(pf.losses.squared, pf.populations.Gaussian(np.arange(5.0), 0.5, 1.0))


class Growing(AbstractChannel):
    """Its memory gets longer with every message."""

    def init(self, theta):
        return jnp.zeros(1)

    def send(self, noise, delta, broadcast, memory):
        return delta, jnp.concatenate([memory, jnp.zeros(1)])


class Single(AbstractChannel):
    """Its memory is float32 whatever the precision of the run, and becomes float64."""

    def init(self, theta):
        return jnp.zeros((), jnp.float32)

    def send(self, noise, delta, broadcast, memory):
        return delta, memory.astype(delta.dtype) + delta


class Untyped(AbstractChannel):
    """Its memory starts as a bare number, whose dtype JAX settles later: the second chunk compiles again."""

    def init(self, theta):
        return 0.0 * jnp.asarray(1.0)

    def send(self, noise, delta, broadcast, memory):
        return delta, memory + delta


class Halving(AbstractChannel):
    """It sends half of theta's shape."""

    def send(self, noise, delta, broadcast, memory):
        return delta[None], memory


class KeyKeeper(AbstractChannel):
    """Its memory is a random key, which is no plain array."""

    def init(self, theta):
        return jax.random.key(0)

    def send(self, noise, delta, broadcast, memory):
        return delta, jax.random.fold_in(memory, 1)


class Branching(AbstractChannel):
    """It looks at a number while JAX traces."""

    cap: float = number(default=1.0)

    def send(self, noise, delta, broadcast, memory):
        return (delta if jnp.abs(delta) < self.cap else self.cap * jnp.sign(delta)), memory


class StaticRate(AbstractSchedule):
    """A number that is part of the program."""

    value: float = eqx.field(static=True)

    def __call__(self, t):
        return jnp.asarray(self.value)


class Ascent(AbstractSchedule):
    def __call__(self, t):
        return jnp.asarray(-0.1)


class Leaky(AbstractAggregator):
    """0 * NaN is NaN: spare rows have to be left out by selection."""

    def aggregate(self, theta, upload, cohort, weights, memory):
        return jnp.sum(cohort.weight * upload.delta), memory


class FirstCome(AbstractAggregator):
    """The first row counts double."""

    def aggregate(self, theta, upload, cohort, weights, memory):
        return weighted_sum(upload.delta, cohort.weight.at[0].mul(2.0), cohort.active), memory


class Fading(AbstractAggregator):
    """Its rows of absent clients fade."""

    def init(self, theta, clients, extra):
        return jnp.ones((clients, *theta.shape), theta.dtype)

    def aggregate(self, theta, upload, cohort, weights, memory):
        memory = (0.5 * memory).at[cohort.ids].set(upload.delta, mode="drop")
        return weighted_sum(upload.delta, cohort.weight, cohort.active), memory


class Unmasked(AbstractEstimator):
    """It averages rows that the mask leaves out."""

    def estimate(self, noise, theta, batch, local, memory):
        gradients = jax.vmap(jax.grad(local.loss), in_axes=(None, 0))(theta, batch.z)
        return Estimate(jnp.mean(gradients, axis=0), memory, {})


class Favorites(AbstractParticipation):
    """Always clients 0 and 1, with equal weight."""

    rows: tuple[int, ...] = eqx.field(static=True, default=(0, 1))
    active: tuple[bool, ...] = eqx.field(static=True, default=(True, True))

    def size(self, clients):
        return 2

    def select(self, key, selection, memory):
        here = jnp.asarray(self.active)
        weight = here.astype(selection.weights.dtype) / sum(self.active)
        return Cohort(jnp.asarray(self.rows, jnp.int32), weight, here), memory


class Lopsided(AbstractPopulation):
    """Its nodes weigh half of what they should."""

    level: jax.Array | np.ndarray = per_client()

    def sample(self, noise, world, theta):
        return self.level + jax.random.normal(noise, dtype=theta.dtype)

    def quadrature(self, theta, count):
        noise, weights = super().quadrature(theta, count)
        return noise, weights / 2


class Slanted(AbstractPopulation):
    """Its nodes take the noise for positive."""

    level: jax.Array | np.ndarray = per_client()

    def draw(self, key, shape, theta, rows=None):
        return jax.random.normal(key, shape, theta.dtype)

    def sample(self, noise, world, theta):
        return self.level + noise

    def quadrature(self, theta, count):
        noise, weights = super().quadrature(theta, count)
        return jnp.abs(noise), weights


class Impatient(AbstractPopulation):
    """People who get half of the way a spell; its `settle` takes the first spell for the last."""

    level: jax.Array | np.ndarray = per_client()

    def init(self, scene):
        return jnp.zeros_like(scene.theta)

    def deploy(self, world, scene):
        return world + 0.5 * (self.level + scene.theta - world)

    def settle(self, scene):
        return self.deploy(self.init(scene), scene)

    def sample(self, noise, world, theta):
        return world + jax.random.normal(noise, dtype=theta.dtype)


class Overreaching(AbstractPopulation):
    """It draws from the whole table, though a client holds only `count` rows of it."""

    x: jax.Array | np.ndarray = per_client(table=True)
    count: jax.Array | np.ndarray = per_client(converter=lambda c: np.asarray(c, np.int32))

    @property
    def capacity(self):
        return self.x.shape[-1]

    @property
    def rows(self):
        return self.count

    def model_shape(self):
        return ()

    def draw(self, key, shape, theta, rows=None):
        return jax.random.randint(key, shape, 0, self.capacity, jnp.int32)

    def sample(self, noise, world, theta):
        return self.x[noise]


class Promising(AbstractAggregator):
    """It says that sums will do, and makes something else of them."""

    def aggregate(self, theta, upload, cohort, weights, memory):
        return weighted_sum(upload.delta, cohort.weight, cohort.active), memory

    def needs_sums_only(self):
        return True

    def sum_weights(self, upload, cohort, weights, memory):
        return cohort.weight

    def aggregate_sum(self, theta, total, upload, cohort, weights, memory):
        return jax.tree.map(lambda leaf: 2 * leaf, total), memory


class Uneven(AbstractAggregator):
    """Where one client is left out, the weights of the others change by different factors."""

    def aggregate(self, theta, upload, cohort, weights, memory):
        return weighted_sum(upload.delta, self.sum_weights(upload, cohort, weights, memory), cohort.active), memory

    def needs_sums_only(self):
        return True

    def sum_weights(self, upload, cohort, weights, memory):
        return cohort.weight * (1 + cohort.weight)

    def aggregate_sum(self, theta, total, upload, cohort, weights, memory):
        return total, memory


class Doubling(AbstractDomain):
    def project(self, theta):
        return 2.0 * theta


@pytest.mark.parametrize(
    ("part", "rule", "says"),
    [
        (Growing(), "types_stay", r"float32\[1\] and became float32\[2\]"),
        (Single(), "types_stay", "was float32.* became float64"),
        (Untyped(), "types_stay", "was weak float32.* became float32"),
        (Halving(), "types_stay", r"float32\[\] and became float32\[1\]"),
        (KeyKeeper(), "saves", "a random key, which is not a plain array"),
        (Branching(), "types_stay", "TracerBool"),
        (StaticRate(0.1), "compiles_once", r"StaticRate.value = 0.1 is static.*number\(\)"),
        (Ascent(), "step_size", r"eta\(0\) = -0.1"),
        (Leaky(), "padding", "NaN in spare rows"),
        (FirstCome(), "relabeling", "clients renamed: move"),
        (Fading(), "sitting_out", "memory of absent clients"),
        (Promising(), "sums", "from the sum: result"),
        (Uneven(), "sums", "change by factors that differ"),
        (Unmasked(), "padding", "NaN in masked rows"),
        (Favorites((1, 1)), "cohort", "is in two active rows"),
        (Favorites((0, 5)), "cohort", r"active rows need ids 0..4; got \[0, 5\]"),
        (Favorites((0, 1), (True, False)), "cohort", r"spare rows must have id N = 5; got \[0, 1\]"),
        (Favorites(), "relabeling", "client 0 has mean work 1, but after relabeling 0"),
        (Doubling(), "projection", "projected twice"),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, eqx.Module) else "",
)
def test_a_broken_part_is_told_which_rule_it_breaks(part, rule, says):
    with pytest.raises(AssertionError, match=f"{type(part).__name__} breaks the rule {rule}: .*{says}"):
        check_part(part, PROBLEM)


def test_broken_populations():
    with pytest.raises(AssertionError, match=r"Lopsided breaks the rule nodes: .*sum to one; they sum to 0.5"):
        check_part(Lopsided(np.arange(3.0)), theta=0.0)
    with pytest.raises(AssertionError, match="Overreaching breaks the rule padding: NaN past the end of the table"):
        check_part(Overreaching(np.ones((3, 50)), [1, 2, 3]))


def test_nodes_that_contradict_the_draws_are_named():
    with pytest.raises(AssertionError, match=r"Slanted breaks the rule expectations: .*a significant difference"):
        check_part(Slanted(np.arange(3.0)), theta=0.0)


def test_a_settled_world_that_moves_on_is_named():
    with pytest.raises(AssertionError, match=r"Impatient breaks the rule settling: .*one more spell moves the settled"):
        check_part(Impatient(np.arange(1.0, 4.0)), theta=0.0)


def test_what_is_no_part_is_refused():
    with pytest.raises(ValueError, match=r"check_part needs a part.*AbstractPopulation.*got 3"):
        check_part(3)
    with pytest.raises(ValueError, match=r"skip names unknown rules: \['saved'\]"):
        check_part(pf.Full(), skip=["saved"])


def test_a_population_that_no_loss_of_ours_fits_needs_a_problem():
    class Words(AbstractPopulation):
        def sample(self, noise, world, theta):
            return {"word": jnp.ones(3)}

    with pytest.raises(ValueError, match="pass problem=, with a loss that does"):
        check_part(Words(), theta=0.0)
