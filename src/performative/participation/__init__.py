"""Who takes part in a round."""

from performative.participation.asynchronous import Asynchronous
from performative.participation.available import AbstractAvailability, Available, DayNight
from performative.participation.base import AbstractParticipation, Selection
from performative.participation.cyclic import Cyclic
from performative.participation.first_k import FirstK
from performative.participation.latency import (
    AbstractLatency,
    ConstantLatency,
    Exponential,
    LogNormal,
    UniformLatency,
)
from performative.participation.law import CohortMoments
from performative.participation.local_work import LocalWork
from performative.participation.power_of_choice import PowerOfChoice
from performative.participation.retention import AbstractStaying, Patience, Retention
from performative.participation.schemes import Full, SchemeOne, SchemeTwo
from performative.participation.step_rules import AbstractSteps, AdaComm, UniformSteps
from performative.participation.trace import Trace
from performative.participation.turns import Turns
from performative.participation.weighted import Weighted

__all__ = [
    "AbstractAvailability",
    "AbstractLatency",
    "AbstractParticipation",
    "AbstractStaying",
    "AbstractSteps",
    "AdaComm",
    "Asynchronous",
    "Available",
    "CohortMoments",
    "ConstantLatency",
    "Cyclic",
    "DayNight",
    "Exponential",
    "FirstK",
    "Full",
    "LocalWork",
    "LogNormal",
    "Patience",
    "PowerOfChoice",
    "Retention",
    "SchemeOne",
    "SchemeTwo",
    "Selection",
    "Trace",
    "Turns",
    "UniformLatency",
    "UniformSteps",
    "Weighted",
]
