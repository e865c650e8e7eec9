"""Local work that is redrawn each round."""

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Int, PRNGKeyArray

from performative.participation import AbstractSteps
from performative.types import whole


class DrawnEpochs(AbstractSteps[None]):
    """tau_i = E_i each_i with E_i uniform on lo..hi, drawn independently by each client in each round.

    The table of the FedNova slide: E_i ~ U(2, 5), each_i the local steps of an epoch.
    """

    references = ()
    ignores_data = True

    each: Int[Array | np.ndarray, " N"]
    lo: int = whole()
    hi: int = whole()

    @property
    def longest(self) -> int:
        return self.hi * int(np.max(self.each))

    def draw(self, key: PRNGKeyArray, ids: Int[Array, " K"], memory: None) -> Int[Array, " K"]:
        def epochs(client: Array) -> Array:
            return jax.random.randint(jax.random.fold_in(key, client), (), self.lo, self.hi + 1, jnp.int32)

        return jax.vmap(epochs)(ids) * jnp.take(self.each, ids, mode="clip")
