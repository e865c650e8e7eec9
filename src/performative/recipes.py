"""The papers' algorithms, each a short combination of parts. Every slot can be replaced by keyword."""

from typing import Any

from performative.algorithm import Algorithm
from performative.participation import Full


def p_fedavg(rate: Any, **parts: Any) -> Algorithm:
    """P-FedAvg: E local steps on data that react, then a mean of updates. Settles at the stable point.

    Jin et al. 2024, Section 2.4.
    """
    return Algorithm(**{"rate": rate, "name": "p_fedavg", **parts})


def fedavg(rate: Any, **parts: Any) -> Algorithm:
    """FedAvg as a static learner: the world is taken to be what the first model made of it.

    All data come from D(theta_0), so it settles at the minimiser of that risk: the baseline that ignores the shift.
    McMahan et al. 2017.
    """
    return Algorithm(**{"rate": rate, "deploy": "never", "name": "fedavg", **parts})


def multi_agent_pp(rate: Any, **parts: Any) -> Algorithm:
    """Multi-agent performative prediction on a complete graph: P-FedAvg with E = 1 and everyone present.

    Li, Yau and Wai 2022.
    """
    fixed = {"local_steps": 1, "participation": Full()}
    clash = [name for name in fixed if name in parts]
    if clash:
        raise ValueError(f"multi_agent_pp fixes E = 1 and full participation; drop {clash} or use p_fedavg.")
    return Algorithm(**{"rate": rate, "name": "multi_agent_pp", **fixed, **parts})
