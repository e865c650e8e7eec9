"""The papers' algorithms, each a short combination of parts. Every slot can be replaced by keyword."""

import dataclasses
from typing import Any

from performative.algorithm import Algorithm
from performative.errors import nearest
from performative.participation import Full


def _combine(name: str, rate: Any, defaults: dict[str, Any], parts: dict[str, Any]) -> Algorithm:
    """A recipe's record: its own parts, replaced by those given."""
    known = [field.name for field in dataclasses.fields(Algorithm) if field.name != "rate"]
    for slot in parts:
        if slot not in known:
            raise ValueError(f"{name} has no argument {slot!r}.{nearest(slot, known)}")
    return Algorithm(**{"rate": rate, "name": name, **defaults, **parts})


def p_fedavg(rate: Any, **parts: Any) -> Algorithm:
    """P-FedAvg: E local steps on data that react, then a mean of updates. Settles at the stable point.

    Jin et al. 2024, Section 2.4.
    """
    return _combine("p_fedavg", rate, {}, parts)


def fedavg(rate: Any, **parts: Any) -> Algorithm:
    """FedAvg as a static learner: the world is taken to be what the first model made of it.

    All data come from D(theta_0), so it settles at the minimiser of that risk: the baseline that ignores the shift.
    McMahan et al. 2017.
    """
    return _combine("fedavg", rate, {"deploy": "never"}, parts)


def multi_agent_pp(rate: Any, **parts: Any) -> Algorithm:
    """Multi-agent performative prediction on a complete graph: P-FedAvg with E = 1 and everyone present.

    Li, Yau and Wai 2022.
    """
    fixed = {"local_steps": 1, "participation": Full()}
    clash = [name for name in fixed if name in parts]
    if clash:
        raise ValueError(f"multi_agent_pp fixes E = 1 and full participation; drop {clash} or use p_fedavg.")
    return _combine("multi_agent_pp", rate, fixed, parts)
