"""How the clients of a round are run: all of them, the cohort, one at a time, or over many devices."""

from performative._engine.executors.base import AbstractExecutor, map_clients
from performative._engine.executors.loop import Loop
from performative._engine.executors.mapped import Dense, Gather, Sharded
from performative.algorithm import Algorithm
from performative.types import Unchecked

__all__ = ["AbstractExecutor", "Dense", "Gather", "Loop", "Sharded", "check_executor", "map_clients", "pick_executor"]

_NAMED = {kind.name: kind() for kind in (Dense, Gather, Sharded, Loop)}


def pick_executor(executor: Unchecked[str | AbstractExecutor | None], algorithm: Algorithm) -> AbstractExecutor:
    """Look up an executor by name, or return it as is; None means `Dense` under full participation, else `Gather`."""
    check_executor(executor)
    if executor is None:
        executor = "dense" if algorithm.participation.is_full else "gather"
    return _NAMED[executor] if isinstance(executor, str) else executor


def check_executor(executor: object) -> None:
    if isinstance(executor, str) and executor in _NAMED:
        return
    if executor is not None and not isinstance(executor, AbstractExecutor):
        raise ValueError(
            f'executor must be "dense", "gather", "sharded", "loop", a custom executor, or None; got {executor!r}.'
        )
