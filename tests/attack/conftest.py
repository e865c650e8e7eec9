"""What a module here may ask for with `pytestmark = pytest.mark.usefixtures(...)`."""

import jax
import pytest


@pytest.fixture(scope="module")
def quick_compilation():
    """For modules where nearly all of the time would be the compiler's."""
    jax.config.update("jax_disable_most_optimizations", True)
    yield
    jax.config.update("jax_disable_most_optimizations", False)
