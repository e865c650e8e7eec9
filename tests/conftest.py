"""Every test runs with runtime type checks, strict dtype promotion and warnings as errors."""

import importlib.util

import jax

if importlib.util.find_spec("beartype"):
    from jaxtyping import install_import_hook

    install_import_hook("performative", "beartype.beartype")

jax.config.update("jax_numpy_dtype_promotion", "strict")
