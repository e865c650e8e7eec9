"""Split an equinox module into its arrays and the rest."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, PyTree

from performative.facts import AbstractPart
from performative.types import Theta


class Network(AbstractPart):
    """scores = network(theta, x) for ONE sample: an equinox module without its arrays, which are theta."""

    references = ()

    rest: PyTree

    def __call__(self, theta: Theta, x: Array) -> Array:
        return eqx.combine(theta, self.rest)(x)


def split(model: PyTree) -> tuple[Theta, Network]:
    """(theta, network) of an equinox module that maps ONE sample to scores.

        theta, network = pf.networks.split(model)
        problem = pf.Problem(pf.losses.cross_entropy(network), population)
        history = pf.run(problem, algorithm, rounds=10, theta=theta)

    theta is the module with only its floating arrays. Layers that keep statistics between calls (BatchNorm) are not
    supported: their state is not part of theta. GroupNorm and LayerNorm are.
    Flax: theta = model.init(key, x[None])["params"], and a top-level function
    `def scores(theta, x): return model.apply({"params": theta}, x[None])[0]` instead of the network.
    """
    if not callable(model):
        raise ValueError(f"split: model must be an equinox module that is called with one sample; got {model!r}.")
    for path, node in jax.tree_util.tree_leaves_with_path(model, is_leaf=_remembers):
        if _remembers(node) or (isinstance(node, (jax.Array, np.ndarray)) and not _trained(node)):
            name, what = jax.tree_util.keystr(path), getattr(node, "dtype", "state between calls")
            raise ValueError(
                f"split: model{name} ({what}) is neither trained nor fixed code (a counter, a table, statistics of "
                "BatchNorm); use stateless layers, such as GroupNorm, or close over fixed arrays in a function "
                "of theta, x."
            )
    theta, rest = eqx.partition(model, _trained)
    if not jax.tree.leaves(theta):
        raise ValueError(f"split: {type(model).__name__} has no floating arrays, so there is nothing to train.")
    return theta, Network(rest)


def _trained(leaf: object) -> bool:
    return isinstance(leaf, (jax.Array, np.ndarray)) and bool(jnp.issubdtype(leaf.dtype, jnp.floating))


def _remembers(node: object) -> bool:
    return isinstance(node, eqx.nn.StateIndex)
