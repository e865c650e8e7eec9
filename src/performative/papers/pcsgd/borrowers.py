"""Strategic borrowers of Give Me Some Credit: accuracy of models, and where learning settles, exactly.

loss (7): (1 + y)(log(1 + exp(x.theta)) - y x.theta) + penalty |theta|^2 / 2,   x = x_bar - beta y u(theta)
u(theta) = theta / max(floor, |theta|)                                                        (Example 2.3)
"""

from typing import NamedTuple

import numpy as np
from scipy.integrate import solve_ivp
from scipy.optimize import approx_fprime, minimize, root
from scipy.special import expit

import performative as pf


class Borrowers(NamedTuple):
    """A table, how far its people move, and the penalty."""

    x: np.ndarray
    y: np.ndarray
    beta: float
    floor: float
    penalty: float

    def scores(self, models: np.ndarray) -> np.ndarray:
        """x.theta once people have reacted to theta, [models, rows]."""
        size = np.linalg.norm(models, axis=1, keepdims=True)
        return models @ self.x.T - self.beta * self.y * size**2 / np.maximum(self.floor, size)

    def rates(self, models: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """True positive and true negative rate of 1{x.theta > 0}, [models] each."""
        told = self.scores(models) > 0
        return told[:, self.y == 1].mean(axis=1), 1 - told[:, self.y == 0].mean(axis=1)

    def risk(self, models: np.ndarray) -> np.ndarray:
        """The performative risk, [models]."""
        score = self.scores(models)
        loss = (1 + self.y) * (np.logaddexp(0, score) - self.y * score)
        return loss.mean(axis=1) + self.penalty / 2 * np.sum(models**2, axis=1)

    def reacted(self, theta: np.ndarray) -> np.ndarray:
        """x under theta."""
        return self.x - self.beta * np.outer(self.y, theta / max(self.floor, float(np.linalg.norm(theta))))

    def response_error(self, theta: np.ndarray, count: int = 5) -> float:
        """Largest distance of x under theta from the maximizer of Example 2.3's utility, over `count` who can react."""
        chosen = np.flatnonzero(self.y == 1)[:count]
        size = max(self.floor, float(np.linalg.norm(theta)))
        # beta times the utility, negated, so both terms have the same scale.
        found = [
            minimize(lambda x, at=at: self.beta * theta @ x / size + np.sum((x - at) ** 2) / 2, at, tol=1e-10).x
            for at in self.x[chosen]
        ]
        return float(np.linalg.norm(np.asarray(found) - self.reacted(theta)[chosen], axis=1).max())

    def gradients(self, theta: np.ndarray, clip: float = np.inf) -> np.ndarray:
        """grad l of each person under D(theta), clipped, [rows, d]."""
        x = self.reacted(theta)
        each = ((1 + self.y) * (expit(x @ theta) - self.y))[:, None] * x + self.penalty * theta
        return each * np.minimum(1, clip / np.linalg.norm(each, axis=1, keepdims=True))

    def settle(self, clip: float = np.inf) -> np.ndarray:
        """Root of the mean clipped gradient: theta_PS without clipping, else PCSGD's fixed point."""
        theta = np.full(self.x.shape[1], 0.01)
        for _ in range(200):  # plain steps to get close, then a root finder
            theta = theta - 0.5 * self.gradients(theta, clip).mean(axis=0)
        found = root(lambda at: self.gradients(at, clip).mean(axis=0), theta, tol=1e-12)
        if np.linalg.norm(found.fun) > 1e-9:
            raise RuntimeError(f"no fixed point found at clip={clip}: the mean gradient is {found.fun}.")
        return np.asarray(found.x)

    def drift(self, start: np.ndarray, time: float, clip: float) -> np.ndarray:
        """Follow d theta / ds = -E clip(grad l) to s = `time`: noiseless PCSGD with small steps of that sum."""
        found = solve_ivp(lambda _, at: -self.gradients(at, clip).mean(axis=0), (0, time), start, "LSODA", rtol=1e-6)
        return np.asarray(found.y[:, -1])

    def slopes(self, stable: np.ndarray) -> np.ndarray:
        """Jacobian of the mean gradient at theta_PS, reaction included, [d, d]."""
        return np.asarray(approx_fprime(stable, lambda at: self.gradients(at).mean(axis=0), 1e-6))

    def unbiased_square(self, start: np.ndarray, stable: np.ndarray, eta: np.ndarray, sigma: float) -> float:
        """E |theta_T - theta_PS|^2 of steps along unclipped gradients plus noise, linearized at theta_PS.

        DiceSGD equals this up to gamma times its memory, which vanishes.
        """
        slopes, noise = self.slopes(stable), np.cov(self.gradients(stable).T) + sigma**2 * np.eye(len(start))
        middle, spread = start - stable, np.zeros_like(noise)
        for step in eta.tolist():
            keep = np.eye(len(start)) - step * slopes
            middle, spread = keep @ middle, keep @ spread @ keep.T + step**2 * noise
        return float(middle @ middle + np.trace(spread))

    def curvature(self, theta: np.ndarray) -> tuple[float, float]:
        """Smallest eigenvalue of the Hessian of f(. ; theta) at theta, >= mu; largest |d grad l / d x|, <= L."""
        x = self.reacted(theta)
        chance = expit(x @ theta)
        weight = (1 + self.y) * chance * (1 - chance)
        hessian = x.T @ (weight[:, None] * x) / len(x) + self.penalty * np.eye(x.shape[1])
        # (1 + y)(chance - y) I + weight x theta': at least the norm of its product with theta / |theta|.
        unit = theta / np.linalg.norm(theta)
        along = ((1 + self.y) * (chance - self.y))[:, None] * unit + (weight * np.linalg.norm(theta))[:, None] * x
        return float(np.linalg.eigvalsh(hessian)[0]), float(np.linalg.norm(along, axis=1).max())


def read(problem: pf.Problem) -> Borrowers:
    """The one client of `pf.cases.strategic_credit("pcsgd")`."""
    people, loss = problem.population, problem.loss
    if not (isinstance(people, pf.populations.Strategic) and isinstance(loss, pf.losses.Logistic)):
        raise ValueError("read needs the strategic-borrower problem with a linear model and the logistic loss.")
    return Borrowers(
        np.asarray(people.x[0], np.float64), np.asarray(people.y[0], np.float64),
        float(np.ravel(people.strength)[0]), float(people.floor), float(loss.penalty),
    )  # fmt: skip
