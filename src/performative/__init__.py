"""Federated learning when deploying the model changes the data."""

__version__ = "0.1.0"

from performative import (
    aggregators,
    attack,
    batches,
    cases,
    channels,
    estimators,
    families,
    losses,
    optimisers,
    participation,
    populations,
    privacy,
    schedules,
    theory,
)
from performative.algorithm import Algorithm
from performative.batches import Fixed, Poisson, Shuffled, Uniform
from performative.compare import compare
from performative.deploy import Every
from performative.domains import Ball, Box
from performative.engine import Clock, run
from performative.history import History
from performative.participation import FirstK, Full, LocalWork, SchemeOne, SchemeTwo
from performative.privacy import Privacy
from performative.problem import Problem
from performative.recipes import dicesgd, fedavg, multi_agent_pp, p_fedavg, pcsgd, pg, pofl, profl
from performative.solve import (
    Solution,
    equilibria,
    optimal_point,
    repeated_gradient_descent,
    repeated_risk_minimization,
    stable_point,
)
from performative.sweep import sweep
from performative.types import number, per_client

__all__ = [
    "Algorithm",
    "Ball",
    "Box",
    "Clock",
    "Every",
    "FirstK",
    "Fixed",
    "Full",
    "History",
    "LocalWork",
    "Poisson",
    "Privacy",
    "Problem",
    "SchemeOne",
    "SchemeTwo",
    "Shuffled",
    "Solution",
    "Uniform",
    "aggregators",
    "attack",
    "batches",
    "cases",
    "channels",
    "compare",
    "dicesgd",
    "equilibria",
    "estimators",
    "families",
    "fedavg",
    "losses",
    "multi_agent_pp",
    "number",
    "optimal_point",
    "optimisers",
    "p_fedavg",
    "participation",
    "pcsgd",
    "per_client",
    "pg",
    "pofl",
    "populations",
    "privacy",
    "profl",
    "repeated_gradient_descent",
    "repeated_risk_minimization",
    "run",
    "schedules",
    "stable_point",
    "sweep",
    "theory",
]
