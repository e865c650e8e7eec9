"""Certificates against worlds whose truth is known: does retraining settle, where, at what cost, does it show?

Where data follow the model linearly, retraining is a linear map, and a million retrainings are twenty squarings of its
matrix: that is the truth, not an eigenvalue. One compiled structure serves all worlds of a kind.
"""

import jax.numpy as jnp
import numpy as np
import pytest
from logistic_fit import fit
from scipy.stats import norm

import performative as pf
from performative.populations import Contaminated, Gaussian, Pricing, Regression, Sluggish

N, D = 3, 2
# How strongly clients react on average, as a share of what retraining can bear: far below, near and above.
SIZES = (0.2, 0.7, 0.95, 0.999, 1.001, 1.05, 1.5, 3.0)


def many(matrix, squarings=20):
    """Whether 2^squarings steps of a linear map lead to 0; None where they have not made up their mind."""
    power = np.asarray(matrix, float)
    for _ in range(squarings):
        power = power @ power
        size = np.linalg.norm(power)
        if size < 1e-12:
            return True
        if size > 1e12:
            return False
    return None


def small_steps(slope):
    """Whether gradient steps u <- u - s slope u settle for a small s."""
    return many(np.eye(len(slope)) - 1e-3 / np.linalg.norm(slope, 2) * slope, 40)


def reactions(rng, size, kind):
    """[N, D, D] and weights, the mean reaction with spectral radius `size`."""
    weights = rng.dirichlet(np.ones(N))
    if kind == "number":
        each = rng.normal(1.0, 0.5, N)[:, None, None] * np.eye(D)
    elif kind == "coordinates":
        each = rng.normal(0.0, 1.0, (N, D, 1)) * np.eye(D)
    else:
        each = rng.normal(0.0, 1.0, (N, D, D))
    mean = np.einsum("i,ijk->jk", weights, each)
    sign = rng.choice([-1.0, 1.0])
    return sign * size / np.max(np.abs(np.linalg.eigvals(mean))) * each, weights


def linear_worlds(seeds, kinds=("number", "coordinates", "matrix")):
    for seed in seeds:
        rng = np.random.default_rng(seed)
        size, kind = SIZES[seed % len(SIZES)], kinds[seed % len(kinds)]
        each, p = reactions(rng, size, kind)
        yield f"seed {seed}, {kind}, size {size}", rng, each, p


def judge(tally, c, what, world, retraining, slope):
    """Compare a certificate with what a million retrainings and small steps do."""
    settles = many(retraining)
    if settles is not None:
        tally(f"certify {what}: retraining settles", c.attracting, settles, world)
        tally(f"certify {what}: it is proved", True if c.proved else None, settles, world)
        tally(f"certify {what}: it is the only point", True if c.unique else None, True, world)
    steps = small_steps(slope)
    if steps is not None:
        tally(f"certify {what}: small steps settle", c.settles, steps, world)


def check_gaussian(tally, seeds):
    for world, rng, each, p in linear_worlds(seeds):
        mean, scale = rng.normal(0.0, 2.0, (N, D)), rng.uniform(0.1, 2.0, (N, D))
        problem = pf.Problem(pf.losses.squared, Gaussian(mean, each, scale), p)
        c = pf.certify(problem, error=1.0)
        average = np.einsum("i,ijk->jk", p, each)
        judge(tally, c, "gaussian", world, average, np.eye(D) - average)
        stable = np.linalg.solve(np.eye(D) - average, p @ mean)
        close = bool(np.allclose(c.stable, stable, rtol=1e-8, atol=1e-8))
        tally("certify gaussian: where", close, True, world)
        norms = p @ np.linalg.norm(each, 2, axis=(1, 2))
        tally("certify gaussian: eps_bar < mu / L", c.sufficient, bool(norms < 1), world)
        A = np.eye(D) - each
        best = np.linalg.solve(np.einsum("i,ijk,ijl->kl", p, A, A), np.einsum("i,ijk,ij->k", p, A, mean))
        cost = p @ (np.sum((A @ stable - mean) ** 2, axis=1) - np.sum((A @ best - mean) ** 2, axis=1)) / 2
        told = c.stable_risk - c.optimal_risk if c.optimal is not None else None
        right = None if told is None else bool(abs(told - cost) <= 1e-6 * (1 + abs(cost)))
        tally("certify gaussian: what it costs", right, True, world)


def test_gaussian_worlds(tally):
    check_gaussian(tally, range(4))


@pytest.mark.slow
def test_many_gaussian_worlds(tally):
    check_gaussian(tally, range(10, 300))


def check_memory(tally, seeds):
    """People who take time: model and memories together are a linear map."""
    for world, rng, each, p in linear_worlds(seeds, ("number", "matrix")):
        mean, speed = rng.normal(0.0, 2.0, (N, D)), rng.uniform(0.05, 1.0, N)
        problem = pf.Problem(pf.losses.squared, Sluggish(Gaussian(mean, each, 1.0), speed), p)
        c = pf.certify(problem, error=1.0)
        # felt_i' = (1 - s_i) felt_i + s_i theta;  theta' = sum_i p_i (m_i + S_i felt_i')
        felt = np.kron(np.diag(1 - speed), np.eye(D))
        meets = np.kron(speed[:, None], np.eye(D))
        answer = np.concatenate(list(p[:, None, None] * each), axis=1)
        joint = np.block([[felt, meets], [answer @ felt, answer @ meets]])
        settles = many(joint)
        if settles is not None:
            tally("certify memory: retraining settles", c.attracting, settles, world)


@pytest.mark.slow
def test_worlds_with_a_memory(tally):
    check_memory(tally, range(3))


@pytest.mark.slow
def test_many_worlds_with_a_memory(tally):
    check_memory(tally, range(6, 80))


def clipped(theta, slope, level, edge, times):
    """Retraining in a box, so many times."""
    for _ in range(times):
        theta = np.clip(theta @ slope.T + level, -edge, edge)
    return theta


def check_box(tally, seeds):
    """A box: retraining is clipping, followed step by step from near the point that is named and from everywhere."""
    for world, rng, each, p in linear_worlds(seeds):
        mean, edge = rng.normal(0.0, 2.0, (N, D)), float(rng.uniform(0.5, 4.0))
        problem = pf.Problem(pf.losses.squared, Gaussian(mean, each, 1.0), p, domain=pf.Box(-edge, edge))
        start = rng.uniform(-edge, edge, D)
        c = pf.certify(problem, theta=start, error=1.0)
        slope, level = np.einsum("i,ijk->jk", p, each), p @ mean
        if c.stable is None:
            tally("certify box: retraining settles", None, True, world)
            continue
        assert np.allclose(clipped(c.stable, slope, level, edge, 1), c.stable, atol=1e-7), world
        near = np.clip(c.stable + 1e-4 * rng.normal(size=(20, D)), -edge, edge)
        ends = np.linalg.norm(clipped(near, slope, level, edge, 20_000) - c.stable, axis=1)
        if abs(c.contraction - 1) > 2e-3:  # else so many retrainings do not decide it
            tally("certify box: retraining settles", c.attracting, bool(np.all(ends < 1e-6)), world)
        if c.proved:
            anywhere = clipped(rng.uniform(-edge, edge, (20, D)), slope, level, edge, 20_000)
            tally("certify box: from everywhere", True, bool(np.allclose(anywhere, c.stable, atol=1e-4)), world)


@pytest.mark.slow
def test_worlds_in_a_box(tally):
    check_box(tally, range(2))


@pytest.mark.slow
def test_many_worlds_in_a_box(tally):
    check_box(tally, range(16, 80))


@pytest.mark.slow
def test_dirty_worlds(tally):
    """A share of all samples follows another law, which may react too."""
    for world, rng, each, p in linear_worlds(range(60)):
        mean, other = rng.normal(0.0, 2.0, (2, N, D))
        also, share = rng.normal(0.0, 1.0, (N, D, D)), rng.uniform(0.0, 0.5, N)
        dirty = Contaminated(Gaussian(mean, each, 1.0), share, Gaussian(other, also, 1.0))
        c = pf.certify(pf.Problem(pf.losses.squared, dirty, p), error=1.0, samples=64)
        average = np.einsum("i,ijk->jk", p * (1 - share), each) + np.einsum("i,ijk->jk", p * share, also)
        judge(tally, c, "contaminated", world, average, np.eye(D) - average)
        stable = np.linalg.solve(np.eye(D) - average, (p * (1 - share)) @ mean + (p * share) @ other)
        tally("certify contaminated: where", bool(np.allclose(c.stable, stable, atol=1e-7, rtol=1e-7)), True, world)


@pytest.mark.slow
def test_regression_worlds(tally):
    """theta' = (sum p S + penalty)^-1 sum p S (slope - sensitivity theta)."""
    for world, rng, each, p in linear_worlds(range(60)):
        mean, slope, variance = rng.normal(0, 1, (N, D)), rng.normal(0, 1, (N, D)), rng.uniform(0.2, 2, (N, D))
        penalty = float(rng.uniform(0.0, 1.0))
        population = Regression(mean, variance, slope, each, 0.5)
        c = pf.certify(pf.Problem(pf.losses.ridge(penalty), population, p), error=1.0, samples=64)
        S = mean[:, :, None] * mean[:, None, :] + variance[:, :, None] * np.eye(D)
        H, C = np.einsum("i,ijk->jk", p, S) + penalty * np.eye(D), np.einsum("i,ijk,ikl->jl", p, S, each)
        judge(tally, c, "regression", world, -np.linalg.solve(H, C), H + C)


@pytest.mark.slow
def test_price_worlds(tally):
    """Prices without a box have nothing to retrain to; in a box retraining jumps from corner to corner."""
    for world, rng, each, p in linear_worlds(range(60)):
        demand, edge = rng.normal(3.0, 2.0, (N, D)), float(rng.uniform(0.5, 4.0))
        free = pf.certify(pf.Problem(pf.losses.negative_revenue, Pricing(demand, each, 1.0), p), error=1.0)
        G = np.einsum("i,ijk->jk", p, each)
        steps = small_steps(G)
        if steps is not None and free.stable is not None:
            tally("certify prices: small steps settle", free.settles, steps, world)
        tally("certify prices: retraining is not defined", bool(np.isnan(free.contraction)), True, world)
        box = pf.Problem(pf.losses.negative_revenue, Pricing(demand, each, 1.0), p, domain=pf.Box(0.0, edge))
        c = pf.certify(box, error=1.0)
        if c.stable is None or not np.isfinite(c.contraction):
            tally("certify prices in a box: retraining settles", None, True, world)
            continue
        near = np.clip(c.stable + 1e-6 * rng.normal(size=(50, D)), 0.0, edge)
        for _ in range(50):
            near = np.where(p @ demand - near @ G.T > 0, edge, 0.0)
        stays = bool(np.allclose(near, c.stable, atol=1e-9))
        tally("certify prices in a box: retraining settles", c.attracting, stays, world)


@pytest.mark.slow
def test_worlds_of_strategic_people(tally):
    """Logistic regression on people who move; truth by Newton's method written here, retraining after retraining."""
    rng = np.random.default_rng(0)
    for number in range(20):
        x = rng.normal(size=(2, 40, 2))
        y = (rng.uniform(size=(2, 40)) < 1 / (1 + np.exp(-x @ rng.normal(size=2)))).astype(int)
        strength, penalty = float(rng.choice([0.3, 2.0, 6.0, 12.0])), 0.1
        problem = pf.Problem(pf.losses.logistic(penalty), pf.populations.Strategic(x, y, strength))
        c = pf.certify(problem, error=1.0, samples=64)
        world = f"number {number}, strength {strength}"
        if c.stable is None or abs(c.contraction - 1) < 0.02:
            tally("certify strategic: retraining settles", None, True, world)
            continue
        theta, path = c.stable + 1e-4, []
        for _ in range(400):
            theta = fit(x.reshape(-1, 2) - strength * theta, y.reshape(-1), penalty, theta)
            path.append(np.linalg.norm(theta - c.stable))
            if path[-1] > 0.1:  # a thousand times as far as it began
                break
        tally("certify strategic: retraining settles", c.attracting, bool(path[-1] < 1e-6), world)


class Crossing(pf.populations.AbstractPopulation):
    """People whose normal threshold lies below theta + 1/2 give `gain` more, in jumps: errors grow by 0.352 gain
    near the stable point 0."""

    gain: pf.types.Numbers = pf.number()

    def model_shape(self):
        return ()

    def draw(self, key, shape, theta, rows=None):
        import jax

        return jax.random.normal(key, shape, theta.dtype)

    def sample(self, noise, world, theta):
        return self.gain * (jnp.where(noise < theta + 0.5, 1.0, 0.0) - 0.6914624612740131)


@pytest.mark.slow
def test_worlds_in_which_people_cross_a_threshold(tally):
    """A derivative would call every one of them settled."""
    for gain in np.linspace(0.6, 9.0, 15):
        c = pf.certify(pf.Problem(pf.losses.squared, Crossing(gain)), error=1.0, samples=64)
        # There may be several points: 0, and one on either side; errors near theta grow by gain phi(theta + 1/2).
        slope = np.nan if c.stable is None else gain * norm.pdf(float(c.stable) + 0.5)
        said = None if c.stable is None else c.attracting
        tally("certify thresholds: retraining settles", said, bool(slope < 1), f"gain {gain:.3g}, at {c.stable}")
