"""Whether play near a point of a game settles, from the linearization of a round there."""

import dataclasses
import itertools
import math
from typing import Any

import jax
import numpy as np

from performative._base.arguments import checked
from performative.algorithm import Algorithm
from performative.facts import cites, declared
from performative.game import Game
from performative.schedules import Constant
from performative.solve.games import nash_game, player_blocks, stable_game
from performative.solve.landscape import Landscape
from performative.solve.roots import TOLERANCE
from performative.solve.sampling import check_samples
from performative.solve.seats import keeps_past, survey_game
from performative.types import Theta

# A spectral radius this close to 1 is inconclusive.
_EDGE = 1e-6
# Largest number of sets of movers whose mean square is computed, and of parameters in all models together.
_SETS, _SQUARE = 200, 24


@dataclasses.dataclass(frozen=True, eq=False)
class Outlook:
    """What play does near a point, in the mean over samples.

    Attributes:
        verdict: "settles" or "leaves" if play started near the point returns to it or diverges from it; "unknown" if
            neither was shown, with the reason in `reason`
        radius: the factor by which a round multiplies distances in the long run, NaN if unknown; below 1 play settles
        turns: whether play circles the point; None if unknown
        period: rounds per turn, inf if it does not turn
        point: the models [players, ...] that were examined, None if there were none
        reason: in words
    """

    verdict: str
    radius: float
    turns: bool | None
    period: float
    point: Any
    reason: str


@cites("narang2023multiplayer", "piliouras2023multiagent")
@checked
def play_outlook(game: Game, algorithm: Algorithm, point: Theta = None, *, samples: int | None = None) -> Outlook:
    """Whether players who use this algorithm settle near `point`: None for the stable point, or for the Nash point if
    the algorithm differentiates through the data (`Performative(None, term="pathwise")`).

        simultaneous    rho(T) < 1,   T the derivative of one round in all models
        alternating     rho(T_G ... T_1)^(1/G) < 1,   T_g where the g-th players move
        random          rho(E[T (x) T])^(1/2) < 1 settles,   rho(E[T]) > 1 leaves,   "unknown" between the two

    This concerns the mean and a neighborhood: batch noise keeps models moving, and far away anything may happen
    (`pf.play_verdict` examines a run). Supported: constant rates, plain means of plain gradients deployed each step or
    each round, and players with one client or one local step; anything else is "unknown", with the reason.
    """
    played = game.played_by(algorithm)
    foresees = algorithm.estimator.learns_reaction and getattr(algorithm.estimator, "window", 0) is None
    why = _why_not(game, played, foresees)
    if why:
        return Outlook("unknown", math.nan, None, math.inf, None, why)
    with jax.enable_x64(True):
        land, x = survey_game(game, point, check_samples(samples), "point")
        land = dataclasses.replace(land, foresees=foresees)
        if point is None:
            find = nash_game if foresees else stable_game
            try:
                x = land.flat(find(game, None, TOLERANCE, samples)[0].theta)
            except ValueError as error:
                return Outlook("unknown", math.nan, None, math.inf, None, str(error))
        at = land.shaped(x)
        gradient = land.value(x, x)[1][: land.size]
        why = _why_not_there(land, x, gradient)
        if why:
            return Outlook("unknown", math.nan, None, math.inf, at, why)
        hessian = land.curvature(x, x)
        blocks = player_blocks(land, game.count)
        return _judge(game, _Map(hessian[: land.size], blocks, played), at)


def _why_not(game: Game, algorithm: Algorithm, foresees: bool) -> str:
    """Why a round of this algorithm is not supported, "" if it is."""
    plain: list[Any] = [algorithm.channel, algorithm.aggregator] + ([] if foresees else [algorithm.estimator])
    strange = [type(part).__name__ for part in plain if not declared(part, "is_plain")]
    steps = algorithm.participation.steps_of(game.clients, algorithm.local_steps)
    even = steps is not None and np.all(np.asarray(steps) == algorithm.local_steps)
    if strange:
        return f"the effect of {' and '.join(strange)} on a gradient is not known here."
    if not isinstance(algorithm.rate, Constant):
        return "the rate changes from step to step; use a constant one."
    if not algorithm.deploy.each_step and (foresees or algorithm.deploy.period != 1 or not algorithm.deploy.is_regular):
        return 'models are not deployed each step; use deploy="step" or, for plain gradients, "round".'
    if not even or (game.play == "simultaneous" and not algorithm.participation.is_full):
        return "clients do different amounts of work, or it varies by round."
    if algorithm.local_steps > 1 and game.count < game.clients:
        return "players of several clients with more than one local step: their clients drift apart."
    return ""


def _why_not_there(land: Landscape, x: np.ndarray, gradient: np.ndarray) -> str:
    if land.domain is not None and not np.allclose(land.project_slope(x - 1e-9 * gradient), np.eye(land.size)):
        return "the point lies on the boundary of the domain."
    if not np.all(np.isfinite(gradient)) or np.max(np.abs(gradient)) > 1e-5 * (1.0 + np.max(np.abs(x))):
        return f"play does not rest at this point: the gradient there is {np.max(np.abs(gradient)):.3g}."
    if keeps_past(land, x):
        return "people remember past models, so the state is more than the models."
    hessian = land.curvature(x, x)
    if hessian is None or not np.all(np.isfinite(hessian)):
        return "there are too many second derivatives, or they are non-finite."
    return ""


class _Map:
    """Derivatives of rounds in all models, [d, d]; `slopes` [d, 2d] those of all gradients in own and deployed."""

    def __init__(self, slopes: np.ndarray, blocks: np.ndarray, algorithm: Algorithm):
        d = len(slopes)
        self.H, self.C, self.blocks = slopes[:, :d], slopes[:, d:], blocks
        self.eta, self.steps = float(np.asarray(algorithm.eta(0))), algorithm.local_steps
        self.each_step = algorithm.deploy.each_step

    def of(self, movers: Any) -> np.ndarray:
        """A round in which these players move."""
        out = np.eye(len(self.H))
        for g in movers:
            mine = self.blocks[g]
            own, others = self.H[np.ix_(mine, mine)], self.C[mine].copy()
            if self.each_step:  # people respond to each step of their own player's model
                own = own + others[:, mine]
                others[:, mine] = 0.0
            step, power, total = np.eye(len(mine)) - self.eta * own, np.eye(len(mine)), np.zeros_like(own)
            for _ in range(self.steps):
                total, power = total + power, power @ step
            out[mine] = -self.eta * total @ others
            out[np.ix_(mine, mine)] += power
        return out


def _judge(game: Game, play: _Map, at: Any) -> Outlook:
    count, k = game.count, game.movers
    if game.play == "random":
        return _judge_random(play, count, k, at)
    rounds = 1 if game.play == "simultaneous" else count // math.gcd(count, k)
    cycle = np.eye(len(play.H))
    for r in range(rounds):
        movers = range(count) if game.play == "simultaneous" else [(r * k + j) % count for j in range(k)]
        cycle = play.of(movers) @ cycle
    values = np.linalg.eigvals(cycle)
    leading = values[np.argmax(np.abs(values))]
    radius, angle = float(np.abs(leading)) ** (1 / rounds), abs(float(np.angle(leading)))
    turns = bool(angle > 1e-9 and np.abs(leading) > 0)
    period = 2 * math.pi / angle * rounds if turns else math.inf
    how = f"a round multiplies distances by {radius:.6g} in the long run"
    how += f", turning once in {period:.3g} rounds." if turns else "."
    return Outlook(_word(radius, radius), radius, turns, period, at, how)


def _judge_random(play: _Map, count: int, k: int, at: Any) -> Outlook:
    d = len(play.H)
    if math.comb(count, k) > _SETS or d > _SQUARE:
        why = f"random play of {count} players with {d} parameters is too large to compute."
        return Outlook("unknown", math.nan, None, math.inf, at, why)
    rounds = [play.of(movers) for movers in itertools.combinations(range(count), k)]
    mean = np.mean(rounds, axis=0)
    square = np.mean([np.kron(one, one) for one in rounds], axis=0)
    least = float(np.max(np.abs(np.linalg.eigvals(mean))))
    most = math.sqrt(float(np.max(np.abs(np.linalg.eigvals(square)))))
    how = f"a round multiplies distances by {most:.6g} in mean square, and their mean by {least:.6g}."
    return Outlook(_word(least, most), most, None, math.inf, at, how)


def _word(least: float, most: float) -> str:
    return "settles" if most < 1.0 - _EDGE else "leaves" if least > 1.0 + _EDGE else "unknown"
