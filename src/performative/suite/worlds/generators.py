"""Generators that consume what they make."""

import numpy as np

from performative.problem import Problem
from performative.suite.budget import Budget
from performative.suite.parts.generators import Composed, ComposedLikelihood, Generated, normal_likelihood
from performative.suite.registry import register
from performative.suite.setting import Setting


@register("generator-gaussian-v1", family="generators")
def gaussian() -> Setting:
    """A normal model, theta = (mean, log of the standard deviation), trained by likelihood on data of which a third is
    real, N(2, 2.25), and the rest its own. The stable point is the truth; with few rows a generation the variance
    shrinks on the way. A model that foresees what it feeds on makes itself narrower, by sqrt(1/3): lower risk, worse
    samples."""
    mean, scale, real = 2.0, 1.5, 1.0 / 3.0
    problem = Problem(normal_likelihood, Generated(np.array([mean]), scale, real))
    return Setting(
        problem, Budget(60, 12_000, 60), rows=100, start=np.zeros(2),
        stable=np.array([mean, np.log(scale)]), optimal=np.array([mean, np.log(scale * np.sqrt(real))]),
        constants={"real_share": real, "noise": scale},
    )  # fmt: skip


@register("generator-federation-v1", family="generators")
def federation() -> Setting:
    """One normal generator for eight sites with real shares from 0.1 to 0.8 and real means from -2 to 2: sites with
    little real data repeat to it what it said before, so that those with much decide where it settles."""
    real = np.linspace(0.1, 0.8, 8)
    problem = Problem(normal_likelihood, Generated(np.linspace(-2.0, 2.0, 8), 1.0, real))
    known = {"real_share": float(real.mean()), "noise": 1.0}
    return Setting(problem, Budget(60, 48_000, 60), rows=50, start=np.zeros(2), constants=known, starts=2)


@register("generator-mixture-v1", family="generators")
def mixture() -> Setting:
    """A mixture of four known components whose shares are learnt from data of which four tenths are real, at three
    sites; the rest was made by the model. Retraining finds the real shares, rare components last; foreseen, the model
    would rather make what is easy to predict."""
    share = np.array([[0.4, 0.3, 0.2, 0.1], [0.1, 0.2, 0.3, 0.4], [0.7, 0.1, 0.1, 0.1]])
    center, scale = np.array([-4.0, -1.0, 1.5, 5.0]), 0.7
    problem = Problem(ComposedLikelihood(center, scale), Composed(share, 0.4, center, scale))
    known = {"real_share": 0.4, "noise": scale}
    return Setting(
        problem, Budget(60, 36_000, 60), rows=100, constants=known, start=np.array([1.0, 1.0, 1.0]), starts=2
    )
