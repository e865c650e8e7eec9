"""Points and their flags compared with the truth, in worlds whose answers are known exactly."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import performative as pf
from performative._base.messages import code_of
from performative.populations import (
    AbstractPopulation,
    Contaminated,
    Database,
    Gaussian,
    Mixture,
    Pricing,
    Regression,
    Sluggish,
)
from performative.populations.nodes import standard_nodes

pytestmark = pytest.mark.filterwarnings("ignore:.*repelling-point")


def ask(find, *arguments, **options):
    """The answer, and the code where there is none."""
    try:
        return find(*arguments, **options), None
    except ValueError as refusal:
        return None, code_of(refusal)


def close(found, known, within=1e-7):
    return bool(np.max(np.abs(np.asarray(found) - known)) <= within * (1 + np.max(np.abs(known))))


def compare_linear(tally, name, problem, slope, level, hessian, world):
    """A world where grad_1 f(theta; deployed) = hessian theta - slope deployed - level, matrices of [d, d]."""
    found, code = ask(pf.stable_point, problem, report=True)
    pull = hessian - slope
    exists = bool(np.linalg.svd(pull, compute_uv=False)[-1] > 1e-10 * np.linalg.norm(hessian, 2))
    tally(f"{name}: there is a stable point", code is None, exists, f"{world} {code}")
    if code is not None or not exists:
        tally(f"{name}: why not", code, "no-stable-point", world)
        return
    tally(f"{name}: where", close(found.theta.ravel(), np.linalg.solve(pull, level)), True, world)
    factors = np.linalg.eigvals(np.linalg.solve(hessian, slope))
    tally(f"{name}: attracts", found.attracting, bool(max(abs(factors)) < 1), world)
    tally(f"{name}: small steps settle", found.settles, bool(min(np.linalg.eigvals(pull).real) > 0), world)
    tally(f"{name}: factor", close(found.contraction, max(abs(factors))), True, world)


def gaussian_world(seed):
    """m, eps, p of three clients; the mean sensitivity lies anywhere in [-2, 2], and at 1 now and then."""
    rng = np.random.default_rng(seed)
    m, eps, p = rng.normal(size=3), rng.normal(size=3), rng.dirichlet(np.ones(3))
    target = 1.0 if seed % 25 == 0 else rng.uniform(-2.0, 2.0)
    return m, eps - p @ eps + target, p


@pytest.mark.slow
@pytest.mark.parametrize("worlds", [12, pytest.param(1000, marks=pytest.mark.slow)])
def test_gaussian_numbers(worlds, tally):
    for seed in range(worlds):
        m, eps, p = gaussian_world(seed)
        problem = pf.Problem(pf.losses.squared, Gaussian(m, eps, 1.0), p)
        one = np.eye(1)
        compare_linear(tally, "Gaussian", problem, one * (p @ eps), np.array([p @ m]), one, f"seed {seed}")
        optimum = p @ ((1 - eps) * m) / (p @ (1 - eps) ** 2)
        tally("Gaussian: optimum", close(pf.optimal_point(problem), optimum), True, f"seed {seed}")
        if seed % 10 == 1:
            path = pf.repeated_risk_minimization(problem, 1.0, 2)
            tally("Gaussian: retraining", close(path[2], p @ m + p @ eps * (p @ m + p @ eps)), True, f"seed {seed}")


@pytest.mark.parametrize("worlds", [4, pytest.param(150, marks=pytest.mark.slow)])
def test_gaussian_numbers_in_a_box(worlds, tally):
    """Retraining is theta -> P(m_bar + eps_bar theta): up to three points, which the start decides between."""
    for seed in range(1, worlds + 1):
        m, eps, p = gaussian_world(seed)
        level, slope = p @ m, p @ eps
        lo, hi = np.sort(np.random.default_rng(seed + 10_000).uniform(-3.0, 3.0, 2))
        world = f"seed {seed}"
        problem = pf.Problem(pf.losses.squared, Gaussian(m, eps, 1.0), p, pf.Box(lo, hi))
        points = [x for x in (lo, hi) if np.clip(level + slope * x, lo, hi) == x]
        inside = level / (1 - slope) if slope != 1 else np.inf
        if lo < inside < hi:
            points.append(inside)
        found = pf.equilibria(problem)
        same = len(found) == len(points) and close(np.sort([f.theta for f in found]), np.sort(points))
        tally("Box: equilibria", same, True, f"{world} {found} {points}")
        for point in found:
            end = bool(point.theta in (lo, hi)) and abs(level + slope * point.theta - point.theta) > 1e-9
            tally("Box: attracts", point.attracting, bool(end or abs(slope) < 1), f"{world} {point}")
        # Where retraining ends, followed by hand; a cycle between the ends settles nowhere.
        x = (lo + hi) / 2
        for _ in range(3000):
            x = np.clip(level + slope * x, lo, hi)
        settles = abs(np.clip(level + slope * x, lo, hi) - x) < 1e-9
        attracting = [f.theta for f in found if f.attracting]
        tally("Box: retraining settles", bool(attracting), bool(settles), world)


@pytest.mark.parametrize("worlds", [4, pytest.param(150, marks=pytest.mark.slow)])
def test_people_who_take_their_time(worlds, tally):
    """felt_i <- felt_i + s_i (theta - felt_i), theta <- sum_j p_j (m_j + eps_j felt_j): one linear map."""
    for seed in range(1, worlds + 1):
        m, eps, p = gaussian_world(seed)
        speed = np.random.default_rng(seed + 10_000).uniform(0.05, 1.0, 3)
        problem = pf.Problem(pf.losses.squared, Sluggish(Gaussian(m, 1.5 * eps, 1.0), speed), p)
        found, code = ask(pf.stable_point, problem, report=True)
        if abs(1 - 1.5 * p @ eps) < 1e-9:
            tally("Sluggish: why not", code, "no-stable-point", f"seed {seed}")
            continue
        point = p @ m / (1 - 1.5 * p @ eps)
        joint = np.diag(1 - speed) + np.outer(speed, 1.5 * p * eps)
        tally("Sluggish: where", close(found.theta, point), True, f"seed {seed}")
        tally("Sluggish: attracts", found.attracting, bool(max(abs(np.linalg.eigvals(joint))) < 1), f"seed {seed}")
        felt, theta = np.full(3, 0.5), 0.5
        for _ in range(3):
            felt = felt + speed * (theta - felt)
            theta = p @ (m + 1.5 * eps * felt)
        path = pf.repeated_risk_minimization(problem, 0.5, 3)
        tally("Sluggish: retraining", close(path[3], theta), True, f"seed {seed}")
        speed[seed % 3] = 0.0
        frozen = pf.Problem(pf.losses.squared, Sluggish(Gaussian(m, 1.5 * eps, 1.0), speed), p)
        tally("Sluggish, speed 0: refused", ask(pf.stable_point, frozen)[1], "world-never-rests", f"seed {seed}")


class Opinions(AbstractPopulation):
    """Two opinions that pull at each other and at what the model says: w <- A_i w + b_i theta + c_i, z = g.w + u."""

    turn: pf.types.Numbers = pf.per_client()
    push: pf.types.Numbers = pf.per_client()
    level: pf.types.Numbers = pf.per_client()

    def model_shape(self):
        return ()

    def init(self, scene):
        return jnp.zeros(2, scene.theta.dtype)

    def deploy(self, world, scene):
        return self.turn @ world + self.push * scene.theta + self.level

    def draw(self, key, shape, theta, rows=None):
        return jax.random.normal(key, shape, theta.dtype)

    def sample(self, noise, world, theta):
        return jnp.sum(world) + noise

    def quadrature(self, theta, count):
        return standard_nodes((), count)


@pytest.mark.slow
@pytest.mark.parametrize("worlds", [4, pytest.param(150, marks=pytest.mark.slow)])
def test_memories_of_a_users_own(worlds, tally):
    for seed in range(worlds):
        rng = np.random.default_rng(seed)
        A, b, c = rng.normal(size=(2, 2, 2)) * 0.55, rng.normal(size=(2, 2)) * 0.5, rng.normal(size=(2, 2))
        problem = pf.Problem(pf.losses.squared, Opinions(A, b, c))
        calm = max(abs(np.linalg.eigvals(each)).max() for each in A)
        found, code = ask(pf.stable_point, problem, report=True)
        if calm > 1:
            tally("own memory: rests", code, "world-never-rests", f"seed {seed}")
            continue
        if code == "world-never-rests" and calm > 0.99:
            tally("own memory: rests", None, "rests", f"seed {seed}")
            continue
        rest = [np.linalg.inv(np.eye(2) - each).sum(axis=0) for each in A]
        slope, level = (np.mean([r @ v for r, v in zip(rest, side, strict=True)]) for side in (b, c))
        tally("own memory: where", close(found.theta, level / (1 - slope)), True, f"seed {seed}")
        # (w_1, w_2, theta) after a spell and a retraining.
        joint = np.zeros((5, 5))
        for i in range(2):
            rows = slice(2 * i, 2 * i + 2)
            joint[rows, rows], joint[rows, 4] = A[i], b[i]
        joint[4] = np.array([0.5, 0.5, 0.5, 0.5, 0.0]) @ joint
        factor = max(abs(np.linalg.eigvals(joint)))
        tally("own memory: attracts", found.attracting, bool(factor < 1), f"seed {seed}")
        tally("own memory: factor", close(found.contraction, factor), True, f"seed {seed}")


@pytest.mark.slow
@pytest.mark.usefixtures("optimized_programs")
def test_gaussian_vectors(tally):
    for seed in range(60):
        rng = np.random.default_rng(seed)
        m, p = rng.normal(size=(3, 2)), rng.dirichlet(np.ones(3))
        eps = rng.normal(size=(3, 2, 2)) * rng.uniform(0.2, 1.5)
        problem = pf.Problem(pf.losses.squared, Gaussian(m, eps, 1.0), p)
        compare_linear(tally, "vectors", problem, np.tensordot(p, eps, 1), p @ m, np.eye(2), f"seed {seed}")
        away = np.eye(2) - eps
        left, right = np.einsum("i,iba,ibc->ac", p, away, away), np.einsum("i,iba,ib->a", p, away, m)
        tally("vectors: optimum", close(pf.optimal_point(problem), np.linalg.solve(left, right)), True, f"seed {seed}")


@pytest.mark.slow
@pytest.mark.usefixtures("optimized_programs")
def test_regressions(tally):
    for seed in range(60):
        rng = np.random.default_rng(seed)
        mean, slope, p = rng.normal(size=(3, 2)), rng.normal(size=(3, 2)), rng.dirichlet(np.ones(3))
        react, penalty = rng.uniform(-2.5, 2.5, 3), rng.uniform(0.0, 1.0)
        problem = pf.Problem(pf.losses.ridge(penalty), Regression(mean, 1.0, slope, react, 0.5), p)
        S = np.eye(2) + mean[:, :, None] * mean[:, None, :]
        hessian = np.tensordot(p, S, 1) + penalty * np.eye(2)
        moved, level = -np.einsum("i,i,iab->ab", p, react, S), np.einsum("i,iab,ib->a", p, S, slope)
        compare_linear(tally, "Regression", problem, moved, level, hessian, f"seed {seed}")


@pytest.mark.slow
@pytest.mark.usefixtures("optimized_programs")
def test_tables_and_contamination(tally):
    for seed in range(60):
        m, eps, p = gaussian_world(seed)
        rng = np.random.default_rng(seed)
        one, rows = np.eye(1), m[:, None] + rng.normal(size=(3, 6))
        shift = pf.populations.shifts.Linear(eps)
        table = pf.Problem(pf.losses.squared, Database(rows, shift), p)
        compare_linear(
            tally, "Database", table, one * (p @ eps), np.array([p @ rows.mean(axis=1)]), one, f"seed {seed}"
        )
        share, junk = rng.uniform(0.0, 0.5, 3), rng.normal(size=3) * 5
        dirty = Contaminated(Gaussian(m, eps, 1.0), share, Gaussian(junk, 0.0, 1.0))
        level = p @ ((1 - share) * m + share * junk)
        slope = one * (p @ ((1 - share) * eps))
        compare_linear(
            tally,
            "Contaminated",
            pf.Problem(pf.losses.squared, dirty, p),
            slope,
            np.array([level]),
            one,
            f"seed {seed}",
        )


@pytest.mark.slow
@pytest.mark.usefixtures("optimized_programs")
def test_prices(tally):
    """Prices have no minimum to retrain to: small steps settle where demand falls."""
    for seed in range(60):
        rng = np.random.default_rng(seed)
        demand, falls, p = rng.uniform(1.0, 5.0, 3), rng.uniform(-1.0, 2.0, 3), rng.dirichlet(np.ones(3))
        problem = pf.Problem(pf.losses.negative_revenue, Pricing(demand, falls, 1.0), p)
        point, slope = p @ demand / (p @ falls), p @ falls
        found, code = ask(pf.stable_point, problem, report=True)
        tally("Pricing: where", code is None and close(found.theta, point), True, f"seed {seed}")
        tally("Pricing: settles", found.attracting, bool(slope > 0), f"seed {seed}")
        best, code = ask(pf.optimal_point, problem)
        tally("Pricing: there is an optimum", code is None, bool(slope > 0), f"seed {seed} {code}")
        if code is None:
            tally("Pricing: optimum", close(best, point / 2), True, f"seed {seed}")
        top = rng.uniform(0.2, 2.0) * abs(point)
        boxed = pf.Problem(pf.losses.negative_revenue, Pricing(demand, falls, 1.0), p, pf.Box(0.0, top))
        best = pf.optimal_point(boxed)
        grid = np.linspace(0.0, top, 2001)
        known = grid[np.argmin(-grid * (p @ demand - slope * grid))]
        tally("Pricing in a box: optimum", close(best, known, 2e-3), True, f"seed {seed} {best} {known}")


@pytest.mark.slow
@pytest.mark.usefixtures("optimized_programs")
def test_groups_that_come_and_go(tally):
    """nu_0 = 1/2 + k theta of demand a, the rest of demand b: mean demand (a + b)/2 + k (a - b) theta."""
    for seed in range(60):
        rng = np.random.default_rng(seed)
        (a, b), k = rng.uniform(-2.0, 4.0, 2), rng.uniform(-0.2, 0.2)
        share = pf.populations.shares.Linear([0.5, 0.5], [k, -k])
        groups = (Gaussian([a], 0.0, 1.0), Gaussian([b], 0.0, 1.0))
        problem = pf.Problem(pf.losses.negative_revenue, Mixture(groups, share), None, pf.Box(-50.0, 50.0))
        point = -(a + b) / 2 / (k * (a - b))
        if abs(k * point) > 0.45 or abs(point) > 45:
            continue  # the line ends at the edge of the simplex
        found, code = ask(pf.equilibria, problem)
        near = [f for f in found or () if close(f.theta, point)]
        tally("Mixture: where", len(near) == 1, True, f"seed {seed} {code}")
        tally("Mixture: settles", near[0].settles, bool(k * (a - b) < 0), f"seed {seed}")
