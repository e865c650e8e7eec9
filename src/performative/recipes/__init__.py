"""Algorithms by name, each a short combination of parts. Every slot can be replaced by keyword."""

from performative.recipes.papers import (
    cluster_fedvarp,
    dicesgd,
    fedavg,
    fedexp,
    fednova,
    fedprox,
    fedvarp,
    multi_agent_pp,
    p_fedavg,
    pcsgd,
    pg,
    pofl,
    profl,
    scaffold,
)

__all__ = [
    "cluster_fedvarp",
    "dicesgd",
    "fedavg",
    "fedexp",
    "fednova",
    "fedprox",
    "fedvarp",
    "multi_agent_pp",
    "p_fedavg",
    "pcsgd",
    "pg",
    "pofl",
    "profl",
    "scaffold",
]
