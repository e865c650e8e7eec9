"""An environment: a white box with exact answers, and a black box that takes models and returns rows."""

import dataclasses
import functools
import zlib
from collections.abc import Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from performative._base.arguments import checked
from performative._base.checks import check_counts
from performative._engine.prepare import on_device
from performative.game import Game
from performative.problem import Problem
from performative.solve.solution import Solution
from performative.suite.budget import Budget, BudgetSpent
from performative.suite.parts.releases import Released
from performative.suite.people import draw_rows, first_worlds, next_worlds
from performative.suite.reference import Reference
from performative.suite.setting import Clipping, Setting

Rows = dict[str, np.ndarray]


class Environment:
    """A world that reacts to deployed models, as `pf.suite.make` returns it.

    White box: `problem` (or `game`), `start`, `stable`, `optimal` and `never` are the ground truth.
    Black box: `reset(seed)`, then `deploy(theta)` while `left` allows; `score(theta)` evaluates the last model.

    Attributes:
        id, family, version, card: name and description
        problem: a `pf.Problem`; game: a `pf.Game` if there are several learners, else None
        budget: the total budget; spent, left: so far; refusals: deployments refused because they exceed the budget
        rows: rows per client that a deployment returns by default
        sees: "data", "losses" or "means": what a deployment reveals
        constants: known constants of sensitivity, curvature and noise
        license: of the data; advice: which algorithm to try first
        answers: probability that a client sends its rows, [N]; None if all always do
        work: fraction of its rows that a client processes within one deployment, [N]; None if all process all
        clipping: clipping and noise between people and a learner that sees only means, else None
    """

    def __init__(self, id: str, family: str, version: int, card: str, setting: Setting):
        self.id, self.family, self.version, self.card = id, family, version, card
        self._setting = setting
        whole = setting.problem
        self.game = whole if isinstance(whole, Game) else None
        self.problem: Problem = whole.problem if isinstance(whole, Game) else whole
        self.budget, self.rows, self.sees = setting.budget, setting.rows, setting.sees
        self.constants: Mapping[str, float] = dict(setting.constants)
        self.license, self.advice = setting.license, setting.advice
        self.clipping: Clipping | None = setting.clipping
        self.answers = None if setting.answers is None else np.asarray(setting.answers, np.float64)
        self.work = None if setting.work is None else np.asarray(setting.work, np.float64)
        met = self.problem.at(0.0) if self.game is None else self.game
        self._reference = Reference(setting, met, self._judged())
        self.start = self._reference.start
        with jax.enable_x64(True):
            self._on = on_device(self.problem, jnp.float64)
            self._players = None if self.game is None else jnp.asarray(self.game.players, jnp.int32)
        self.reset(0)

    def __repr__(self) -> str:
        return f"Environment({self.id!r}, {self.clients} clients, theta {self.shape}, left={self.left})"

    @property
    def clients(self) -> int:
        """N."""
        return self.problem.clients

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of a model; in a game, of all players' models together."""
        return self.start.shape

    @property
    def shown(self) -> Problem | Game:
        """What a learner faces: the problem, or its noisy means if it sees only those; a game includes its start."""
        if self.game is not None:
            return Game(self.game.problem, self.game.players, self.game.play, self.game.movers, self.start)
        if self.clipping is None:
            return self.problem
        people = Released(self.problem.population, self.rows, self.clipping.clip, self.clipping.noise_multiplier)
        return dataclasses.replace(self.problem, population=people)

    @property
    def promise(self) -> tuple[float, float] | None:
        """(epsilon, delta) that a learner must guarantee each person over all deployments; None if not required.

        If it sees only noisy means, those already provide the guarantee.
        """
        if self.clipping is not None or "epsilon" not in self.constants:
            return None
        return self.constants["epsilon"], self.constants["delta"]

    @property
    def stable(self) -> Solution:
        """theta_PS, with its residual; if the world drifts over time, at the end of the budget."""
        return self._reference.stable

    @property
    def optimal(self) -> Solution:
        """theta_PO, with its residual; in a game, the models with the lowest total cost over all players."""
        return self._reference.optimal

    @property
    def never(self) -> np.ndarray:
        """The model trained once, on the data induced by the start, and never retrained."""
        return self._reference.never

    @property
    def left(self) -> Budget:
        """The remaining budget."""
        return self.budget.less(self.spent)

    @checked
    def reset(self, seed: int = 0) -> Rows:
        """Reset the world and return the rows induced by the start, free of charge. Same seed, same numbers."""
        self.seed, self.spent, self.refusals = seed, Budget(0, 0, 0), 0
        with jax.enable_x64(True):
            theta, now = jnp.asarray(self.start), jnp.asarray(0.0)
            worlds = first_worlds(self._on, theta, now, self._players)
            self._worlds = next_worlds(self._on, worlds, theta, now, self._players)
        return self._look(self.start, self.rows)

    @checked
    def deploy(self, theta: Any, rows: int | None = None, spells: int = 1) -> Rows:
        """Deploy a model and return the data that people generate in response.

        Args:
            theta: of shape `shape`, inside `problem.domain`
            rows: number of rows per client; None for `self.rows`
            spells: time steps to wait before observing; each costs one unit of time, including the first

        Returns {"x": [N, n, ...], "y": [N, n]}, or {"z": [N, n, ...]}; {"loss": [N, n]} if only losses are visible,
        {"mean": [N, ...]} if only means are. If clients may fail to respond, the result also has {"present": [N]}, and
        rows of absent clients are NaN, or 0 for integers. If clients are slow, it also has {"rows": [N]}, the number of
        rows each client processed; the remaining rows are NaN or 0 likewise.
        """
        model = self._read(theta)
        count = self.rows if rows is None else rows
        check_counts(rows=count, spells=spells)
        cost = Budget(1, count * self.clients, spells)
        if lacking := self.left.lacks(cost):
            self.refusals += 1
            raise BudgetSpent(
                f"deploy: {self.id} does not have enough budget left ({'; '.join(lacking)}). Nothing was deployed. "
                "Request fewer rows or spells, score the last model, or call reset(seed)."
            )
        with jax.enable_x64(True):
            for spell in range(spells):
                now = jnp.asarray(float(self.spent.time + spell + 1))
                self._worlds = next_worlds(self._on, self._worlds, jnp.asarray(model), now, self._players)
        self.spent = self.spent + cost
        return self._look(model, count)

    def risk(self, theta: Any) -> float:
        """f(theta; theta) once the world has settled, exact or by a fixed rule; in a game, the sum over players."""
        return float(self.risks(self._read(theta, "risk")[None])[0])

    def risks(self, models: Any) -> np.ndarray:
        """Risks of many models [n, ...] at once, which takes little longer than one."""
        rows = np.asarray(models, np.float64)
        if rows.shape[1:] != self.shape or not len(rows):
            raise ValueError(f"risks: models must have shape (n, *{self.shape}) in {self.id}; got {rows.shape}.")
        return self._reference.risks(rows)

    def score(self, theta: Any) -> float:
        """The fraction of the gap between never retraining and the oracle that theta closes.

            (f(never) - f(theta)) / (f(never) - f(theta_PO)),   f(theta) = f(theta; theta)

        1 is the optimal point, 0 is no better than the model that is never retrained; scores may be negative.
        """
        return self.score_of(self.risk(theta))

    def score_of(self, risk: Any) -> Any:
        """The score of a model with this risk, or of several models."""
        worst, best = self._never_risk, float(self.optimal.risk)
        return (worst - risk) / (worst - best)

    @functools.cached_property
    def _never_risk(self) -> float:
        return self.risk(self.never)

    def _judged(self) -> Problem | Game:
        if self._setting.judged is not None:
            return self._setting.judged
        return self.problem.at(float(self.budget.time)) if self.game is None else self.game

    def _read(self, theta: Any, owner: str = "deploy") -> np.ndarray:
        """Convert a model to float64; raise if it is invalid."""
        try:
            model = np.asarray(theta, np.float64)
        except (TypeError, ValueError):
            raise ValueError(f"{owner}: theta must be an array of numbers; got {theta!r}.") from None
        if model.shape != self.shape:
            raise ValueError(
                f"{owner}: theta must have shape {self.shape} in {self.id}; got {model.shape}. Start from env.start."
            )
        if not np.all(np.isfinite(model)):
            bad = int(np.sum(~np.isfinite(model)))
            raise ValueError(
                f"{owner}: theta must be finite, but {bad} of {model.size} entries are not. Use a smaller step size, "
                "or go back to the last finite model."
            )
        away = float(np.max(np.abs(self.project(model) - model), initial=0.0))
        if away > 1e-9 * (1.0 + float(np.max(np.abs(model), initial=0.0))):
            raise ValueError(
                f"{owner}: theta must lie inside {self.problem.domain}; it is {away:.3g} outside. Pass "
                "env.project(theta)."
            )
        return model

    def project(self, theta: Any) -> np.ndarray:
        """Return the nearest model in the domain."""
        domain, model = self.problem.domain, np.asarray(theta, np.float64)
        if domain is None:
            return model
        with jax.enable_x64(True):
            project = domain.project if self.game is None else jax.vmap(domain.project)
            return np.asarray(project(jnp.asarray(model)))

    @functools.cached_property
    def _key(self) -> Any:
        return jax.random.key(zlib.crc32(self.id.encode()), impl="threefry2x32")

    def _look(self, model: np.ndarray, rows: int) -> Rows:
        number, now = self.spent.deployments, float(self.spent.time)
        with jax.enable_x64(True):
            key = jax.random.fold_in(jax.random.fold_in(self._key, self.seed % 2**32), number)
            z, loss = draw_rows(self._on, self._worlds, jnp.asarray(model), jnp.asarray(now), self._players, key, rows)
        rng = np.random.default_rng([zlib.crc32(self.id.encode()), self.seed % 2**32, number])
        seen = _named(z) if self.sees == "data" else {"loss": np.asarray(loss)}
        if self.clipping is not None:
            seen = {"mean": _noisy_means(np.asarray(z), self.clipping, rng)}
        if self.work is not None:
            return _worked(seen, np.maximum(1, (self.work * rows).astype(np.int64)))
        return seen if self.answers is None else _answered(seen, self.answers, rng)


def _named(z: Any) -> Rows:
    if isinstance(z, tuple):
        return dict(zip(("x", "y"), map(np.asarray, z), strict=True))
    return {"z": np.asarray(z)}


def _noisy_means(z: np.ndarray, clipping: Clipping, rng: np.random.Generator) -> np.ndarray:
    flat = z.reshape(*z.shape[:2], -1)
    norm = np.linalg.norm(flat, axis=-1, keepdims=True)
    kept = flat * np.minimum(1.0, clipping.clip / np.maximum(norm, 1e-300))
    noise = rng.standard_normal((flat.shape[0], flat.shape[2])) * clipping.noise_multiplier * clipping.clip
    return ((kept.sum(axis=1) + noise) / z.shape[1]).reshape(z.shape[0], *z.shape[2:])


def _answered(seen: Rows, chance: np.ndarray, rng: np.random.Generator) -> Rows:
    """Draw which clients respond, and keep their rows."""
    present = rng.uniform(size=len(chance)) < chance
    return {**{name: _kept(values, present) for name, values in seen.items()}, "present": present}


def _worked(seen: Rows, count: np.ndarray) -> Rows:
    """Keep the rows that each client had time to process."""
    kept = {}
    for name, values in seen.items():
        kept[name] = _kept(values, np.arange(values.shape[1]) < count[:, None])
    return {**kept, "rows": count}


def _kept(values: np.ndarray, here: np.ndarray) -> np.ndarray:
    """Replace values outside `here` by NaN, or by 0 for integers; `here` has the leading axes of `values`."""
    wide = here.reshape(*here.shape, *(1,) * (values.ndim - here.ndim))
    return np.where(wide, values, np.nan if values.dtype.kind == "f" else 0).astype(values.dtype)
