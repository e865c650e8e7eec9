"""The references for models: risk, stable and optimal point, and the model that is never retrained."""

import functools
import warnings
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from performative._base.messages import PerformativeWarning
from performative.game import Game
from performative.problem import Problem
from performative.solve.games import social_point
from performative.solve.landscape import Landscape, View, survey
from performative.solve.minimize import minimize
from performative.solve.optimal import optimal_point
from performative.solve.roots import find_root, natural_residual
from performative.solve.seats import survey_game
from performative.solve.solution import Solution
from performative.solve.stable import equilibria, stable_point
from performative.suite.setting import Setting

Exact = Callable[[Any, Any], Any]


class Reference:
    """Risks and points of a setting, computed on first use, in float64."""

    def __init__(self, setting: Setting, met: Problem | Game, judged: Problem | Game):
        """`met`: the problem as the learner first sees it; `judged`: the problem that final models are scored on."""
        self._setting, self._met, self._judged = setting, met, judged

    @functools.cached_property
    def _land(self) -> tuple[Landscape, np.ndarray]:
        return self._survey(self._judged)

    def _survey(self, problem: Problem | Game) -> tuple[Landscape, np.ndarray]:
        with jax.enable_x64(True):
            if isinstance(problem, Game):
                return survey_game(problem, self._setting.start)
            return survey(problem, self._setting.start, name="start")

    @property
    def start(self) -> np.ndarray:
        """The first model, as an array."""
        land, x = self._land
        return np.asarray(self._shaped(land, x))

    def risks(self, models: np.ndarray) -> np.ndarray:
        """f(theta; theta) of each of the models [n, ...]; in a game, the sum over players."""
        with jax.enable_x64(True):
            land, _ = self._land
            points = np.asarray(models, np.float64).reshape(len(models), -1)
            if self._setting.exact is None:
                return land.risks(points)
            return np.array([float(self._programs.value(np.concatenate([x, x]))) for x in points])

    @functools.cached_property
    def _programs(self) -> "_Programs":
        """Compiled programs of the exact risk."""
        exact, (land, _) = self._setting.exact, self._land
        assert exact is not None
        return _compiled(land, exact)

    @functools.cached_property
    def never(self) -> np.ndarray:
        """argmin f(. ; start): trained once on the data induced by the start, and never again.

        It uses the data that a learner first sees: before any drift, and including outliers.
        """
        with jax.enable_x64(True):
            land, x = self._land if self._met is self._judged else self._survey(self._met)
            view = self._decoupled(land, x)
            found = minimize(land, view, x)
            return np.asarray(self._shaped(land, found))

    @functools.cached_property
    def stable(self) -> Solution:
        """theta_PS, with its residual."""
        return self._find(self._setting.stable, self._solve_stable, self._equilibrium)

    @functools.cached_property
    def optimal(self) -> Solution:
        """theta_PO; in a game, the models with the lowest total cost over all players."""
        return self._find(self._setting.optimal, self._solve_optimal, self._performative)

    def residuals(self) -> tuple[float, float]:
        """Residuals of the stable and the optimal point; see `pf.Solution`."""
        return self.stable.residual, self.optimal.residual

    def _find(self, known: Any, solve: Callable[[], Solution], view_of: Callable[[Landscape], View]) -> Solution:
        with jax.enable_x64(True), warnings.catch_warnings():
            # The solution itself records that a point repels, or is known only up to sampling error.
            warnings.simplefilter("ignore", PerformativeWarning)
            land, _ = self._land
            if known is None:
                return solve()
            x = land.flat(np.asarray(known, np.float64))
            return self._solution(land, view_of(land), x, "closed form")

    def _solution(self, land: Landscape, view: View, x: np.ndarray, method: str) -> Solution:
        residual = natural_residual(land, view, x)
        slope, own = self._equilibrium(land).slope(x), self._decoupled(land, x).slope(x)
        factor = np.nan
        if slope is not None and own is not None and np.linalg.cond(own) < 1e12:
            factor = float(np.max(np.abs(np.linalg.eigvals(np.linalg.solve(own, own - slope)))))
        attracting = None if np.isnan(factor) else factor < 1
        return Solution(self._shaped(land, x), residual, method, view.value(x), 0.0, factor, attracting)

    def _solve_stable(self) -> Solution:
        if self._setting.exact is None:
            return self._solve_from_start()
        land, x = self._land
        view = self._equilibrium(land)
        return self._solution(land, view, find_root(land, view, x)[0], "root of the exact gradient")

    def _solve_from_start(self) -> Solution:
        problem, start = self._judged, self._setting.start
        if self._setting.starts is None or isinstance(problem, Game):
            found = stable_point(problem, start, report=True)
            assert isinstance(found, Solution)
            return found
        points = equilibria(problem, [self.start], start=start)
        return next((point for point in points if point.attracting is not False), points[0])

    def _solve_optimal(self) -> Solution:
        start = np.asarray(self.stable.theta)
        if self._setting.exact is not None:
            land, _ = self._land
            view = self._performative(land)
            return self._solution(land, view, minimize(land, view, land.flat(start)), "descent on the exact risk")
        if isinstance(self._judged, Game):
            found = social_point(self._judged, start, report=True)
        else:
            found = optimal_point(self._judged, start, self._setting.starts, report=True)
        assert isinstance(found, Solution)
        return found

    def _shaped(self, land: Landscape, x: np.ndarray) -> Any:
        with jax.enable_x64(True):
            return land.shaped(x)

    def _equilibrium(self, land: Landscape) -> View:
        return land.equilibrium() if self._setting.exact is None else _view(self._programs, (1, 0), (1, 1))

    def _performative(self, land: Landscape) -> View:
        return land.performative() if self._setting.exact is None else _view(self._programs, (1, 1), (1, 1))

    def _decoupled(self, land: Landscape, deployed: np.ndarray) -> View:
        if self._setting.exact is None:
            return land.decoupled(deployed)
        return _view(self._programs, (1, 0), (1, 0), deployed)


class _Programs(NamedTuple):
    """An exact risk f(theta, deployed) as a function of both arguments in one vector [2d], compiled once."""

    size: int
    value: Callable[..., Any]
    gradient: Callable[..., Any]
    hessian: Callable[..., Any]


def _compiled(land: Landscape, exact: Exact) -> _Programs:
    d = land.size

    def risk(at: Any) -> Any:
        return exact(land.model(at[:d]), land.model(at[d:]))

    return _Programs(d, jax.jit(risk), jax.jit(jax.grad(risk)), jax.jit(jax.hessian(risk)))


def _view(
    programs: _Programs, part: tuple[int, int], move: tuple[int, int], deployed: np.ndarray | None = None
) -> View:
    """The view of an exact risk: which arguments its gradient is taken with respect to, and which move with x."""
    d, value, gradient, hessian = programs

    def both(x: np.ndarray) -> Any:
        return jnp.concatenate([jnp.asarray(x), jnp.asarray(x if deployed is None else deployed)])

    def of_gradient(whole: np.ndarray) -> np.ndarray:
        return part[0] * whole[:d] + part[1] * whole[d:]

    def second(x: np.ndarray) -> np.ndarray:
        whole = np.asarray(hessian(both(x)))
        rows = part[0] * whole[:d] + part[1] * whole[d:]
        return move[0] * rows[:, :d] + move[1] * rows[:, d:]

    return View(lambda x: (float(value(both(x))), np.asarray(gradient(both(x)))), of_gradient, second)
