"""Versioned environments for comparing learners: each reacts to deployed models, tracks a budget, and is solved."""

from performative.suite.budget import Budget, BudgetSpent
from performative.suite.checking import Checkup, check_environment
from performative.suite.environment import Environment
from performative.suite.gym_adapter import gymnasium_env
from performative.suite.registry import families, ids, make, register
from performative.suite.setting import Clipping, Setting

__all__ = [
    "Budget",
    "BudgetSpent",
    "Checkup",
    "Clipping",
    "Environment",
    "Setting",
    "check_environment",
    "families",
    "gymnasium_env",
    "ids",
    "make",
    "register",
]
