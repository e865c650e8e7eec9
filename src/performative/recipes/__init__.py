"""Algorithms by name, each a short combination of parts. Every slot can be replaced by keyword."""

from performative.recipes.methods import confidence_bounds, no_regret, one_point, plug_in, robust, snapshots, two_point
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
from performative.recipes.servers import afl, fedadam, fedavgm, fedyogi, qffl

__all__ = [
    "afl",
    "cluster_fedvarp",
    "confidence_bounds",
    "dicesgd",
    "fedadam",
    "fedavg",
    "fedavgm",
    "fedexp",
    "fednova",
    "fedprox",
    "fedvarp",
    "fedyogi",
    "multi_agent_pp",
    "no_regret",
    "one_point",
    "p_fedavg",
    "pcsgd",
    "pg",
    "plug_in",
    "pofl",
    "profl",
    "qffl",
    "robust",
    "scaffold",
    "snapshots",
    "two_point",
]
