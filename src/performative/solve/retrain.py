"""Retraining without noise: to the minimum after each deployment, or by one gradient step."""

import dataclasses
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import PyTree

from performative._base.arguments import Count, Values, checked
from performative._base.messages import coded
from performative._engine.prepare import check_schedule, on_device
from performative.algorithm import check_rate
from performative.facts import cites
from performative.problem import Problem
from performative.schedules import Constant, as_schedule
from performative.solve.landscape import Landscape, View, survey
from performative.solve.minimize import minimize, nearer
from performative.solve.roots import allowed, escaped, natural_residual, scatter
from performative.solve.sampling import check_samples, point_error, spread, tell_error
from performative.solve.worlds import first_worlds, moved_worlds
from performative.types import Theta

_STARTS = 8
# A curvature below this fraction of what each coordinate has had so far counts as zero.
_FLAT = 1e-10
# The problem at that time, the deployed model, and the clients' worlds.
_DataSet = tuple[Landscape, np.ndarray, PyTree]


@cites("perdomo2020performative", "khorsandi2025tight")
@checked
def repeated_risk_minimization(
    problem: Problem,
    theta: Theta = None,
    deployments: int = 10,
    *,
    spells: Count | None = 1,
    samples: int | None = None,
    snapshots: Count = 1,
    snapshot_weights: Values | None = None,
) -> Theta:
    """Repeatedly deploy, observe the world's response and train to the minimum; exact iterates, the start first.

        theta_{k+1} = Phi(theta_k) = argmin_theta f(theta; theta_k)

    Returns [deployments + 1, ...] per leaf, float64. theta=None starts at zeros. It settles at the stable point if Phi
    contracts (Perdomo et al. 2020, Theorem 3.5) and may diverge otherwise. If f(. ; theta_k) has no minimizer, or no
    unique one, it raises: set a domain on the problem. If the data change on their own (`Drifting`), theta_k meets the
    people of time k: one unit of time per deployment.

    Args:
        spells: how often the world moves under each model. It matters only if data remember past models (`Sluggish`):

                w_{k+1} = deploy(... deploy(w_k, theta_k) ..., theta_k),    theta_{k+1} = argmin_theta f(theta; w_{k+1})

            from w_0 = init(theta_0); None waits until the world is at rest. For people of speed s whose mean response
            is m + eps felt, an error shrinks by (1-s)^spells + eps (1 - (1-s)^spells). Brown, Hod and Kalemaj 2022.
        samples: draws per client if expectations have no exact rule, None for 2048
        snapshots: train on the data of the last k deployments:

                theta_{t+1} = argmin_theta sum_j w_j f(theta; theta_{t-j}),    j = 0 .. k-1

            if the mean of the data is m + eps theta and the loss is squared, it settles iff -k < eps < 1 for equal w_j.
            Khorsandi et al. 2025; `pf.snapshots` is the same with samples
        snapshot_weights: w_j, [k], newest first; None for equal weights. While there are fewer than k data sets, the
            weights of the available ones are renormalized
    """
    shares = _shares(snapshots, snapshot_weights)
    seen: list[_DataSet] = []  # the newest first

    def step(land: Landscape, deployed: np.ndarray, worlds: PyTree, number: int) -> np.ndarray:
        seen.insert(0, (land, deployed, worlds))
        del seen[len(shares) :]
        return _best_response(land, lambda land: _mean_risk(land, seen, shares), deployed, number)

    def error(land: Landscape, deployed: np.ndarray, worlds: PyTree, number: int, x: np.ndarray) -> float:
        return point_error(land, lambda other: _mean_risk(other, seen, shares), x)

    with jax.enable_x64(True):
        what = "repeated_risk_minimization: each model"
        return _path(problem, theta, deployments, spells, samples, step, error, what)


@cites("perdomo2020performative", "mendlerdunner2020stochastic")
@checked
def repeated_gradient_descent(
    problem: Problem,
    theta: Theta = None,
    rate: Any = 0.1,
    deployments: int = 10,
    *,
    spells: Count | None = 1,
    samples: int | None = None,
) -> Theta:
    """Repeatedly deploy, observe the world's response and take one exact gradient step; the start first.

        theta_{k+1} = P(theta_k - eta(k) grad_1 f(theta_k; theta_k))

    Returns [deployments + 1, ...] per leaf, float64. `rate` is a number or a schedule of k. theta=None starts at zeros.
    Small steps settle at the stable point if the eigenvalues of H + C have positive real part, which is weaker than
    what retraining to the minimum needs. Mendler-Dünner et al. 2020. `spells`, `samples` and time as in
    `repeated_risk_minimization`.
    """

    def step(land: Landscape, x: np.ndarray, worlds: PyTree, number: int) -> np.ndarray:
        return land.project(x - float(eta(jnp.asarray(number))) * land.decoupled(x, worlds).gradient(x))

    def error(land: Landscape, deployed: np.ndarray, worlds: PyTree, number: int, x: np.ndarray) -> float:
        return spread(land, lambda other: step(other, deployed, worlds, number))

    with jax.enable_x64(True):
        schedule = as_schedule(rate)
        if isinstance(schedule, Constant):
            check_rate(schedule.value)
        check_schedule(schedule)
        eta = on_device(schedule, jnp.float64)
        what = "repeated_gradient_descent: each step"
        return _path(problem, theta, deployments, spells, samples, step, error, what)


def _path(
    problem: Problem, theta: Theta, deployments: int, spells: int | None, samples: int | None,
    step: Callable[..., np.ndarray], error: Callable[..., float], what: str,
) -> Theta:  # fmt: skip
    """All models, the start first; step(landscape, deployed, worlds, number) is the next."""
    if deployments < 0:
        raise ValueError(f"deployments must be a whole number >= 0; got {deployments!r}.")
    first = problem.at(0.0)
    land, x = survey(first, theta, rest=False, samples=check_samples(samples))
    path, worlds = [x], first_worlds(land.problem, land.model(x))
    for number in range(deployments):
        if first is not problem:  # the problem at another time, of the same structure: no recompilation
            now = on_device(problem.at(float(number)), jnp.float64)
            land = dataclasses.replace(land, problem=Problem(now.loss, now.population))
        worlds = moved_worlds(land.problem, worlds, land.model(x), spells)
        x = step(land, x, worlds, number)
        path.append(x)
    if deployments:
        tell_error(what, error(land, path[-2], worlds, number, x), x)
    return jax.tree.map(lambda *leaves: np.stack(leaves), *(land.shaped(x) for x in path))


def _shares(snapshots: int, weights: Any) -> np.ndarray:
    """w_j of the last data sets, the newest first."""
    if weights is None:
        return np.ones(snapshots)
    shares = np.asarray(weights, np.float64)
    if shares.shape != (snapshots,) or np.any(shares < 0.0) or not shares[0] > 0.0:
        raise ValueError(
            f"repeated_risk_minimization: snapshot_weights must be {snapshots} (= snapshots) non-negative "
            f"numbers, newest first, the first one positive; got {weights!r}."
        )
    return shares


def _mean_risk(land: Landscape, seen: Sequence[_DataSet], shares: np.ndarray) -> View:
    """theta -> sum_j w_j f(theta; deployed_j) over the data sets seen, on the samples that `land` uses."""
    views = [
        dataclasses.replace(then, every=land.every, batch=land.batch).decoupled(deployed, worlds)
        for then, deployed, worlds in seen
    ]
    if len(views) == 1:
        return views[0]
    parts = shares[: len(views)] / np.sum(shares[: len(views)])

    def mean(values: Iterable[Any]) -> Any:
        return sum(part * value for part, value in zip(parts, values, strict=True))

    return View(
        lambda x: (mean(view.value(x) for view in views), mean(view.gradient(x) for view in views)),
        lambda gradient: gradient,
        lambda x: mean(view.slope(x) for view in views) if land.dense else None,
    )


def _best_response(
    land: Landscape, view_of: Callable[[Landscape], View], deployed: np.ndarray, number: int
) -> np.ndarray:
    """argmin_theta over the domain of the risk that training sees."""
    view = view_of(land)
    starts = [deployed]
    if not _convex(view, deployed) and land.dense:
        starts += scatter(land, deployed, _STARTS)  # there may be several local minima: use the lowest
    found = []
    for start in nearer(land, view_of, starts):
        x = minimize(land, view, start)
        if escaped(start, x):
            raise ValueError(_refusal(number, "is unbounded below"))
        found.append(x)
    best = min(found, key=view.value)
    residual = natural_residual(land, view, best)
    if residual > allowed(view, best):
        raise ValueError(_refusal(number, f"could not be minimized (residual {residual:.3g})"))
    if land.domain is None and _flat(view, deployed, best):
        raise ValueError(_refusal(number, "is flat in some direction: its minimizer is not unique, or infinite"))
    return best


def _refusal(number: int, why: str) -> str:
    return coded(
        "nothing-to-retrain-to",
        f"repeated_risk_minimization: at deployment {number + 1} the decoupled risk {why}; there is nothing "
        "to retrain to. Set a domain on the problem, such as pf.Box(lo, hi), or use a loss that is strongly convex "
        "in theta (a penalty); or use repeated_gradient_descent.",
    )


def _convex(view: View, x: np.ndarray) -> bool:
    hessian = view.slope(x)
    if hessian is None:
        return True
    values = np.linalg.eigvalsh(hessian)
    return bool(values[0] >= -1e-10 * abs(values[-1]))


def _flat(view: View, start: np.ndarray, x: np.ndarray) -> bool:
    """Whether the curvature at x is singular, each coordinate relative to its values at start and end.

    A risk without a minimizer (separable classes, no penalty) ends far out where all curvature has vanished.
    """
    first, last = view.slope(start), view.slope(x)
    if first is None or last is None:
        return False
    scale = np.maximum(np.abs(np.diag(first)), np.abs(np.diag(last)))
    if np.any(scale <= 0.0):
        return True
    return bool(np.linalg.eigvalsh(last / np.sqrt(np.outer(scale, scale)))[0] < _FLAT)
