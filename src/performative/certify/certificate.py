"""What is known about a problem before a deployment: numbers, a verdict, and the reasons."""

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
    """What is known about the points of a problem apart from their location; see `Certificate`."""

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
    """Will retraining settle, where, and at what cost? `print` it for the answer in words.

    `sufficient` is a condition for convergence from every start (Jin et al. 2024, Proposition 2.8). Statements about
    the stable point are necessary and sufficient near it; if there are several, it is the attracting one nearest to the
    start.

    Attributes:
        mu, L: f(. ; deployed) is mu-strongly convex (2.1); the gradient of one sample's loss changes by at most L
            (|theta - theta'| + |z - z'|) (2.2): L = max(L_theta, L_data)
        mu_exact, L_exact: whether they hold everywhere. Otherwise they were measured at `models` models and `rows`
            samples, in the ball around the stable point that contains the start, the static and optimal points and the
            nearest other equilibria: the true mu can be smaller and the true L larger
        sensitivity: eps_i [N] of W_1(D_i(theta), D_i(theta')) <= eps_i |theta - theta'| (2.3), with `lower` and
            `upper`: 95% limits for the largest over the `pairs` of models compared, from `draws` samples per client;
            all three are equal if sensitivity_source is "analytic" rather than "estimated"
        eps_bar: sum_i p_i eps_i, from eps_bar_lower to eps_bar_upper; eps_max the largest eps_i
        threshold: mu / L
        sufficient: eps_bar < mu / L; None if the limits do not decide it or nothing was computed
        contraction: spectral radius of d Phi / d theta, Phi the retraining map; NaN if Phi is undefined.
            contraction_error: its standard error, due to the draws used for expectations
        multiplier: the factor by which one retraining multiplies an error, signed if it is a single real number
        attracting: whether retraining settles there from nearby; settles: whether small gradient steps do. None if
            unknown
        on_edge: whether the point lies on the boundary of the domain, held there by a gradient that points outward
        jumps: whether the data jump as the model moves, so derivatives at the point are uninformative
        deeper: a model with a lower risk on the data of the stable point: training that finds the global minimum leaves
            the stable point. None if none was found
        others: other equilibria that were found. unique: True if proved, False if there are others, None if no other
            was found (no proof) or there is no stable point
        reached: if there are others, the point at which exact retraining from the start ends; None if it is none of
            them or was not tried
        stable, optimal, static: points shaped like the model, or None; static is the result of training once on the
            data of the start, or the model you passed
        stable_disagrees, optimal_disagrees: whether the population declares a point where the gradient is not zero or
            the risk is lower elsewhere; lower_elsewhere, falls_far_out: whether the optimal point is a local one
        distance: |stable - optimal|; relative_cost: (stable_risk - optimal_risk) / |optimal_risk|. optimal_known:
            whether the optimal point has a closed form; otherwise it is the best point found
        static_gap: |static - stable|; error: standard deviation of training along that direction, as given or from the
            sizes of the tables; chance: probability that a newly trained model lies nearer to the wrong one of the two;
            detectable: True if that is at most 5%, False if it is 30% or more, None in between or if unknown
        stable_risk, optimal_risk, static_risk: performative risks f(theta; theta); NaN if there is no such point
        drifts: whether the data change on their own. Everything else then refers to the data frozen at time `since`:
            from then on they stand still or move in a straight line, or (`since` 0) neither is known. still: whether
            the stable point stands still from then on, None if unknown; `moves` is the remaining case. speed: how far
            it moves per unit of time; lag: how far behind it retraining once per unit of time stays, step_lag: eta
            times the lag of gradient steps of constant size eta; lag_bound: an upper bound on the lag if the path is
            not a line. NaN if unknown
        stateful: whether the data remember past models; spells: how often the world moves under each model, None for as
            often as it takes. contraction, multiplier, attracting and reached are then those of model and worlds
            jointly, with one retraining every `spells` moves; mu, L and the sensitivities are those of settled data
        memory_rate: upper bound on the fraction of the error in felt models and model that one retraining leaves, from
            every start, if the data only remember felt models that trail the deployed one (`Sluggish`, `Pools`); NaN
            for any other memory: then nothing is guaranteed for data that have not settled
        on_word: what third-party parts declare about themselves and is used here unverified
        findings: all of this as data, from which `verdict`, `reasons` and `print` generate text
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
        """Whether eps_bar < mu / L_data even at its upper limit: what retraining to the minimum actually requires.

            |Phi(theta) - Phi(theta')| <= eps_bar L_data / mu |theta - theta'|

        L_theta does not enter. Perdomo et al. 2020, Theorem 3.5. False if a second equilibrium rules it out, or if the
        data remember past models in a way the theorem does not cover (see `covers_memory`).
        """
        return self.mu > 0 and self.eps_bar_upper * self.L_data < self.mu and not self.others and self.covers_memory

    @property
    def covers_memory(self) -> bool:
        """Whether the condition for settled data is also sufficient for model and worlds jointly."""
        return not self.stateful or self.spells is None or not math.isnan(self.memory_rate)

    @property
    def proved(self) -> bool:
        """Whether `contracts` holds with numbers valid everywhere: then retraining settles from every start.

        False if they rely on a part author's declaration (`on_word`).
        """
        return self.proved_on_word and not self.on_word

    @property
    def proved_on_word(self) -> bool:
        """As `proved`, provided everything in `on_word` is true."""
        return self.contracts_everywhere and not self.moves

    @property
    def contracts_everywhere(self) -> bool:
        """`contracts`, with numbers valid everywhere."""
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
        """Sentences: what the theorems guarantee, what was measured, what it costs."""
        return words.reasons(self.findings)

    def __str__(self) -> str:
        return words.summary(self.findings)

    def _repr_html_(self) -> str:
        return card("Certificate", lines=self.reasons, lead=self.verdict)

    def to_dict(self) -> dict[str, Any]:
        """Everything as JSON types: arrays as lists, NaN as None."""
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
