"""Where training settles when clients take turns or are chosen by their loss: closed forms, without noise.

Client i moves theta by -eta (lambda_i theta - m_i), lambda_i = 1 - eps_i, so all is affine as long as the same
clients are chosen. Their loss on settled data is (m_i - lambda_i theta)^2 / 2.
"""

import itertools
from math import comb

import numpy as np
import pytest

import performative as pf
from performative.diagnostics.selection_skew import selection_skew
from performative.participation import Cyclic, PowerOfChoice

pytestmark = pytest.mark.slow


def problem(mean, eps, weights=None, scale=0.0):
    mean = np.asarray(mean, float)
    population = pf.populations.Gaussian(mean, np.broadcast_to(np.asarray(eps, float), mean.shape), scale)
    return pf.Problem(pf.losses.squared, population, weights)


def histories(where, participation, rates, rounds, theta=0.0, repeats=1, **options):
    """One run for each rate, in one compilation."""
    how = pf.p_fedavg(rate=0.1, participation=participation, **options)
    return pf.sweep(where, how, {"rate": list(rates)}, rounds, theta, repeats=repeats, dtype="float64").histories


def paths(*which, **options):
    """theta of each round, [rates, repeats, rounds + 1]."""
    return np.stack([history.theta for history in histories(*which, **options)])


def settles(mean, eps, weights):
    """sum w m / sum w lambda."""
    return np.sum(np.multiply(weights, mean)) / np.sum(np.multiply(weights, 1 - np.asarray(eps)))


# Groups that take turns.

MEAN = np.asarray([10.0, -1.0, 2.0, 3.0])
P = np.asarray([0.1, 0.2, 0.3, 0.4])
GROUPS = [[0], [1, 2, 3]]
EPS = {"static": np.zeros(4), "performative": np.asarray([0.8, 0.3, -0.2, 0.5])}


def group_map(ids, p, mean, eps, eta, steps):
    """theta -> slope theta + level, a round of this group with E local steps."""
    lam, share = 1 - eps[ids], p[ids] / p[ids].sum()
    keeps = (1 - eta * lam) ** steps
    return share @ keeps, share @ ((1 - keeps) * mean[ids] / lam)


def cycle_point(groups, p, mean, eps, eta, steps=1):
    """The fixed point of one whole cycle, as the first group finds it."""
    slope, level = 1.0, 0.0
    for ids in groups:
        a, b = group_map(np.asarray(ids), p, mean, eps, eta, steps)
        slope, level = a * slope, a * level + b
    return level / (1 - slope)


def groups_alike(groups, p, mean, eps):
    """The limit of small steps: sum_g m_g / sum_g lambda_g."""
    weights = np.zeros(len(p))
    for ids in groups:
        weights[ids] = p[ids] / p[ids].sum() / len(groups)
    return settles(mean, eps, weights)


@pytest.mark.parametrize("steps", [1, 3])
@pytest.mark.parametrize("kind", EPS)
def test_unequal_groups_settle_at_the_fixed_point_of_the_cycle(kind, steps):
    eps, rates = EPS[kind], [0.2, 0.1]
    done = paths(problem(MEAN, eps, P), Cyclic(GROUPS), rates, 600, local_steps=steps)[:, 0]
    stable = settles(MEAN, eps, P)
    for eta, path in zip(rates, done, strict=True):
        first = cycle_point(GROUPS, P, MEAN, eps, eta, steps)
        slope, level = group_map(np.asarray(GROUPS[0]), P, MEAN, eps, eta, steps)
        np.testing.assert_allclose(path[[-1, -3]], first, rtol=1e-10)
        np.testing.assert_allclose(path[[-2, -4]], slope * first + level, rtol=1e-10)
    assert abs(done[-1, -1] - stable) > 1.0


@pytest.mark.parametrize("kind", EPS)
def test_the_bias_of_unequal_groups_stays_as_the_step_goes_to_zero(kind):
    eps = EPS[kind]
    stable, limit = settles(MEAN, eps, P), groups_alike(GROUPS, P, MEAN, eps)
    points = [cycle_point(GROUPS, P, MEAN, eps, eta) for eta in (1e-3, 1e-4, 1e-5)]
    gaps = np.abs(np.asarray(points) - limit)
    np.testing.assert_allclose(gaps[:-1] / gaps[1:], 10, rtol=0.01)  # of order eta
    assert abs(limit - stable) > 2
    # Equal weights of the groups: what is left of the bias is of order eta.
    even, pairs = np.full(4, 0.25), [[0, 1], [2, 3]]
    assert groups_alike(pairs, even, MEAN, eps) == pytest.approx(settles(MEAN, eps, even), rel=1e-13)
    rates = [0.1, 0.05, 0.025]
    ends = paths(problem(MEAN, eps), Cyclic(2), rates, 1600)[:, 0, -1]
    np.testing.assert_allclose(ends, [cycle_point(pairs, even, MEAN, eps, eta) for eta in rates], rtol=1e-10)
    gaps = np.abs(ends - settles(MEAN, eps, even))
    assert np.all(gaps[1:] < 0.6 * gaps[:-1])


def test_a_reaction_amplifies_the_bias_of_groups():
    # What is amplified is the bias of the residuals at the stable point, and what amplifies it is 1 / (1 - eps_w),
    # eps_w with the weights of the choice: 2.05 here, where 1 / (1 - eps_bar) would be 1.39.
    eps, weights = EPS["performative"], np.append(0.5, 0.5 * P[1:] / P[1:].sum())
    stable = settles(MEAN, eps, P)
    pull = (weights - P) @ (MEAN - (1 - eps) * stable)
    limit = groups_alike(GROUPS, P, MEAN, eps)
    assert limit - stable == pytest.approx(pull / (1 - weights @ eps), rel=1e-12)
    # With one eps for all, theta (1 - eps) moves as theta does without reaction and with the rate eta (1 - eps).
    start = paths(problem(MEAN, 0.0, P), Cyclic(GROUPS), [0.05], 1200)[0, 0, -1] - settles(MEAN, np.zeros(4), P)
    for eps in (0.5, 0.8):
        end = paths(problem(MEAN, eps, P), Cyclic(GROUPS), [0.05 / (1 - eps)], 1200)[0, 0, -1]
        assert (end - settles(MEAN, np.full(4, eps), P)) / start == pytest.approx(1 / (1 - eps), rel=1e-9)


def test_drawing_within_the_group_keeps_the_mean_point():
    # k of each group: the same affine map on average, so the mean over runs goes to the same cycle.
    mean, p, groups = np.append(MEAN, 6.0), np.asarray([0.1, 0.2, 0.3, 0.1, 0.3]), [[0, 4], [1, 2, 3]]
    eps, eta = np.append(EPS["performative"], 0.1), 0.05
    found = pf.moments(problem(mean, eps, p), pf.p_fedavg(eta, participation=Cyclic(groups, k=2)), 1000)
    np.testing.assert_allclose(found.mean[-1], cycle_point(groups, p, mean, eps, eta), rtol=1e-9)
    assert found.covariance[-1, 0, 0] > 0.01


# Chosen by the loss.


def minimax(mean, lam):
    """The theta with the least highest loss, and the two clients that share it: r_i = -r_j."""
    best = None
    for i, j in itertools.combinations(range(len(mean)), 2):
        theta = (mean[i] + mean[j]) / (lam[i] + lam[j])
        worst = np.max(np.abs(mean - lam * theta))
        if np.isclose(worst, abs(mean[i] - lam[i] * theta)) and (best is None or worst < best[1]):
            best = theta, worst, (i, j)
    return best


@pytest.mark.parametrize("eps", [np.zeros(3), np.asarray([0.3, 0.1, 0.5])], ids=["static", "performative"])
def test_the_highest_loss_leads_to_the_minimax_point(eps):
    # The higher of the two losses is pulled down, so theta crosses the point where they are equal for ever. It
    # chooses by data of the last model, so it may overshoot by |e| / Lambda of a step (e = eps_i + eps_j, Lambda =
    # lambda_i + lambda_j) before it turns, and then by the step itself: |theta - theta*| <= eta R (1 + |e| / Lambda),
    # R the largest residual that near.
    mean, lam = np.asarray([0.0, 1.0, 10.0]), 1 - eps
    point, residual, (i, j) = minimax(mean, lam)
    grid = np.linspace(-5, 25, 30001)
    worst = np.abs(mean[:, None] - lam[:, None] * grid).max(axis=0)
    assert abs(grid[np.argmin(worst)] - point) < 1e-3 and abs(worst.min() - residual) < 1e-3
    rates = np.asarray([0.08, 0.04, 0.02])
    done = paths(problem(mean, eps), PowerOfChoice(1, 3), rates, 800)[:, 0]
    factor = 1 + abs(eps[i] + eps[j]) / (lam[i] + lam[j])
    band = rates * residual * factor / (1 - rates * lam.max() * factor)
    assert np.all(np.abs(done[:, 400:] - point).max(axis=1) <= band)
    stable = settles(mean, eps, np.ones(3))
    assert abs(point - stable) > 2 * band[-1]
    # n_i r_i - n_j r_j = (theta_T - theta_0) / eta over the pair's turns, with both r within lambda band of `residual`.
    # So they are heard equally often up to that, and the third client never.
    for eta, width, history in zip(
        rates, band, histories(problem(mean, eps), PowerOfChoice(1, 3), rates, 800, theta=point), strict=True
    ):
        heard = history.participation[0]
        assert heard[3 - i - j] == 0
        assert abs(heard[i] - heard[j]) <= width * (1 / (800 * eta) + lam.max()) / residual


def rank_weights(clients, d, k):
    """How often the client with the j-th highest loss is among the k highest of d that were drawn, over k."""
    ways = comb(clients, d) * k
    return (
        np.asarray(
            [sum(comb(j, above) * comb(clients - 1 - j, d - 1 - above) for above in range(k)) for j in range(clients)]
        )
        / ways
    )


# At theta between 1 and 4 the losses rank the clients as 5, 0, 1, 2, 3, 4.
RANKED, ORDER = np.asarray([0.0, 0.2, 0.4, 0.6, 0.8, 10.0]), [5, 0, 1, 2, 3, 4]


def test_rank_weights_by_hand():
    np.testing.assert_allclose(rank_weights(6, 2, 1), np.asarray([5, 4, 3, 2, 1, 0]) / 15)
    np.testing.assert_allclose(rank_weights(6, 3, 2), np.asarray([10, 10, 9, 7, 4, 0]) / 40)
    np.testing.assert_allclose(rank_weights(6, 2, 2), np.full(6, 1 / 6))


@pytest.mark.slow
@pytest.mark.parametrize("eps", [0.0, 0.5])
def test_random_candidates_lead_to_the_point_of_the_rank_weights(eps):
    weights = np.zeros(6)
    weights[ORDER] = rank_weights(6, 2, 1)
    point, stable = settles(RANKED, np.full(6, eps), weights), settles(RANKED, np.full(6, eps), np.ones(6))
    # Static: 22/15 above the stable point 2. The reaction amplifies it.
    assert point - stable == pytest.approx(22 / 15 / (1 - eps))
    eta, repeats = 0.01 / (1 - eps), 200
    done = paths(problem(RANKED, eps), PowerOfChoice(1, 2), [eta], 400, theta=stable, repeats=repeats)[0]
    losses = np.abs(RANKED - (1 - eps) * done[..., None])
    assert np.all(np.argsort(-losses, axis=-1) == ORDER)
    # While the order holds, the mean over runs follows an affine recursion, exactly.
    expected = point + (stable - point) * (1 - 0.01) ** np.arange(401)
    for at in (100, 400):
        assert abs(done[:, at].mean() - expected[at]) < 4 * done[:, at].std() / np.sqrt(repeats)


@pytest.mark.parametrize("eps", [np.zeros(4), np.asarray([0.2, 0.5, 0.4, 0.3])], ids=["static", "performative"])
def test_the_lowest_loss_leads_to_a_client_of_its_own_and_leaves_strange_ones_out(eps):
    mean, lam = np.asarray([0.0, 1.0, 2.0, 100.0]), 1 - eps
    where = problem(mean, eps)
    how = pf.p_fedavg(rate=0.1, participation=PowerOfChoice(1, 4, prefer="low"))
    # Whose loss is least where the run starts moves theta to where its loss is 0: it is chosen ever after.
    for start in (-3.0, mean[1] / lam[1] + 0.1, 120.0):
        first = np.argmin(np.abs(mean - lam * start))
        on_the_way = np.linspace(start, mean[first] / lam[first], 1001)[:, None]
        assert np.all(np.argmin(np.abs(mean - lam * on_the_way), axis=1) == first)
        end = pf.run(where, how, 400, start, dtype="float64").final[0]
        assert end == pytest.approx(mean[first] / lam[first], abs=1e-7)
    # All but one: the strange client is never among them, and theta ends where the others' stable point is.
    end = paths(where, PowerOfChoice(3, 4, "low"), [0.1], 400, theta=1.0)[0, 0, -1]
    assert end == pytest.approx(settles(mean[:3], eps[:3], np.ones(3)), rel=1e-9)


# The skew of a selection.


def predicted_skew(mean, lam, models, optimum, d, k, p):
    def chosen(x):
        weights = np.zeros(len(mean))
        weights[np.argsort(-np.abs(mean - lam * x))] = rank_weights(len(mean), d, k)
        return weights

    def rho(x, at):
        regret = (mean - lam * at) ** 2
        return chosen(x) @ regret / (p @ regret)

    return min(rho(x, at) for x in models for at in models), max(rho(x, optimum) for x in models)


@pytest.mark.parametrize("eps", [0.0, [0.3, 0.1, 0.5, 0.0]], ids=["static", "performative"])
def test_the_skew_of_power_of_choice(eps):
    mean, models, optimum = np.asarray([0.0, 1.0, 4.0, 10.0]), [-1.0, 2.3, 5.7, 8.0], 4.0
    lam, p = 1 - np.broadcast_to(eps, 4), np.full(4, 0.25)
    where = problem(mean, eps, scale=0.7)  # the noise that no model can remove is F_i*, and drops out
    found = selection_skew(where, PowerOfChoice(2, 4), models, optimum, draws=2)
    np.testing.assert_allclose(found, predicted_skew(mean, lam, models, optimum, 4, 2, p), rtol=1e-9)
    # Here the choice is random. A cohort's value at x' differs from draw to draw by at most max / mean of the regrets.
    found = selection_skew(where, PowerOfChoice(1, 2), models, optimum, draws=4000)
    regrets = (mean - lam * np.asarray([*models, optimum])[:, None]) ** 2
    error = np.max(np.ptp(regrets, axis=1) / 2 / regrets.mean(axis=1)) / np.sqrt(4000)
    np.testing.assert_allclose(found, predicted_skew(mean, lam, models, optimum, 2, 1, p), rtol=0, atol=4 * error)


def test_the_skew_of_unbiased_schemes_and_of_data_that_stay():
    mean, p = np.asarray([0.0, 1.0, 4.0, 10.0]), np.asarray([0.4, 0.3, 0.2, 0.1])
    where = problem(mean, 0.5, p)
    assert selection_skew(where, pf.Full(), [0.0, 3.0], 2.0, draws=1) == pytest.approx((1.0, 1.0))
    # Under one model that stays deployed the data of client i lie around m_i + deployed / 2.
    deployed, models = 2.0, [0.0, 3.0]
    found = selection_skew(where, PowerOfChoice(1, 4), models, 2.5, draws=1, deployed=deployed)

    def rho(x, at):
        regret = (mean + deployed / 2 - at) ** 2
        return regret[np.argmax((mean + deployed / 2 - x) ** 2)] / (p @ regret)

    expected = min(rho(x, at) for x in models for at in models), max(rho(x, 2.5) for x in models)
    np.testing.assert_allclose(found, expected, rtol=1e-9)
    # Two groups that take turns: over a cycle they count alike.
    groups = selection_skew(where, Cyclic([[0], [1, 2, 3]]), [3.0], 2.5, draws=10)
    weights = np.append(0.5, 0.5 * p[1:] / p[1:].sum())
    at = [(weights @ (mean - x / 2) ** 2) / (p @ (mean - x / 2) ** 2) for x in (3.0, 2.5)]
    np.testing.assert_allclose(groups, at, rtol=1e-9)
