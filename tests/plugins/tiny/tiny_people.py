"""What a package of somebody else's holds: a population, a recipe, a loss, a data set."""

import jax

import performative as pf
from performative.data.catalogue import DataSet


class Tired(pf.populations.AbstractPopulation):
    """N(effort / (1 + theta^2), 1)."""

    effort: pf.types.Numbers = pf.types.per_client()

    def model_shape(self):
        return ()

    def draw(self, key, shape, theta, rows=None):
        return jax.random.normal(key, shape, theta.dtype)

    def sample(self, noise, world, theta):
        return self.effort / (1 + theta**2) + noise


def absolute(theta, z):
    return abs(theta - z)


def patient(rate, **parts) -> pf.Algorithm:
    """Two local steps."""
    return pf.p_fedavg(rate, **{"local_steps": 2, **parts})


NAPS = DataSet("naps", "Naps", (10, 2), "none stated", "made up", "scikit-learn")
