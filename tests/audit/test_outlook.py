"""Where retraining leads, fitted to logs, against points known otherwise."""

import numpy as np
import pytest
import worlds
from sklearn.linear_model import LogisticRegression

import performative as pf
from performative import audit
from performative.audit.outlook import settling_time

PENALTY = 0.1


def relative_errors(world, drift):
    errors, holds = [], []
    for w in range(len(world.B)):
        found = audit.outlook([world.log(w)], drift=drift, draws=200)
        true = np.linalg.solve(np.eye(world.B.shape[1]) - world.B[w], world.level[w])
        errors.append(np.linalg.norm(found.stable - true) / np.linalg.norm(true))
        low, high = found.stable_limits
        inside = (
            found.contraction_limits[0] <= np.abs(np.linalg.eigvals(world.B[w])).max() <= found.contraction_limits[1]
        )
        holds.append([*((low <= true) & (true <= high)), inside])
    return np.array(errors), np.mean(holds, axis=0)


@pytest.mark.parametrize(
    ("response", "training"),
    [
        pytest.param("gaussian", "explored", marks=pytest.mark.slow),
        ("mixture", "retrained"),
        pytest.param("gaussian", "retrained", marks=pytest.mark.slow),
        pytest.param("mixture", "explored", marks=pytest.mark.slow),
    ],
)
def test_stable_point_within_two_percent(response, training):
    """30 deployments of 5,000 rows, no drift: within 2% in 9 worlds of 10, points near 0 included."""
    world = worlds.make(21, worlds=200, T=30, rows=5000, d=2, response=response, training=training, gap=0.7)
    errors, holds = relative_errors(world, "none")
    assert np.median(errors) < 0.01
    assert np.mean(errors < 0.02) > 0.9
    assert holds.min() >= 0.95 - 3 * np.sqrt(0.95 * 0.05 / 200)


@pytest.mark.slow
def test_two_clients_against_the_solver():
    """The closed form of the squared loss is what the fitted problem's own solver finds, and what iterating finds."""
    world = worlds.make(22, worlds=2, T=20, rows=2000, d=2, size=0.6, training="explored")
    shared = world.theta[0]
    means = [world.mean[i] + (shared - world.theta[i]) @ world.B[i].T for i in range(2)]
    rows = np.random.default_rng(0).normal(size=(2, 20, 50, 2)) + np.stack(means)[:, :, None]
    logs = [audit.ClientLog(shared, world.time, world.count, means[i], world.cov[i], rows[i]) for i in range(2)]
    weights = np.array([0.3, 0.7])
    closed = audit.outlook(logs, weights, drift="none")
    solved = audit.outlook(logs, weights, pf.losses.squared, drift="none")
    np.testing.assert_allclose(solved.stable, closed.stable, rtol=1e-6)
    np.testing.assert_allclose(solved.optimal, closed.optimal, rtol=1e-5)
    np.testing.assert_allclose(solved.slopes, closed.slopes, atol=1e-9)
    assert solved.excess == pytest.approx(closed.excess, rel=1e-5)
    assert solved.deployments == closed.deployments
    assert closed.gap > 0 and closed.excess > 0
    J, theta, count = closed.slopes.sum(axis=0), shared[-1], 0
    while np.linalg.norm(theta - closed.stable) > 0.01 * np.linalg.norm(closed.stable):
        theta, count = closed.stable + J @ (theta - closed.stable), count + 1
    assert closed.deployments == count
    # What a share means: how much of the factor changes with that client's response.
    lines = {line.name: line for line in audit.drivers(closed, ["a", "b"])}
    assert sum(line.share for line in lines.values()) == pytest.approx(1.0)
    h = 1e-6
    more = np.abs(np.linalg.eigvals(J + h * closed.slopes[1])).max()
    assert lines["b"].share == pytest.approx((more / closed.contraction - 1) / h, rel=1e-4)
    assert lines["b"].without == pytest.approx(np.abs(np.linalg.eigvals(closed.slopes[0])).max())


def test_settling_time():
    J = np.array([[0.5, 10.0], [0.0, 0.5]])
    error = np.array([0.0, 0.1])
    path = [np.linalg.norm(np.linalg.matrix_power(J, n) @ error) for n in range(100)]
    inside = [n for n in range(100) if max(path[n:]) <= 0.15]
    # It starts inside the band, leaves it, and comes back: the return counts.
    assert path[0] <= 0.15 < path[1]
    assert settling_time(J, error, 0.15) == inside[0]
    assert settling_time(1.1 * np.eye(1), np.ones(1), 0.1) is None
    assert settling_time(0.5 * np.eye(1), np.zeros(1), 0.1) == 0


@pytest.mark.slow
def test_a_strategic_log_and_the_logistic_loss():
    """12 deployments of 4,000 rows, retrained with scikit-learn: the stable point that retraining for long finds."""
    rng = np.random.default_rng(23)
    T, rows, strengths, beta = 12, 4000, (0.3, 0.9), np.array([1.0, -1.0])
    means = [np.array([0.5, -0.2]), np.array([-0.4, 0.3])]

    def people(i, n):
        x = means[i] + rng.normal(size=(n, 2))
        return x, (rng.uniform(size=n) < 1 / (1 + np.exp(-x @ beta - 0.3))).astype(float)

    def train(tables):
        x, y = (np.concatenate(part) for part in zip(*tables, strict=True))
        model = LogisticRegression(C=1 / (PENALTY * len(y)), fit_intercept=False, tol=1e-8)
        return model.fit(np.column_stack([x, np.ones(len(x))]), y).coef_[0]

    theta, models, seen = np.zeros(3), [], ([], [])
    for _ in range(T):
        tables = [people(i, rows) for i in range(2)]
        tables = [(x - s * theta[:2], y) for (x, y), s in zip(tables, strengths, strict=True)]
        models.append(theta)
        for i, (x, y) in enumerate(tables):
            seen[i].append(np.column_stack([x, y]))
        theta = train(tables) + 0.3 * rng.normal(size=3)
    logs = [
        audit.ClientLog(
            np.array(models), np.arange(T), np.full(T, rows), np.stack([z.mean(axis=0) for z in data]),
            np.stack([np.cov(z.T) for z in data]), np.stack(data)[:, :1500], name=str(i),
        )
        for i, data in enumerate(seen)
    ]  # fmt: skip
    with pytest.warns(pf.PerformativeWarning, match="risk-falls-far-out"):
        found = audit.outlook(logs, None, pf.losses.logistic(PENALTY), drift="none", label=-1, intercept=2)
    base, path = [people(i, 300_000) for i in range(2)], [np.zeros(3)]
    for _ in range(12):
        path.append(train([(x - s * path[-1][:2], y) for (x, y), s in zip(base, strengths, strict=True)]))
    assert np.linalg.norm(found.stable - path[-1]) < 0.02 * np.linalg.norm(path[-1])
    steps = np.linalg.norm(np.diff(path, axis=0), axis=1)
    assert found.contraction == pytest.approx(steps[4] / steps[3], abs=0.03)
    assert found.contracts and found.excess > 0
    assert audit.drivers(found, ["weak", "strong"])[0].name == "strong"


def test_bad_input():
    world = worlds.make(24, worlds=1, T=10, response="strategic")
    with pytest.raises(ValueError, match="one column per parameter"):
        audit.outlook([world.log(0)])
    with pytest.raises(ValueError, match="keeps no rows"):
        audit.outlook([world.log(0)], None, pf.losses.ridge(0.1), label=-1)
    with pytest.raises(ValueError, match="weights must be 1 numbers"):
        audit.outlook([world.log(0)], np.array([0.5, 0.5]))
    with pytest.raises(ValueError, match="too few"):
        audit.fit(worlds.make(24, worlds=1, T=3, d=2).log(0))
