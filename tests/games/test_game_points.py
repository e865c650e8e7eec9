"""The points of a game against linear solves, and what has none."""

import numpy as np
import pytest

import performative as pf

PART_EXAMPLES = {
    "pf.populations.Market": (
        {
            "arguments": "demand=np.arange(1.0, N + 1), coupling=0.1 - np.eye(N), scale=1.0",
            "loss": "pf.losses.revenue(1.0)",
        },
        {
            "arguments": "demand=np.ones((N, 2)), coupling=0.1 * np.ones((N, N, 2)), scale=np.ones(N)",
            "loss": "pf.losses.revenue(1.0)",
        },
    ),
    "pf.losses.Revenue": {"arguments": "penalty=0.5", "population": "G"},
    "pf.populations.shares.Logit": "size=[0.3, 0.7], merit=[1.0, -1.0], sharpness=0.5",
    "pf.participation.Turns": ("players=np.arange(N) % 3", "players=N, k=K, random=True"),
}
SOLVERS = {"stable": pf.stable_point, "nash": pf.nash_point, "social": pf.social_point}


def linear(players, seed=0):
    """b, M and the penalty of a game whose three points exist."""
    rng = np.random.default_rng(seed)
    m = 0.3 * rng.standard_normal((players, players)) / np.sqrt(players)
    np.fill_diagonal(m, -rng.uniform(0.5, 1.5, players))
    return rng.uniform(1.0, 2.0, players), m, 1.5


def exact(which, b, m, penalty):
    more = {"stable": 0.0 * m, "nash": np.diag(np.diag(m)), "social": m.T}[which]
    return np.linalg.solve(penalty * np.eye(len(b)) - m - more, b)


@pytest.mark.parametrize("which", SOLVERS)
@pytest.mark.parametrize("seed", range(3))
def test_the_three_linear_solves(which, seed):
    b, m, penalty = linear(3, seed)
    game = pf.cases.linear_game(b, m, penalty)
    found = SOLVERS[which](game, report=True)
    np.testing.assert_allclose(found.theta, exact(which, b, m, penalty), rtol=1e-9)
    assert found.residual < 1e-9 and found.error < 1e-9
    theta = found.theta
    each = -theta * (b + m @ theta) + penalty * theta**2 / 2
    np.testing.assert_allclose(pf.player_risks(game, theta), each, rtol=1e-9)
    np.testing.assert_allclose(found.risk, each.sum(), rtol=1e-9)


def test_contraction_is_that_of_all_retraining_at_once():
    b, m, penalty = linear(3)
    found = pf.stable_point(pf.cases.linear_game(b, m, penalty), report=True)
    np.testing.assert_allclose(found.contraction, np.max(np.abs(np.linalg.eigvals(m / penalty))), rtol=1e-9)
    own = np.diag(np.diag(m))
    best = np.linalg.solve(penalty * np.eye(3) - 2 * own, m - own)
    nash = pf.nash_point(pf.cases.linear_game(b, m, penalty), report=True)
    np.testing.assert_allclose(nash.contraction, np.max(np.abs(np.linalg.eigvals(best))), rtol=1e-9)
    assert found.attracting and found.settles and nash.attracting and nash.settles


@pytest.mark.slow
def test_several_prices_and_matrices():
    """Two sellers of two goods, M_ij [2, 2]: the same solves in blocks."""
    rng = np.random.default_rng(3)
    m = 0.1 * rng.standard_normal((2, 2, 2, 2)) - np.einsum("ij,ab->ijab", np.eye(2), np.eye(2))
    b = rng.uniform(1.0, 2.0, (2, 2))
    game = pf.Game(pf.Problem(pf.losses.revenue(2.0), pf.populations.Market(b, m, 0.5)))
    whole = np.transpose(m, (0, 2, 1, 3)).reshape(4, 4)
    own = np.zeros((4, 4))
    own[:2, :2], own[2:, 2:] = m[0, 0], m[1, 1]
    right = {"stable": 0 * own, "nash": own.T, "social": whole.T}
    for which, solver in SOLVERS.items():
        point = np.linalg.solve(2.0 * np.eye(4) - whole - right[which], b.reshape(-1)).reshape(2, 2)
        np.testing.assert_allclose(solver(game), point, rtol=1e-8)


@pytest.mark.slow
def test_a_federation_is_one_player():
    """Markets of one seller: by weight its demand and its couplings are means."""
    rng = np.random.default_rng(4)
    b, weights = rng.uniform(1.0, 2.0, 5), np.array([0.1, 0.2, 0.3, 0.15, 0.25])
    m = 0.2 * rng.standard_normal((5, 2))
    players = np.array([0, 0, 1, 1, 1])
    m[np.arange(5), players] = -1.0
    problem = pf.Problem(pf.losses.revenue(2.0), pf.populations.Market(b, m, 1.0), weights)
    mean = np.zeros((2, 5))
    mean[players, np.arange(5)] = weights / np.bincount(players, weights)[players]
    for which, solver in SOLVERS.items():
        point = exact(which, mean @ b, mean @ m, 2.0)
        np.testing.assert_allclose(solver(pf.Game(problem, players)), point, rtol=1e-8)


def test_problems_can_be_listed():
    b, m, penalty = linear(3)
    cuts = [slice(0, 1), slice(1, 3)]
    listed = [pf.Problem(pf.losses.revenue(penalty), pf.populations.Market(b[c], m[c, :2], 1.0)) for c in cuts]
    game = pf.Game(listed)
    assert game.count == 2 and game.players.tolist() == [0, 1, 1]
    np.testing.assert_array_equal(game.problem.population.coupling, m[:, :2])
    np.testing.assert_array_equal(game.problem.population.scale, np.ones(3))
    np.testing.assert_allclose(game.problem.weights, [0.5, 0.25, 0.25])
    np.testing.assert_allclose(game.client_weights, [1.0, 0.5, 0.5])


def within(domain, b, m, penalty):
    return pf.Game(pf.Problem(pf.losses.revenue(penalty), pf.populations.Market(b, m, 1.0), domain=domain))


def test_in_a_box():
    """The first seller is held at its bound; the second answers to that."""
    b, m = np.array([3.0, 1.0, 1.0]), np.array([[-1.0, 0.5, 0.0], [0.5, -1.0, 0.0], [0.0, 0.0, -1.0]])
    game = within(pf.Box(0.0, 1.0), b, m, 1.5)
    np.testing.assert_allclose(pf.stable_point(game), [1.0, (1.0 + 0.5) / 2.5, 1 / 2.5], rtol=1e-8)
    # Alone against 3/7 it would ask for (3 + 0.5 * 3/7) / 3.5 = 0.92, which the box allows.
    first, second = np.linalg.solve([[3.5, -0.5], [-0.5, 3.5]], [3.0, 1.0])
    np.testing.assert_allclose(pf.nash_point(game), [first, second, 1 / 3.5], rtol=1e-8)


def test_in_a_ball_of_each_player():
    game = within(pf.Ball(1.0), [3.0, 1.0, 1.0], -np.eye(3), 1.5)
    np.testing.assert_allclose(pf.stable_point(game), [1.0, 0.4, 0.4], rtol=1e-7)


def test_a_repelling_stable_point_is_told():
    game = pf.cases.linear_game(np.ones(3), -np.eye(3), 0.5)
    with pytest.warns(pf.PerformativeWarning, match="repelling-point"):
        np.testing.assert_allclose(pf.stable_point(game), np.full(3, 1 / 1.5))


def test_no_nash_point_where_a_player_always_gains():
    """penalty - 2 m_00 < 0: the first seller's own risk falls for ever."""
    game = pf.cases.linear_game(np.ones(3), np.diag([1.0, -1.0, -1.0]), 1.0)
    with pytest.raises(ValueError, match=r"player 0 gains .* \[no-nash-point\]"):
        pf.nash_point(game)


def test_no_social_point_where_the_sum_falls_for_ever():
    game = pf.cases.linear_game(np.ones(3), 3.0 - 4.0 * np.eye(3), 1.0)
    with pytest.raises(ValueError, match=r"keeps decreasing far out.*\[no-social-point\]"):
        pf.social_point(game)


def test_no_stable_point_where_the_system_is_singular():
    game = pf.cases.linear_game([1.0, 2.0, 4.0], 1.0 - 3.0 * np.eye(3), 0.0)
    with pytest.raises(ValueError, match=r"\[no-stable-point\]"):
        pf.stable_point(game)


@pytest.mark.slow
def test_people_who_remember_leave_attraction_open():
    b, m, penalty = linear(2)
    slow = pf.populations.Sluggish(pf.populations.Market(b, m, 1.0), 0.5)
    found = pf.stable_point(pf.Game(pf.Problem(pf.losses.revenue(penalty), slow)), report=True)
    np.testing.assert_allclose(found.theta, exact("stable", b, m, penalty), rtol=1e-8)
    assert found.attracting is None and np.isnan(found.contraction)
