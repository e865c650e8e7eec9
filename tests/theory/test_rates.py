"""The limit of t times the error in any dimension, bounds beside exact errors, and times to an accuracy."""

import itertools
import math

import numpy as np
import pytest

from performative.theory import (
    Assumptions,
    best_local_steps,
    gaussian_beside,
    gaussian_local_steps,
    gaussian_moments,
    gaussian_rate,
    linear_rate,
    p_fedavg,
    step_noise,
    steps_to_accuracy,
    theorem_3_1,
    theorem_3_2,
    theorem_b_4,
    total_time,
)

MEAN, EPS, SCALE = np.array([1.0, -2.0, 3.0, 0.5]), np.array([0.2, 0.9, -0.5, 0.6]), np.array([1.0, 0.5, 2.0, 1.5])
P = np.array([0.1, 0.2, 0.3, 0.4])
SCHEMES = [("full", None), ("one", 2), ("two", 3)]


@pytest.mark.parametrize(("scheme", "k"), SCHEMES)
def test_one_dimension_is_the_gaussian_rate(scheme, k):
    how = {"weights": P, "local_steps": 4, "batch": 3, "scheme": scheme, "k": k}
    stable = P @ MEAN / (1 - P @ EPS)
    noise = step_noise((SCALE**2)[:, None, None], ((1 - EPS) * stable - MEAN)[:, None], **how)
    rate = linear_rate(1 - P @ EPS, noise, 5.0)
    assert rate == pytest.approx(gaussian_rate(MEAN, EPS, SCALE, 5.0, **how))


def draws(p, scheme, k):
    """Every outcome of a round's weights, [outcomes, N], and its chance."""
    N = len(p)
    if scheme == "full":
        return np.ones(1), p[None]
    if scheme == "one":
        picks = list(itertools.product(range(N), repeat=k))
        return np.array([np.prod(p[list(i)]) for i in picks]), np.array(
            [np.bincount(i, minlength=N) / k for i in picks]
        )
    picks = list(itertools.combinations(range(N), k))
    return np.full(len(picks), 1 / len(picks)), np.array([np.isin(range(N), i) * p * N / k for i in picks])


@pytest.mark.parametrize(("scheme", "k"), [("full", None), ("one", 2), ("two", 2)])
def test_the_noise_of_who_takes_part_by_enumeration(scheme, k):
    p, g = np.array([0.5, 0.3, 0.2]), np.random.default_rng(3).normal(size=(3, 2))  # p @ g is not zero here
    chance, w = draws(p, scheme, k)
    sums = w @ g - p @ g
    found = step_noise(np.zeros((3, 2, 2)), g, weights=p, local_steps=7, scheme=scheme, k=k)
    np.testing.assert_allclose(found, 7 * np.einsum("o,oj,ok->jk", chance, sums, sums), atol=1e-12)


@pytest.mark.parametrize(
    ("scheme", "k"),
    [("full", None), pytest.param("one", 2, marks=pytest.mark.slow), pytest.param("two", 2, marks=pytest.mark.slow)],
)
def test_two_dimensions_against_the_exact_recursion(scheme, k):
    # Squared loss, Z_i ~ N(m_i + R_i theta, C_i): the second moments of x = theta - theta_PS obey a recursion.
    rng = np.random.default_rng(2)
    N, E, beta, rounds, eye = 3, 2, 3.0, 6000, np.eye(2)
    R, m, root = rng.normal(size=(N, 2, 2)) * 0.3, rng.normal(size=(N, 2)), rng.normal(size=(N, 2, 2))
    C, p = root @ root.transpose(0, 2, 1), np.array([0.5, 0.3, 0.2])
    H = eye - np.tensordot(p, R, 1)
    stable = np.linalg.solve(H, p @ m)
    g = stable - R @ stable - m
    limit = linear_rate(H, step_noise(C, g, weights=p, local_steps=E, scheme=scheme, k=k), beta)
    chance, w = draws(p, scheme, k)
    assert chance.sum() == pytest.approx(1) and np.allclose(chance @ w, p)
    mean, second, errors = np.ones(2), np.ones((2, 2)), []
    for r in range(rounds):
        # After E steps client i is at A_i x + b_i + noise of covariance S_i.
        A, b, S = np.broadcast_to(eye, (N, 2, 2)), np.zeros((N, 2)), np.zeros((N, 2, 2))
        for e in range(E):
            eta = beta / (r * E + e + 20.0)
            keep = eye - eta * (eye - R)
            A, b = keep @ A, (keep @ b[..., None])[..., 0] - eta * g
            S = keep @ S @ keep.transpose(0, 2, 1) + eta**2 * C
        # Updates are averaged: x + sum_i w_i (x_i - x).
        Aw = eye + np.tensordot(w, A - eye, 1)
        bw, Sw = w @ b, np.tensordot(w**2, S, 1)
        cross = (Aw @ mean)[..., None] * bw[:, None, :]
        both = Aw @ second @ Aw.transpose(0, 2, 1) + cross + cross.transpose(0, 2, 1) + bw[..., None] * bw[:, None] + Sw
        mean, second = chance @ (Aw @ mean + bw), np.tensordot(chance, both, 1)
        errors.append((r + 1) * E * np.trace(second) / limit - 1)
    # t times the error differs from its limit by a term of order 1/t.
    assert abs(errors[-1]) < 0.01 and abs(errors[-1]) < 0.6 * abs(errors[rounds // 2])


def test_slower_than_one_over_t():
    assert linear_rate(np.diag([1.0, 0.1]), np.eye(2), 4.0) == math.inf
    assert linear_rate(np.diag([1.0, 0.2]), np.eye(2), 4.0) == pytest.approx(16 / 7 + 16 / 0.6)
    turning = np.array([[1.0, 5.0], [-5.0, 1.0]])  # complex eigenvalues: their real part counts
    assert linear_rate(turning, np.eye(2), 1.0) == pytest.approx(2.0)
    for wrong in ((np.eye(2), np.eye(3), 1.0), (np.eye(2), np.eye(2), -1.0)):
        with pytest.raises(ValueError, match="must"):
            linear_rate(*wrong)
    with pytest.raises(ValueError, match=r"covariance must be \[N, d, d\]"):
        step_noise(np.eye(2), np.ones((2, 2)))


@pytest.mark.parametrize(("scheme", "k"), [("full", None), ("one", 5), ("two", 5)])
def test_the_looseness_on_the_paper_s_own_example(scheme, k):
    # N = 25, mean of m 10, eps_bar 0.9 (Section 4.1); the bound's limit is 1e7 to 1e16 times the real one.
    mean, eps = 10 + np.linspace(-1, 1, 25), 0.9 + np.linspace(-0.3, 0.3, 25)
    given = Assumptions.of_gaussian(mean, eps, 1.0)
    for E in (1, 5):
        beside = gaussian_beside(p_fedavg(given, E, scheme, k), mean, eps, 1.0, rounds=50)
        assert np.all(beside.looseness >= 1) and beside.t[-1] == 50 * E
        assert 1e7 < beside.bound_limit / beside.exact_limit < 1e16


def test_beside_where_the_theorem_refuses():
    # eps_bar = 1.5: retraining runs away; the theorem is silent, the exact error grows.
    refused = theorem_b_4(Assumptions.of_gaussian(1.0, 1.5, 1.0), 1, 1.0, 10.0)
    beside = gaussian_beside(refused, 1.0, 1.5, 1.0, rounds=500)
    assert refused.unmet and np.all(beside.bound == math.inf) and beside.bound_limit == beside.exact_limit == math.inf
    assert beside.exact[-1] > 10 * beside.exact[0]
    with pytest.raises(ValueError, match="allows no step"):
        gaussian_beside(theorem_3_1(Assumptions.of_gaussian(1.0, 1.5, 1.0), 1), 1.0, 1.5, 1.0)


def test_times_by_hand():
    given = Assumptions.of_clients(1.0, 1.0, 1.0, 0.5, [0.0, 1.0], 4.0, delta=0.5)
    found = theorem_3_1(given, 2)
    T = steps_to_accuracy(found, 0.01)
    assert found.v / 0.01 - found.gamma == T and found.bound(T) == pytest.approx(0.01)
    assert steps_to_accuracy(found, 1e9) == 0.0
    refused = theorem_3_1(Assumptions.of_gaussian(1.0, 1.5, 1.0), 2)
    assert steps_to_accuracy(refused, 0.01) == total_time(math.inf, 2, 1.0) == math.inf
    assert total_time(12.0, 4, 20.0) == 12 + 20 * 3 and total_time(12.5, 4, 20.0) == 4 * 24
    found = best_local_steps(lambda E: 100.0 * E + 900.0, 4.0, limit=50)  # sqrt(C a / b) = 6
    assert (found.local_steps, found.steps, found.time, found.at_limit) == (6, 1500.0, 250 * 10.0, False)
    assert best_local_steps(lambda E: 1e6, 4.0, limit=50).at_limit
    for call in (lambda: steps_to_accuracy(refused, 0.0), lambda: gaussian_local_steps(1.0, 0.5, 1.0, -1.0)):
        with pytest.raises(ValueError, match="must be a positive number"):
            call()
    with pytest.raises(ValueError, match="average sensitivity below 1"):
        gaussian_local_steps(1.0, 1.5, 1.0, 1.0)
    with pytest.raises(ValueError, match="steps must be a number >= 0"):
        total_time(-1.0, 1, 1.0)
    with pytest.raises(ValueError, match="limit"):
        best_local_steps(lambda E: 1.0, 1.0, limit=0)


def test_by_the_bounds_one_local_step_is_best_whatever_a_communication_costs():
    mean, eps = 10 + np.linspace(-1, 1, 25), 0.9 + np.linspace(-0.3, 0.3, 25)
    given = Assumptions.of_gaussian(mean, eps, 1.0)
    for theorem in (lambda E: theorem_3_1(given, E), lambda E: theorem_3_2(given, E, 5)):
        rounds = [steps_to_accuracy(theorem(E), 0.01) / E for E in range(1, 101)]
        assert np.all(np.diff(rounds) > 0)  # T / E grows; the paper says that it falls in the end
        for cost in (0.0, 20.0, 1e9):
            assert best_local_steps(lambda E, th=theorem: steps_to_accuracy(th(E), 0.01), cost).local_steps == 1
    # B is almost constant in E with full participation (from E = 2 on), as the paper says; B_1 is not.
    B = [theorem_3_1(given, E).constants["B"] for E in (2, 50)]
    B_1 = [theorem_3_2(given, E, 5).constants["B"] for E in (2, 50)]
    assert B[1] == pytest.approx(B[0], rel=1e-3) and B_1[1] > 1000 * B_1[0]


def test_the_best_local_steps_of_the_exact_rate():
    # Equal clients but for small differences, so that several local steps pay; the target is met after some 1e4 steps.
    mean, eps, cost, beta, gamma = np.array([0.9, 1.0, 1.1]), np.array([0.4, 0.5, 0.6]), 20.0, 4.0, 50.0
    options = {"scheme": "one", "k": 1}
    best = gaussian_local_steps(mean, eps, 0.5, cost, **options)
    assert 3 < best < 30
    times, target = {}, 2e-4
    for E in sorted({1, 2, int(best), int(best) + 1, int(2 * best), int(4 * best)}):
        rounds = 200_000 // E
        eta = beta / (np.arange(rounds * E) + gamma)
        mse = gaussian_moments(mean, eps, 0.5, eta, local_steps=E, start=2.0, **options).mse
        last = np.flatnonzero(mse > target)[-1] + 1  # the last exit, not the first hit
        assert last < rounds
        times[E] = last * (E + cost)
        # T = R / target by the rate
        assert last * E == pytest.approx(
            gaussian_rate(mean, eps, 0.5, beta, local_steps=E, **options) / target, rel=0.03
        )
    assert min(times, key=lambda E: times[E]) in (int(best), int(best) + 1)
    assert gaussian_local_steps(mean, eps, 0.5, cost) == math.inf
