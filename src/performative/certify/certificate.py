"""What is known of a problem before a deployment: numbers, a verdict, and the reasons."""

import dataclasses
import math
from typing import Any

import numpy as np

from performative._base.notebook import card
from performative.certify import words
from performative.certify.drift import AbstractDrift
from performative.findings import Finding, part, plain
from performative.solve.solution import Solution
from performative.types import Theta


@dataclasses.dataclass(frozen=True, eq=False, kw_only=True)
class AbstractPoints:
    """What is known of the points of a problem beside where they lie; see `Certificate`."""

    contraction: float = float("nan")
    contraction_error: float = 0.0
    multiplier: float = float("nan")
    attracting: bool | None = None
    settles: bool | None = None
    on_edge: bool = False
    jumps: bool = False
    others: tuple[Solution, ...] = ()
    no_stable: str | None = None
    no_optimal: str | None = None
    no_static: str | None = None
    falls_far_out: bool = False
    optimal_known: bool = False
    stable_disagrees: bool = False
    optimal_disagrees: bool = False
    lower_elsewhere: bool = False


@dataclasses.dataclass(frozen=True, eq=False, kw_only=True)
class Certificate(AbstractPoints, AbstractDrift):
    """Will retraining settle, where, and what does that cost? `print` it for the answer in words.

    `sufficient` is so for every start (Jin et al. 2024, Proposition 2.8); what is said of the stable point, of several
    the attracting one nearest to the start, is necessary and sufficient near it.

    Attributes:
        mu, L: f(. ; deployed) is mu-strongly convex (2.1); the gradient of one sample's loss changes by at most L
            (|theta - theta'| + |z - z'|) (2.2): L = max(L_theta, L_data)
        mu_exact, L_exact: whether they hold everywhere. Else they were measured at `models` models and `rows` samples,
            in the ball around the stable point that holds start, static and optimal point and the nearest other
            equilibria: the true mu can be smaller and the true L larger
        sensitivity: eps_i [N] of W_1(D_i(theta), D_i(theta')) <= eps_i |theta - theta'| (2.3), with `lower` and
            `upper`: 95 % limits for the largest over the `pairs` of models compared, from `draws` samples a client; all
            three alike where sensitivity_source is "analytic" and not "estimated"
        eps_bar: sum_i p_i eps_i, from eps_bar_lower to eps_bar_upper; eps_max the largest eps_i
        threshold: mu / L
        sufficient: eps_bar < mu / L; None where the limits do not decide it, or nothing was computed
        contraction: spectral radius of d Phi / d theta, Phi the retraining map; NaN where Phi is not defined.
            contraction_error: its standard error, from the draws that expectations are taken over
        multiplier: what one retraining multiplies an error by, signed where that is one real number
        attracting: whether retraining settles there from nearby; settles: whether small gradient steps do. None where
            that cannot be told
        on_edge: whether the point lies on the edge of the domain, held there by a gradient that points outside
        jumps: whether the data jump as the model moves, so that derivatives at the point say nothing of it
        deeper: a model with a lower risk on the data of the stable point: training that finds the lowest minimum leaves
            the stable point. None where none was found
        others: further equilibria that were found. unique: True where that is proved, False where there are others,
            None where no other was found (no proof), or none at all
        reached: where there are others, the point that exact retraining from the start ends at; None where that is none
            of them, or was not tried
        stable, optimal, static: points shaped like the model, None where there is none; static is what training once on
            the data of the start gives, or the model that was handed in
        stable_disagrees, optimal_disagrees: whether the population names a point where the gradient is not zero, or the
            risk is lower elsewhere; lower_elsewhere, falls_far_out: whether the optimal point is a local one
        distance: |stable - optimal|; relative_cost: (stable_risk - optimal_risk) / |optimal_risk|. optimal_known:
            whether the optimal point has a closed form; else it is the best that was found
        static_gap: |static - stable|; error: standard deviation of training along that way, as stated or from the sizes
            of the tables; chance: that a model trained anew lies nearer to the wrong one of the two; detectable: True
            where that is at most 5 %, False where it is 30 % or more, None between, or where it is not known
        stable_risk, optimal_risk, static_risk: performative risks f(theta; theta); NaN where there is no point
        drifts: whether the data change by themselves. All else is then about the data as they are at the time `since`,
            as if they stayed so: from then on they stand still or move in a straight line, or (`since` 0) neither is
            known. still: whether the stable point stands still from then on, None where that is not known; `moves`
            is what is left. speed: how far it moves in a unit of time; lag: how far behind it retraining once a unit of
            time stays, step_lag: eta times that of gradient steps of constant length eta; lag_bound: at most so
            far where the path is no line. NaN where not known
        stateful: whether the data remember past models; spells: how often the world moves under each model, None for as
            often as it takes. contraction, multiplier, attracting, reached are then those of model and worlds together,
            one retraining every so many spells; mu, L and the sensitivities are those of settled data
        memory_rate: what a retraining leaves at most of an error of felt models and model, from every start, where all
            that the data remember are felt models that trail the deployed one (`Sluggish`, `Pools`); NaN where the
            memory is another: then nothing is promised of data that have not settled
        on_word: what parts from elsewhere declare of themselves, and is used here: their author's word
        findings: all of it as data, of which `verdict`, `reasons` and `print` make words
    """

    clients: int
    mu: float
    L: float
    L_theta: float
    L_data: float
    mu_exact: bool
    L_exact: bool
    models: int
    rows: int
    sensitivity: np.ndarray
    lower: np.ndarray
    upper: np.ndarray
    sensitivity_source: str
    draws: int
    pairs: int
    eps_bar: float
    eps_bar_lower: float
    eps_bar_upper: float
    eps_max: float
    threshold: float
    sufficient: bool | None
    stable: Theta
    optimal: Theta
    static: Theta
    reached: Theta
    deeper: Theta
    start: Theta
    distance: float
    stable_risk: float
    optimal_risk: float
    static_risk: float
    relative_cost: float
    static_gap: float
    error: float | None
    error_source: str | None
    chance: float
    detectable: bool | None
    stateful: bool
    spells: int | None = 1
    memory_rate: float = float("nan")
    on_word: tuple[str, ...] = ()
    findings: tuple[Finding, ...] = ()

    @property
    def contracts(self) -> bool:
        """eps_bar < mu / L_data, upper limit and all: what retraining to the minimum really needs.

            |Phi(theta) - Phi(theta')| <= eps_bar L_data / mu |theta - theta'|

        L_theta does not enter. Perdomo et al. 2020, Theorem 3.5. False where a second equilibrium rules it out, or
        where the data remember past models in a way that the theorem does not cover (see `covers_memory`).
        """
        return self.mu > 0 and self.eps_bar_upper * self.L_data < self.mu and not self.others and self.covers_memory

    @property
    def covers_memory(self) -> bool:
        """Whether what is sufficient for settled data is so for model and worlds together."""
        return not self.stateful or self.spells is None or not math.isnan(self.memory_rate)

    @property
    def proved(self) -> bool:
        """Whether `contracts` is known with numbers that hold everywhere: then retraining settles from every start.

        Not where they rest on the word of a part's author (`on_word`).
        """
        return self.proved_on_word and not self.on_word

    @property
    def proved_on_word(self) -> bool:
        """The same, if all that is in `on_word` is true."""
        return self.contracts_everywhere and not self.moves

    @property
    def contracts_everywhere(self) -> bool:
        """`contracts`, with numbers that hold everywhere."""
        return self.contracts and self.mu_exact and self.L_exact and self.sensitivity_source == "analytic"

    @property
    def unique(self) -> bool | None:
        """Whether the stable point is the only one."""
        if self.stable is None or self.others:
            return None if self.stable is None else False
        return True if self.proved else None

    @property
    def verdict(self) -> str:
        """The answer in one sentence."""
        return words.WORDS.tell(part(self.findings, "verdict"))

    @property
    def reasons(self) -> tuple[str, ...]:
        """Sentences: what the theorems promise, what was measured, what it costs."""
        return words.reasons(self.findings)

    def __str__(self) -> str:
        return words.summary(self.findings)

    def _repr_html_(self) -> str:
        return card("Certificate", lines=self.reasons, lead=self.verdict)

    def to_dict(self) -> dict[str, Any]:
        """All of it for JSON: arrays as lists, None for what is not a number."""
        told = {"findings": words.WORDS.to_json(self.findings)}
        out = {
            field.name: plain(getattr(self, field.name)) for field in dataclasses.fields(self) if field.name not in told
        }
        out["others"] = [
            {name: plain(getattr(point, name)) for name in ("theta", "risk", "contraction", "attracting", "settles")}
            for point in self.others
        ]
        facts = {name: getattr(self, name) for name in ("contracts", "proved", "unique", "moves")}
        return out | facts | {"verdict": self.verdict, "reasons": list(self.reasons), **told}
