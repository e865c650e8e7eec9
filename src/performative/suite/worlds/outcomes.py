"""Labels and clicks that react to what is predicted or shown."""

import numpy as np

from performative import data, losses, partition
from performative.data import DATA_SETS
from performative.problem import SCALED_BY_ROWS, Problem
from performative.suite.budget import Budget
from performative.suite.parts.outcomes import Clicks, Labels, Targets
from performative.suite.registry import register
from performative.suite.setting import Setting


def _labels(reaction: np.ndarray, seed: int) -> Setting:
    rng = np.random.default_rng(seed)
    clients, rows, d = len(reaction), 120, 4
    x = np.concatenate([rng.standard_normal((clients, rows, d)), np.ones((clients, rows, 1))], axis=-1)
    truth = np.array([1.0, -0.8, 0.6, 0.0, -0.5]) + 0.2 * rng.standard_normal((clients, d + 1))
    problem = Problem(losses.logistic(0.02), Labels(x, truth, reaction))
    known = {"sensitivity": float(np.abs(reaction).mean()) / 4, "strong_convexity": 0.02}
    return Setting(problem, Budget(40, 40_000, 40), rows=50, constants=known, starts=2)


@register("outcome-fulfilling-v1", family="outcomes")
def fulfilling() -> Setting:
    """Self-fulfilling predictions: P(y = 1) = sigmoid(truth . x + r_i theta . x), r_i from 0 to 0.8
    at six clients. Labels respond to the score (a student predicted to drop out gets less attention): each retrained
    model is more confident than the last, and the optimal one is more confident still."""
    return _labels(np.linspace(0.0, 0.8, 6), 31)


@register("outcome-defeating-v1", family="outcomes")
def defeating() -> Setting:
    """Self-defeating predictions: P(y = 1) = sigmoid(truth . x - r_i theta . x), r_i from 0.5 to 2.5 at six
    clients (drivers avoid a predicted jam). Full retraining overshoots."""
    return _labels(-np.linspace(0.5, 2.5, 6), 32)


@register("outcome-diabetes-v1", family="outcomes")
def diabetes() -> Setting:
    """The diabetes table of scikit-learn at five clinics: treatment responds to the predicted progression, so the
    outcome becomes y + r_i theta . x, r_i from -0.9 to 0.1 (patients with a poor prognosis are treated more
    aggressively). Squared loss with L2 of 0.05; everything is linear. Real features and outcomes, simulated
    reaction."""
    table = data.diabetes()
    x = (table.x - table.x.mean(axis=0)) / table.x.std(axis=0)
    y = (table.y - table.y.mean()) / table.y.std()
    tables, targets, count = partition.tables(x, y, partition.iid(len(y), 5, 0))
    people = Targets(tables, targets, np.linspace(-0.9, 0.1, 5), count=count)
    problem = Problem(losses.ridge(0.05), people, weights=count / len(y), from_data=(SCALED_BY_ROWS,))
    known = {"strong_convexity": 0.05}
    return Setting(
        problem, Budget(40, 40_000, 40), rows=40, constants=known, license=DATA_SETS["diabetes"].license, starts=0
    )


@register("recommender-exposure-v2", family="outcomes")
def recommender() -> Setting:
    """Eight items shown in proportion to exp(2 theta_k) to people in five regions, who have largely similar tastes and
    click more on what they see more often: P(click) = sigmoid(taste_ik + f_i exposure_k), f_i from 0.5 to 6. The
    learner predicts clicks by theta_k; retraining makes the rich richer, and the optimal model shows almost only the
    item whose clicks are then easiest to predict. In version 1, tastes had nothing in common, and there was nothing to
    learn."""
    rng = np.random.default_rng(41)
    taste = rng.normal(-1.5, 1.0, 8) + rng.normal(0.0, 0.3, (5, 8))
    people = Clicks(taste, np.linspace(0.5, 6.0, 5), 2.0)
    problem = Problem(losses.logistic(0.02), people)
    return Setting(
        problem, Budget(60, 60_000, 60), rows=100, constants={"strong_convexity": 0.02}, starts=2, advice="pf.two_point"
    )
