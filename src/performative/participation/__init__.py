"""Who takes part in a round."""

from performative.participation.base import AbstractParticipation, Selection
from performative.participation.first_k import (
    AbstractLatency,
    Exponential,
    FirstK,
    LogNormal,
    UniformLatency,
)
from performative.participation.local_work import LocalWork, UniformSteps
from performative.participation.schemes import Full, SchemeOne, SchemeTwo

__all__ = [
    "AbstractLatency",
    "AbstractParticipation",
    "Exponential",
    "FirstK",
    "Full",
    "LocalWork",
    "LogNormal",
    "SchemeOne",
    "SchemeTwo",
    "Selection",
    "UniformLatency",
    "UniformSteps",
]
