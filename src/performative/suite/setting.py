"""What the function of an environment returns: a problem, a start, what may be spent, and what is known."""

import dataclasses
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from performative.game import Game
from performative.problem import Problem
from performative.suite.budget import Budget

# What a learner may see of a deployment.
SEES = ("data", "losses", "means")
MADE_UP = "none needed: made up by this package (Apache-2.0), describes nobody"


@dataclasses.dataclass(frozen=True)
class Clipping:
    """What stands between people and a learner that sees means only.

        mean over n rows of  z min(1, clip / |z|)  +  N(0, (noise_multiplier clip / n)^2)

    Each row is a new person, so that one person is in one release: (epsilon, delta) is what that release promises.
    """

    clip: float
    noise_multiplier: float
    epsilon: float
    delta: float


@dataclasses.dataclass(frozen=True, eq=False)
class Setting:
    """An environment as it is written down.

    Args:
        problem: a problem, or a game (models [players, ...])
        budget: what a learner may spend
        rows: of each client that a deployment shows unless the learner asks for another number
        start: the first model, in force when the learner comes; None for zeros
        sees: "data", "losses" (l(theta; z) of each row and nothing else), or "means" (clipped means with noise)
        judged: the problem that models are scored on where it is another, such as without outliers
        exact: f(theta, deployed), the risk in closed form, for losses that no quadrature is exact for
        stable, optimal: theta_PS and theta_PO where they are known in closed form
        constants: what is known: "sensitivity", "strong_convexity", "smoothness", "noise", ...
        license: of the data
        answers: chance that a client sends its rows after a deployment, [N]; None where all always do
        work: share of its rows, or of its local steps, that a client gets through before the next deployment, [N];
            None where all get through all
        clipping: with sees="means"
        starts: from how many scattered models the optimal point is searched, and the stable one from the start alone;
            None for the solver's own choice of both
        advice: which algorithm of this package to try first
    """

    problem: Problem | Game
    budget: Budget
    rows: int
    start: Any = None
    sees: str = "data"
    judged: Problem | None = None
    exact: Callable[[Any, Any], Any] | None = None
    stable: Any = None
    optimal: Any = None
    constants: Mapping[str, float] = dataclasses.field(default_factory=dict)
    license: str = MADE_UP
    answers: Any = None
    work: Any = None
    clipping: Clipping | None = None
    starts: int | None = None
    advice: str = "pf.p_fedavg"

    def __post_init__(self) -> None:
        if self.sees not in SEES:
            raise ValueError(f"Setting: sees must be one of {', '.join(map(repr, SEES))}; got {self.sees!r}.")
        if (self.sees == "means") != (self.clipping is not None):
            raise ValueError('Setting: clipping goes with sees="means", and the other way round.')
        if self.rows < 1:
            raise ValueError(f"Setting: rows must be a whole number >= 1; got {self.rows!r}.")
        for name, what in (("answers", "a chance"), ("work", "a share")):
            given, clients = getattr(self, name), self.problem.clients
            if given is None:
                continue
            share = np.asarray(given, np.float64)
            if share.shape != (clients,) or not np.all((share > 0) & (share <= 1)):
                raise ValueError(
                    f"Setting: {name} must hold {what} in (0, 1] for each of the {clients} clients; got {given!r}."
                )
        if self.answers is not None and self.work is not None:
            raise ValueError("Setting: give answers or work; an environment has one of them.")
