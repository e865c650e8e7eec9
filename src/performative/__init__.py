"""Federated learning when deploying the model changes the data."""

import sys
from types import ModuleType
from typing import TYPE_CHECKING, Any

from performative._base.lazy import later
from performative._version import __version__ as __version__

if TYPE_CHECKING:
    from performative import (
        aggregators,
        batches,
        callbacks,
        cases,
        channels,
        estimators,
        executors,
        families,
        losses,
        networks,
        optimizers,
        participation,
        partition,
        paths,
        populations,
        privacy,
        schedules,
        sharing,
        tables,
        theory,
        types,
    )
    from performative._base.messages import PerformativeWarning
    from performative._engine import Checkpoint, Clock, estimate_memory
    from performative._engine.run import run
    from performative.algorithm import Algorithm
    from performative.assess import Assessment, assess
    from performative.batches import Fixed, Poisson, Shuffled, Uniform, Whole
    from performative.certify import Certificate, certify
    from performative.compare import compare
    from performative.deploy import Every, Explore, Growing, Late
    from performative.design import Conditions, Design, design
    from performative.diagnostics import average_drift
    from performative.diagnostics.selection_skew import selection_skew
    from performative.domains import Ball, Box
    from performative.game import Game
    from performative.history import History
    from performative.inference import Confidence, confidence
    from performative.moments import Forecast, Moments, Stability, forecast, moments
    from performative.moments.stability import stability
    from performative.moments.tune import tune
    from performative.moments.tuned import Tuned
    from performative.papers.citations import cite
    from performative.participation import (
        Asynchronous,
        Available,
        Cyclic,
        FirstK,
        Full,
        LocalWork,
        PowerOfChoice,
        SchemeOne,
        SchemeTwo,
    )
    from performative.plan import Cost, Plan, Tracking, plan
    from performative.privacy import Privacy
    from performative.problem import Problem
    from performative.recipes import (
        afl,
        cluster_fedvarp,
        confidence_bounds,
        dicesgd,
        fedadam,
        fedavg,
        fedavgm,
        fedexp,
        fednova,
        fedprox,
        fedvarp,
        fedyogi,
        multi_agent_pp,
        no_regret,
        one_point,
        p_fedavg,
        pcsgd,
        pg,
        plug_in,
        pofl,
        profl,
        qffl,
        robust,
        scaffold,
        snapshots,
        two_point,
    )
    from performative.record import Metric, Record
    from performative.scoreboard import Scoreboard, scoreboard
    from performative.solve import (
        Outlook,
        SharedPoint,
        Solution,
        Verdict,
        equilibria,
        mixed_regret,
        nash_point,
        optimal_point,
        play_outlook,
        play_verdict,
        player_risks,
        repeated_gradient_descent,
        repeated_risk_minimization,
        social_point,
        stable_point,
    )
    from performative.sweep import sweep
    from performative.types import number, per_client, whole
    from performative.watch import Watch, WatchReport, watch

__all__ = [
    "Algorithm",
    "Assessment",
    "Asynchronous",
    "Available",
    "Ball",
    "Box",
    "Certificate",
    "Checkpoint",
    "Clock",
    "Conditions",
    "Confidence",
    "Cost",
    "Cyclic",
    "Design",
    "Every",
    "Explore",
    "FirstK",
    "Fixed",
    "Forecast",
    "Full",
    "Game",
    "Growing",
    "History",
    "Late",
    "LocalWork",
    "Metric",
    "Moments",
    "Outlook",
    "PerformativeWarning",
    "Plan",
    "Poisson",
    "PowerOfChoice",
    "Privacy",
    "Problem",
    "Record",
    "SchemeOne",
    "SchemeTwo",
    "Scoreboard",
    "SharedPoint",
    "Shuffled",
    "Solution",
    "Stability",
    "Tracking",
    "Tuned",
    "Uniform",
    "Verdict",
    "Watch",
    "WatchReport",
    "Whole",
    "afl",
    "aggregators",
    "assess",
    "average_drift",
    "batches",
    "callbacks",
    "cases",
    "certify",
    "channels",
    "cite",
    "cluster_fedvarp",
    "compare",
    "confidence",
    "confidence_bounds",
    "design",
    "dicesgd",
    "equilibria",
    "estimate_memory",
    "estimators",
    "executors",
    "families",
    "fedadam",
    "fedavg",
    "fedavgm",
    "fedexp",
    "fednova",
    "fedprox",
    "fedvarp",
    "fedyogi",
    "forecast",
    "losses",
    "mixed_regret",
    "moments",
    "multi_agent_pp",
    "nash_point",
    "networks",
    "no_regret",
    "number",
    "one_point",
    "optimal_point",
    "optimizers",
    "p_fedavg",
    "participation",
    "partition",
    "paths",
    "pcsgd",
    "per_client",
    "pg",
    "plan",
    "play_outlook",
    "play_verdict",
    "player_risks",
    "plug_in",
    "pofl",
    "populations",
    "privacy",
    "profl",
    "qffl",
    "repeated_gradient_descent",
    "repeated_risk_minimization",
    "robust",
    "run",
    "scaffold",
    "schedules",
    "scoreboard",
    "selection_skew",
    "sharing",
    "snapshots",
    "social_point",
    "stability",
    "stable_point",
    "sweep",
    "tables",
    "theory",
    "tune",
    "two_point",
    "types",
    "watch",
    "whole",
]

# Everything is loaded on first access: modules, and names in modules.
_MODULES = (
    "aggregators", "audit", "batches", "callbacks", "cases", "channels", "data", "estimators",
    "executors", "families", "live", "losses", "networks", "optimizers", "papers", "participation",
    "partition", "paths", "plotting", "populations", "privacy", "report", "schedules", "sharing",
    "sklearn", "suite", "tables", "testing", "theory", "types",
)  # fmt: skip
_NAMES = {
    "_base.messages": "PerformativeWarning",
    "_engine": "Checkpoint Clock estimate_memory",
    "_engine.run": "run",
    "algorithm": "Algorithm",
    "assess": "Assessment assess",
    "batches": "Fixed Poisson Shuffled Uniform Whole",
    "certify": "Certificate certify",
    "compare": "compare",
    "deploy": "Every Explore Growing Late",
    "design": "Conditions Design design",
    "diagnostics": "average_drift",
    "diagnostics.selection_skew": "selection_skew",
    "domains": "Ball Box",
    "game": "Game",
    "history": "History",
    "inference": "Confidence confidence",
    "moments": "Forecast Moments Stability forecast moments",
    "moments.stability": "stability",
    "moments.tune": "tune",
    "moments.tuned": "Tuned",
    "papers.citations": "cite",
    "participation": "Asynchronous Available Cyclic FirstK Full LocalWork PowerOfChoice SchemeOne SchemeTwo",
    "plan": "Cost Plan Tracking plan",
    "privacy": "Privacy",
    "problem": "Problem",
    "recipes": (
        "afl cluster_fedvarp confidence_bounds dicesgd fedadam fedavg fedavgm fedexp fednova fedprox fedvarp "
        "fedyogi multi_agent_pp no_regret one_point p_fedavg pcsgd pg plug_in pofl profl qffl robust scaffold "
        "snapshots two_point"
    ),
    "record": "Metric Record",
    "scoreboard": "Scoreboard scoreboard",
    "solve": (
        "Outlook SharedPoint Solution Verdict equilibria mixed_regret nash_point optimal_point play_outlook "
        "play_verdict player_risks repeated_gradient_descent repeated_risk_minimization social_point "
        "stable_point"
    ),
    "sweep": "sweep",
    "types": "number per_client whole",
    "watch": "Watch WatchReport watch",
}  # fmt: skip
_PLACES = {name: module for module, names in _NAMES.items() for name in names.split()}


class _Face(ModuleType):
    """This package. A loaded module does not replace the function of the same name: `pf.plan(...)`."""

    def __setattr__(self, name: str, value: Any) -> None:
        if not (name in _PLACES and isinstance(value, ModuleType)):
            super().__setattr__(name, value)


__getattr__ = later(__name__, _PLACES, _MODULES)


def __dir__() -> list[str]:
    """Only the public names."""
    return sorted({*__all__, *_MODULES, "__version__"})


sys.modules[__name__].__class__ = _Face
