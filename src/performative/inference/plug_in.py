"""Averaged iterates with the curvature and the noise of the problem at the estimate."""

import warnings

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from performative._base.describe import describe, differences
from performative._base.messages import PerformativeWarning
from performative.algorithm import Algorithm
from performative.draws import WithReplacement
from performative.facts import declared
from performative.inference.linear import Average, Draws, Local, averages
from performative.inference.outcome import Spread, share_of
from performative.inference.series import Recorded, kept_records
from performative.plan.near import derivatives
from performative.problem import Problem
from performative.solve.landscape import Landscape, survey
from performative.solve.worlds import remembers
from performative.types import Theta

# There is a matrix of second derivatives per client and repeat: for larger models, batch means are used.
_LARGEST = 64
# Derivatives that differ by less than this share count as constant.
_ALIKE = 1e-9
# If more than this many records vary more, or less, than problem and algorithm imply by this factor, say so.
_RECORDS, _FACTOR = 50, 2.0
# If the start has more than this weight in the mean of the models, the run is too short.
_START = 0.5


def unknown(problem: Problem, algorithm: Algorithm, size: int) -> str | None:
    """Why no linear map describes the variation of such a run with a model of that size; None if one does."""
    N, E = problem.clients, algorithm.local_steps
    if size > _LARGEST:
        return f"models of {size} parameters, more than {_LARGEST}"
    for slot in ("estimator", "channel", "aggregator"):
        part = getattr(algorithm, slot)
        if not declared(part, "is_plain"):
            return f"{slot}={type(part).__name__}"
    if not algorithm.sharing.is_one:
        return f"sharing={type(algorithm.sharing).__name__}"
    deploy, who = algorithm.deploy, algorithm.participation
    if not deploy.each_step and (deploy.period != 1 or deploy.lag or not deploy.is_regular):
        return "a deployment other than every round"
    if declared(who, "weight_moments", np.asarray(problem.client_weights, np.float64)) is None:
        return f"participation={type(who).__name__}, whose weights have no known moments"
    steps = who.steps_of(N, E)
    if steps is None or np.any(steps != E):
        return "clients with unequal work"
    rows = problem.population.capacity
    if rows is not None and not isinstance(declared(algorithm.batch, "sampling", rows), WithReplacement):
        return f"batch={type(algorithm.batch).__name__}, whose samples are not independent"
    return None


def check_same(history: Recorded, problem: Problem, algorithm: Algorithm) -> None:
    """Refuse an algorithm or clients other than those of the run."""
    config = history.meta.get("config")
    if config is not None and (other := differences(config, describe(algorithm))):
        raise ValueError(f"confidence: algorithm is not that of the run: {'; '.join(other[:3])}.")
    if len(history.weights) != problem.clients:
        raise ValueError(f"confidence: the run had {len(history.weights)} clients, the problem has {problem.clients}.")


def plug_in(history: Recorded, problem: Problem, algorithm: Algorithm, x: np.ndarray, first: Theta) -> Spread:
    """The bias-corrected mean of recorded models x [repeats, records, d], with its covariance.

        mean = theta_PS + W (theta_0 - theta_PS) + c(theta_PS) + noise,      solved for theta_PS by one Newton step

    W is the remaining weight of the start, c the bias from local steps and curvature at a finite rate; they and the
    covariance follow from the linear map that a round is near the estimate: curvature H_i + C_i, pulls and noise of
    clients, weights of cohorts, all steps of the schedule. With T rounds of E = 1 and a slowly vanishing rate

        T cov -> J^-1 V J^-T,      J = sum_i p_i (H_i + C_i),      V the covariance of one aggregated gradient

    as in Polyak and Juditsky 1992. Derivatives are averaged over the spread of the run (a rule of 2d nodes), which is
    exact if they are quadratic. The only fact used about theta_PS is that the pulls cancel there on average.
    """
    kept = kept_records(history.rounds)
    mean, start = x[:, kept].mean(axis=1), x[:, 0]
    with jax.enable_x64(True), warnings.catch_warnings():
        warnings.simplefilter("ignore", PerformativeWarning)
        land, _ = survey(problem, first)
        size = float(algorithm.batch.expected(problem.population))
        eta = steps_of(algorithm, int(history.rounds[-1]))
        counted = np.isin(np.arange(1, len(eta) + 1), history.rounds[kept])
        told = declared(algorithm.participation, "weight_moments", np.asarray(problem.client_weights, np.float64))
        draws = Draws(*(jnp.asarray(part, jnp.float64) for part in (told.pair, told.own, told.square)))

        def average(near: Local) -> Average:
            found = averages(
                near, jnp.asarray(start - mean), land.weights, eta, jnp.asarray(counted), draws,
                algorithm.deploy.each_step,
            )  # fmt: skip
            return jax.tree.map(np.asarray, found)

        near, bend = _near(land, mean, size), np.zeros_like(mean)
        found = average(near)
        if not _is_linear(land, mean, size, near):
            wide, bend = _widened(land, mean, np.asarray(found.single), size)
            found = average(wide)
        memory = remembers(land.problem, land.like)
    out = _inverse(np.eye(mean.shape[1]) - found.W + found.B)
    slope = np.einsum("i,rijk->rjk", np.asarray(land.weights), np.asarray(near.H + near.C))
    c = found.c - np.einsum("rjk,rk->rj", _inverse(slope), bend) if np.any(bend) else found.c
    center = mean + np.einsum("rjk,rk->rj", out, np.einsum("rjk,rk->rj", found.W, mean - start) - c)
    covariance = out @ found.covariance @ np.swapaxes(out, 1, 2)
    doubts = _doubts(slope, found, x[:, kept], memory)
    return Spread(center, covariance, np.inf, int(np.sum(kept)), "plug-in", doubts)


def steps_of(algorithm: Algorithm, rounds: int) -> Float[Array, "T E"]:
    """The step sizes of all local steps."""
    t = jnp.arange(rounds * algorithm.local_steps)
    return jax.vmap(algorithm.eta)(t).astype(jnp.float64).reshape(rounds, -1)


@eqx.filter_jit
def _at(land: Landscape, points: Float[Array, "R d"]) -> tuple[Array, ...]:
    return jax.lax.map(lambda x: derivatives(land, x)[:4], points)


def _near(land: Landscape, points: np.ndarray, size: float) -> Local:
    """Derivatives at each point, with centered pulls: their mean would reveal the stable point."""
    pull, H, J, noise = _at(land, jnp.asarray(points))
    pull = pull - jnp.einsum("i,rij->rj", land.weights, pull)[:, None]
    return Local(pull, H, J - H, noise / size)


def _is_linear(land: Landscape, points: np.ndarray, size: float, near: Local) -> bool:
    """Whether curvature and noise are the same a short distance away."""
    spread = 1.0 + np.abs(points[:1])
    other = _near(land, points[:1] + 0.1 * spread, size)
    pairs = ((np.asarray(a)[:1], np.asarray(b)) for a, b in zip(near[1:], other[1:], strict=True))
    return all(np.max(np.abs(a - b)) <= _ALIKE * (np.max(np.abs(a)) + _ALIKE) for a, b in pairs)


def _widened(land: Landscape, points: np.ndarray, single: np.ndarray, size: float) -> tuple[Local, np.ndarray]:
    """Means of the derivatives over N(point, single), and the resulting offset of the mean gradient, [R, d]."""
    values, vectors = np.linalg.eigh((single + np.swapaxes(single, 1, 2)) / 2)
    d = points.shape[1]
    root = vectors * np.sqrt(d * np.maximum(values, 0.0))[:, None, :]
    found = []
    for j in range(d):
        found += [_at(land, jnp.asarray(points + sign * root[:, :, j])) for sign in (1.0, -1.0)]
    pull, H, J, noise = (sum(np.asarray(one[k]) for one in found) / len(found) for k in range(4))
    weights = np.asarray(land.weights)
    here = np.asarray(_at(land, jnp.asarray(points))[0])
    bend = np.einsum("i,rij->rj", weights, pull - here)
    pull = pull - np.einsum("i,rij->rj", weights, pull)[:, None]
    return Local(*(jnp.asarray(part) for part in (pull, H, J - H, noise / size))), bend


def _inverse(matrices: np.ndarray) -> np.ndarray:
    """Inverses; NaN for singular matrices."""
    found = np.full_like(matrices, np.nan)
    good = np.all(np.isfinite(matrices), axis=(1, 2))
    good[good] = np.linalg.det(matrices[good]) != 0
    found[good] = np.linalg.inv(matrices[good])
    return found


def _doubts(slope: np.ndarray, found: Average, x: np.ndarray, memory: bool) -> tuple[str, ...]:
    W = np.asarray(found.W)
    away = ~np.all(np.isfinite(W), axis=(1, 2)) | ~np.all(np.isfinite(slope), axis=(1, 2))
    away[~away] = np.linalg.eigvals(slope[~away]).real.min(axis=1) <= 0
    if np.any(away):
        told = f"in {share_of(away)} small steps, or steps of this rate, diverge from a stable point near the estimate"
        return (f"{told}: the run cannot have settled there.",)
    left = np.linalg.norm(W, 2, axis=(1, 2))
    if np.any(left > _START):
        return (f"in {share_of(left > _START)} the run is too short: its mean is mostly the start.",)
    seen = float(np.median(np.var(x, axis=1).sum(axis=1)))
    said = float(np.median(np.einsum("rjj->r", found.single) - np.einsum("rjj->r", found.covariance)))
    if not memory and x.shape[1] > _RECORDS and np.all(left < 0.05) and not said / _FACTOR <= seen <= said * _FACTOR:
        told = f"the recorded models vary {seen / max(said, 1e-300):.2g} times as much as problem and algorithm imply"
        return (f"{told}, so one of the two does not match the run.",)
    return ()
