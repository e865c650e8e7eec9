"""Every test runs with runtime type checks, strict dtype promotion and warnings as errors."""

import importlib.util
from pathlib import Path

import jax
import pytest

if importlib.util.find_spec("beartype"):
    from jaxtyping import install_import_hook

    install_import_hook("performative", "beartype.beartype")

jax.config.update("jax_numpy_dtype_promotion", "strict")
# Most tests compile for seconds and run for milliseconds; those that run for long ask for `optimised_programs`.
jax.config.update("jax_disable_most_optimizations", True)

MAPS = Path("/proc/self/maps")


@pytest.fixture(autouse=True, scope="module")
def few_programs():
    """Each compiled program holds mappings of memory; Linux allows a process 65530 of them, then it dies."""
    yield
    if MAPS.exists() and len(MAPS.read_bytes().splitlines()) > 30_000:
        jax.clear_caches()


@pytest.fixture(scope="module")
def optimised_programs():
    """For modules whose programs run for longer than they take to compile."""
    jax.config.update("jax_disable_most_optimizations", False)
    yield
    jax.config.update("jax_disable_most_optimizations", True)


@pytest.fixture
def double_precision():
    """float64 for everything inside."""
    with jax.enable_x64(True):
        yield
