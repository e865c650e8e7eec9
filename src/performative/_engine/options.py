"""The options of `run` and `sweep` besides problem and algorithm, read and checked."""

import dataclasses
import functools
from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from performative._base.checks import check_counts, given, is_one_of, nearest
from performative._base.messages import warn
from performative._engine.checkpoint import Checkpoint, read_checkpoint
from performative._engine.clock import Clock
from performative._engine.executors import check_executor
from performative.callbacks.calls import Calls
from performative.callbacks.progress import Progress
from performative.record import Record

_CONFIG: Any = jax.config  # its flags are created at run time, so a type checker does not know them


@dataclasses.dataclass(frozen=True)
class Options:
    """Options as read by `read_options`."""

    record: Record
    calls: Calls
    clock: Clock
    dtype: str | None
    executor: Any
    clients_at_once: int | None
    checkpoint: Checkpoint | None = None

    @property
    def precision(self) -> Any:
        return read_dtype(self.dtype)

    @property
    def half(self) -> bool:
        return self.dtype == "bfloat16"


def read_options(
    owner: str, default: Record, record: Any, callbacks: Any, clock: Any, dtype: Any, executor: Any,
    clients_at_once: Any, old: dict[str, Any], checkpoint: Any = None,
) -> Options:  # fmt: skip
    """Read and check the options, including deprecated keywords."""
    if record is not None and not isinstance(record, Record):
        raise ValueError(f"record must be a pf.Record; got {record!r}.")
    record = default if record is None else record
    if not isinstance(callbacks, Sequence) or isinstance(callbacks, str):
        raise ValueError(f"callbacks must be a list; got {callbacks!r}.")
    checkpoint, folder = read_checkpoint(checkpoint), checkpoint is not None
    if old:
        record, callbacks, clients_at_once, checkpoint = _read_old(
            owner, old, record, callbacks, clients_at_once, checkpoint, folder
        )
    check_counts(**given(clients_at_once=clients_at_once))
    check_executor(executor)
    read_dtype(dtype)
    if clock is not None and not isinstance(clock, Clock):
        raise ValueError(f"clock must be pf.Clock(compute, communication); got {clock!r}.")
    return Options(record, Calls(callbacks), clock or Clock(), dtype, executor, clients_at_once, checkpoint)


# Where each deprecated keyword moved, and its new name.
RECORD_NAMES = {"record_theta": "theta", "every": "every", "risk": "risks", "consensus": "consensus",
           "stable": "stable", "optimal": "optimal", "limit": "limit"}  # fmt: skip
_CHECKPOINT = {"checkpoint_every": "every", "resume": "resume"}
_NEW = ("rounds", "theta", "seed", "repeats", "record", "callbacks", "clock", "dtype", "executor", "clients_at_once")
OLD = (*RECORD_NAMES, *_CHECKPOINT, "at_once", "progress")


def _read_old(
    owner: str, old: dict[str, Any], record: Record, callbacks: Any, clients_at_once: Any, checkpoint: Any, folder: bool
) -> tuple[Record, Any, Any, Any]:
    """Move deprecated keywords to their new places, with a warning that names them."""
    taken = OLD if owner == "run" else [name for name in OLD if name not in _CHECKPOINT]
    for name in old:
        if name not in taken:
            raise TypeError(f"{owner}() got an unexpected keyword argument {name!r}.{nearest(name, [*taken, *_NEW])}")
    forms = []
    if for_record := {RECORD_NAMES[name]: value for name, value in old.items() if name in RECORD_NAMES}:
        record = dataclasses.replace(record, **for_record)
        forms.append(f"record=pf.Record({', '.join(f'{name}=...' for name in for_record)})")
    if for_folder := {_CHECKPOINT[name]: value for name, value in old.items() if name in _CHECKPOINT}:
        if not folder and for_folder.get("resume"):
            raise ValueError("resume=True needs checkpoint=, the folder of the run to continue.")
        if folder:
            checkpoint = dataclasses.replace(checkpoint, **for_folder)
        forms.append(f"checkpoint=pf.Checkpoint(folder, {', '.join(f'{name}=...' for name in for_folder)})")
    if "at_once" in old:
        clients_at_once = old["at_once"]
        forms.append("clients_at_once=...")
    if "progress" in old:
        callbacks = [*callbacks, Progress(old["progress"])]
        forms.append("callbacks=[pf.callbacks.Progress(...)]")
    names = " and ".join(f"{name}=" for name in old) + (" has moved" if len(old) == 1 else " have moved")
    warn("old-keyword", f"pf.{owner}: {names}; write {', '.join(forms)} instead.")
    return record, callbacks, clients_at_once, checkpoint


def repeat_keys(seed: int, repeats: int) -> Any:
    """One key per repeat; repeat r of a seed does not depend on how many there are."""
    check_seed(seed)
    return _fold_repeats(jax.random.key(int(seed)), repeats)


def check_seed(seed: object) -> None:
    if isinstance(seed, bool) or not isinstance(seed, (int, np.integer)) or not 0 <= seed < 2**32:
        raise ValueError(f"seed must be a whole number from 0 to 2^32 - 1; got {seed!r}.")


@functools.partial(jax.jit, static_argnums=1)
def _fold_repeats(key: Array, repeats: int) -> Any:
    return jax.vmap(lambda r: jax.random.fold_in(key, r))(jnp.arange(repeats))


def read_dtype(dtype: str | None) -> Any:
    if dtype is None:
        return jnp.float64 if _CONFIG.jax_enable_x64 else jnp.float32
    if not is_one_of(dtype, "float32", "float64", "bfloat16"):
        raise ValueError(f'dtype must be "float32", "float64" or "bfloat16"; got {dtype!r}.')
    return jnp.float64 if dtype == "float64" else jnp.float32
