"""Rules for every slot. A rule raises AssertionError, and returns False if it does not apply."""

import dataclasses
import io
from typing import Any, NoReturn, TypeVar

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, PyTree

from performative._base.run_once import quickly_compiled
from performative.facts import AbstractPart
from performative.testing.cases import Case
from performative.testing.uses import INSTANCES, row
from performative.types import ArrayLike

Part = TypeVar("Part", bound=AbstractPart)

# Results in float64 that differ by more than reordering a few sums can explain are considered different.
_CLOSE = 1e-9


def broken(part: object, rule: str, error: BaseException) -> NoReturn:
    """Raise the failure of a check."""
    text = str(error).strip().splitlines()
    why = (
        (text[0] if text else "")
        if isinstance(error, AssertionError)
        else f"{type(error).__name__}: {' '.join(text[:2])}"
    )
    raise AssertionError(f"{type(part).__name__} breaks the rule {rule}: {why}") from error


def _numbers(leaf: ArrayLike) -> np.ndarray:
    if isinstance(leaf, jax.Array) and jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key):
        leaf = jax.random.key_data(leaf)
    return np.asarray(leaf)


def _assert_structure(left: PyTree, right: PyTree, what: str) -> None:
    before: Any = jax.tree.structure(left)
    after: Any = jax.tree.structure(right)
    if before != after:
        raise AssertionError(f"{what}: the structure {before} became {after}.")


def assert_same(left: PyTree, right: PyTree, what: str, exact: bool = False) -> None:
    """Assert that two trees contain the same values: bitwise, or up to rounding."""
    _assert_structure(left, right, what)
    paths = jax.tree_util.tree_leaves_with_path(left)
    for (path, a), b in zip(paths, jax.tree.leaves(right), strict=True):
        a, b = _numbers(a), _numbers(b)
        name = f"{what}{jax.tree_util.keystr(path)}"
        if a.shape != b.shape:
            raise AssertionError(f"{name}: shape {a.shape} vs. {b.shape}.")
        if exact or a.dtype.kind not in "fc":
            same = np.array_equal(a, b, equal_nan=a.dtype.kind in "fc")
        else:
            finite = np.abs(a[np.isfinite(a)])
            scale = max(1.0, float(finite.max(initial=0.0)))
            same = np.allclose(a, b, rtol=_CLOSE, atol=_CLOSE * scale, equal_nan=True)
        if not same:
            raise AssertionError(f"{name}: {_show(a)} vs. {_show(b)}.")


def _show(array: np.ndarray) -> str:
    return np.array2string(array.ravel()[:4], precision=6) + ("..." if array.size > 4 else "")


def types_of(tree: PyTree) -> list[tuple[str, tuple[int, ...], str]]:
    """Name, shape and dtype of each leaf; "weak" if the dtype was never specified."""

    def dtype(leaf: Array | jax.ShapeDtypeStruct) -> str:
        return f"weak {leaf.dtype}" if getattr(leaf, "weak_type", False) else str(leaf.dtype)

    leaves = jax.tree_util.tree_leaves_with_path(tree)
    return [(jax.tree_util.keystr(path), tuple(leaf.shape), dtype(leaf)) for path, leaf in leaves]


def assert_types(left: PyTree, right: PyTree, what: str) -> None:
    """Assert that two trees have the same structure, shapes and dtypes."""
    _assert_structure(left, right, what)
    for (name, *before), (_, *after) in zip(types_of(left), types_of(right), strict=True):
        if before != after:
            raise AssertionError(
                f"{what}{name} was {before[1]}{list(before[0])} and became {after[1]}{list(after[0])}; "
                "set the dtype of arrays created in `init` and keep their shape."
            )


def types_stay(case: Case) -> bool:
    """Traced, not run, in both precisions."""
    for precision in (jnp.float32, jnp.float64):
        with jax.enable_x64(precision == jnp.float64):
            here = case if precision == jnp.float64 else case.again(precision)
            inputs, memory = jax.eval_shape(lambda here=here: here.instance(0))

            def use(inputs: PyTree, memory: PyTree, here: Case = here) -> tuple[PyTree, PyTree]:
                return here.use(here.part, inputs, memory)

            outputs, after = jax.eval_shape(use, inputs, memory)
            assert_types(memory, after, "memory")
            outputs_again, _ = jax.eval_shape(use, inputs, after)
            assert_types(outputs, outputs_again, "result")
            if case.slot in ("aggregator", "channel", "domain", "estimator"):  # updates and models look like theta
                made = outputs if case.slot in ("channel", "domain") else outputs[0]
                assert_types(jax.eval_shape(lambda here=here: here.state.theta), made, "theta")
    return True


def jit_equals_eager(case: Case) -> bool:
    inputs, memory = case.instance(0)
    assert_same(case.use(case.part, inputs, memory), case.fast(case.part, inputs, memory), "eager vs. jit: result")
    return True


def vmap_equals_loop(case: Case) -> bool:
    singles = [case.fast(case.part, *case.instance(i)) for i in range(INSTANCES)]
    mapped = quickly_compiled(eqx.filter_vmap(case.use, in_axes=(None, 0, 0)))
    together = mapped(case.part, case.inputs, case.memory)
    for i, single in enumerate(singles):
        assert_same(single, row(together, i), f"single vs. vmap, instance {i}: result")
    return True


def compiles_once(case: Case) -> bool:
    """Call the compiled part as a run does, and count how often JAX traced it."""
    _no_static_floats(case.part, type(case.part).__name__)
    inputs, memory = case.instance(0)
    _, memory = case.fast(case.part, inputs, memory)
    before = case.traces
    if case.memory is not None:
        case.fast(case.part, inputs, memory)
        assert case.traces == before, "the returned memory makes JAX recompile; its type has changed."
    case.fast(case.part, case.instance(1)[0], memory)
    assert case.traces == before, "other keys and models of the same shape make JAX recompile."
    case.fast(scaled(case.part, 0.75), inputs, memory)
    assert case.traces == before, "other numbers in the part make JAX recompile; declare them with number()."
    return True


def _no_static_floats(part: object, name: str) -> None:
    if not dataclasses.is_dataclass(part):
        return
    for field in dataclasses.fields(part):
        value = getattr(part, field.name)
        if field.metadata.get("static", False) and isinstance(value, float):
            raise AssertionError(
                f"{name}.{field.name} = {value} is static: every other value recompiles; use number()."
            )
        _no_static_floats(value, f"{name}.{field.name}")


def scaled(part: Part, factor: float) -> Part:
    """The part with every number multiplied."""
    return jax.tree.map(lambda leaf: leaf * factor if eqx.is_inexact_array(leaf) else leaf, part)


def sweeps(case: Case) -> bool:
    settings = (case.part, scaled(case.part, 0.75))
    numbers, rest = eqx.partition(case.part, eqx.is_inexact_array)
    if not jax.tree.leaves(numbers):
        return False
    others = eqx.filter(settings[1], eqx.is_inexact_array)
    inputs, memory = case.instance(0)
    stacked = jax.tree.map(lambda a, b: jnp.stack([a, b]), numbers, others)
    swept = quickly_compiled(jax.vmap(lambda leaves: case.use(eqx.combine(leaves, rest), inputs, memory)))(stacked)
    for i, part in enumerate(settings):
        assert_same(case.fast(part, inputs, memory), row(swept, i), f"single vs. swept, setting {i}: result")
    return True


def saves(case: Case) -> bool:
    inputs, memory = case.instance(0)
    _, memory = case.fast(case.part, inputs, memory)
    leaves, structure = jax.tree.flatten(memory)
    if not leaves:
        return False
    for leaf in leaves:
        assert not jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key), (
            "memory contains a random key, which is not a plain array; keys are arguments: store a count, fold it in."
        )
    file = io.BytesIO()
    np.savez(file, *[np.asarray(leaf) for leaf in leaves])
    file.seek(0)
    with np.load(file, allow_pickle=False) as stored:
        loaded = jax.tree.unflatten(structure, [jnp.asarray(stored[name]) for name in stored.files])
    assert_types(memory, loaded, "memory")
    assert_same(memory, loaded, "memory", exact=True)
    kept, read = (case.fast(case.part, inputs, m) for m in (memory, loaded))
    assert_same(kept, read, "before vs. after saving: result", exact=True)
    return True


EVERY_SLOT = {
    rule.__name__: rule for rule in (types_stay, jit_equals_eager, vmap_equals_loop, compiles_once, sweeps, saves)
}
