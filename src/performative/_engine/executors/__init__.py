"""How the clients of a round are run: all of them, the cohort, one by one, or over many devices."""

from performative._engine.executors.base import AbstractExecutor, map_clients
from performative._engine.executors.loop import Loop
from performative._engine.executors.mapped import Dense, Gather, Sharded
from performative.algorithm import Algorithm
from performative.types import Unchecked

__all__ = ["AbstractExecutor", "Dense", "Gather", "Loop", "Sharded", "check_executor", "map_clients", "pick_executor"]

_NAMED = {kind.name: kind() for kind in (Dense, Gather, Sharded, Loop)}


def pick_executor(executor: Unchecked[str | AbstractExecutor | None], algorithm: Algorithm) -> AbstractExecutor:
    """By name or as it is; for None `Dense` where everyone takes part, `Gather` where only some do."""
    check_executor(executor)
    if executor is None:
        executor = "dense" if algorithm.participation.is_full else "gather"
    return _NAMED[executor] if isinstance(executor, str) else executor


def check_executor(executor: object) -> None:
    if isinstance(executor, str) and executor in _NAMED:
        return
    if executor is not None and not isinstance(executor, AbstractExecutor):
        raise ValueError(
            'executor must be "dense", "gather", "sharded", "loop", an executor of your own, or None; '
            f"got {executor!r}."
        )
