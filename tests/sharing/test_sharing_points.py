"""Where clients with models of their own settle, against the linear equations of Gaussian data."""

import dataclasses

import numpy as np
import pytest

import performative as pf

PART_EXAMPLES = {
    "pf.sharing.OneModel": "",
    "pf.sharing.PerClient": "",
    "pf.sharing.Heads": ("mask=True", "mask=np.array([True, False, False])"),
    "pf.sharing.Ditto": "strength=0.5",
    "pf.sharing.PFedMe": "strength=0.5",
    "pf.sharing.Interpolated": "share=0.3",
    "pf.sharing.Groups": "group=np.arange(N) % 2",
    "pf.sharing.LearnedGroups": "count=2, spread=0.3",
}
MEAN, EPS = np.array([0.0, 1.0, 6.0, 2.0]), np.array([0.2, 0.5, 0.8, -0.5])
WEIGHTS = np.array([0.1, 0.4, 0.2, 0.3])


@pytest.fixture(scope="module")
def quiet():
    """Almost no noise: runs end at the point."""
    return pf.Problem(pf.losses.squared, pf.populations.Gaussian(MEAN, EPS, np.full(4, 1e-7)), weights=WEIGHTS)


def settle(problem, sharing, rounds=1500, **parts):
    algorithm = pf.p_fedavg(0.1, sharing=sharing, **({"deploy": "round"} | parts))
    return pf.run(problem, algorithm, rounds, dtype="float64", record=pf.Record(risks=1))


def ditto_point(strength):
    """[v_1, ..., v_N, theta]."""
    matrix, right = np.eye(5), np.append(MEAN, WEIGHTS @ MEAN)
    matrix[np.arange(4), np.arange(4)] = 1 - EPS + strength
    matrix[:4, 4], matrix[4, :4] = -strength, -WEIGHTS * EPS
    return np.linalg.solve(matrix, right)


@pytest.mark.parametrize("strength", [0.0, 0.3, 2.0])
@pytest.mark.parametrize(
    "deploy", ["round", pytest.param("step", marks=pytest.mark.slow), pytest.param(pf.Every(3), marks=pytest.mark.slow)]
)
def test_ditto(quiet, strength, deploy):
    history = settle(quiet, pf.sharing.Ditto(strength), deploy=deploy, local_steps=2)
    *own, shared = ditto_point(strength)
    np.testing.assert_allclose(history.final, shared, atol=2e-6)
    np.testing.assert_allclose(history.models[0], own, atol=1e-5)
    apart = (1 - EPS) * own - MEAN  # each client's data lie so far from its model
    np.testing.assert_allclose(history["performative_risk"][:, -1], WEIGHTS @ apart**2 / 2, rtol=1e-5, atol=1e-9)
    there = WEIGHTS @ ((1 - EPS) * shared - MEAN) ** 2 / 2
    np.testing.assert_allclose(history["shared_risk"][:, -1], there, rtol=1e-5)


def test_pfedme(quiet):
    """With the squared loss its point is that of Ditto: both have theta = sum_i p_i v_i."""
    strength = 0.5
    history = settle(quiet, pf.sharing.PFedMe(strength), rounds=4000)
    slack = 1 - EPS + strength
    point = (WEIGHTS @ (MEAN / slack)) / (WEIGHTS @ ((1 - EPS) / slack))
    np.testing.assert_allclose(history.final, point, atol=2e-6)
    np.testing.assert_allclose(ditto_point(strength)[-1], point, atol=1e-12)


@pytest.mark.slow
def test_pfedme_is_another_point_where_curvatures_differ():
    """Features without variance: f_i has the curvature S_i = x_i^2, and runs have no noise."""
    x, slope, eps, strength = np.array([1.0, 2.0, 0.5]), np.array([1.0, 3.0, -2.0]), np.array([0.4, -0.3, 0.2]), 0.7
    population = pf.populations.Regression(x, np.zeros(3), slope, -eps, np.zeros(3))
    problem = pf.Problem(pf.losses.ridge(0.0), population)
    S, p = x**2, np.full(3, 1 / 3)
    matrix = np.zeros((4, 4))
    matrix[np.arange(3), np.arange(3)] = S * (1 - eps) + strength
    matrix[:3, 3] = -strength
    right = np.append(S * slope, p @ (S * slope))
    matrix[3, :3], matrix[3, 3] = -p * S * eps, p @ S
    ditto = np.linalg.solve(matrix, right)[-1]
    matrix[3, :3], matrix[3, 3], right[3] = -p, 1.0, 0.0
    pfedme = np.linalg.solve(matrix, right)[-1]
    assert abs(ditto - pfedme) > 0.1
    for sharing, point in ((pf.sharing.Ditto(strength), ditto), (pf.sharing.PFedMe(strength), pfedme)):
        np.testing.assert_allclose(settle(problem, sharing, rounds=4000).final, point, atol=2e-6)


def test_pulled_hard_it_settles_where_p_fedavg_does(quiet):
    one, pulled = settle(quiet, pf.sharing.OneModel()), settle(quiet, pf.sharing.Ditto(1e8))
    np.testing.assert_allclose(pulled.final, one.final, atol=1e-6)


def test_without_a_pull_it_is_local_training_to_the_bit(quiet):
    noisy = dataclasses.replace(quiet, population=pf.populations.Gaussian(MEAN, EPS, np.ones(4)))
    alone = settle(noisy, pf.sharing.PerClient(), rounds=40)
    ditto = settle(noisy, pf.sharing.Ditto(0.0), rounds=40)
    assert np.array_equal(alone["performative_risk"], ditto["performative_risk"])
    own = settle(noisy, pf.sharing.Interpolated(1.0), rounds=40)
    np.testing.assert_allclose(own["performative_risk"], alone["performative_risk"], rtol=1e-12)


@pytest.mark.slow
def test_models_are_kept_in_the_file(quiet, tmp_path):
    history = settle(quiet, pf.sharing.PerClient())
    np.testing.assert_allclose(history.models[0], MEAN / (1 - EPS), atol=1e-5)
    assert np.array_equal(pf.History.load(history.save(tmp_path / "run.nc")).models, history.models)
    assert settle(quiet, pf.sharing.OneModel(), rounds=40).models is None


def test_a_client_that_runs_away_is_seen():
    problem = pf.Problem(pf.losses.squared, pf.populations.Gaussian(MEAN, np.array([0.2, 0.5, 3.0, 0.1]), np.ones(4)))
    with pytest.warns(pf.PerformativeWarning, match="run-diverged"):
        assert settle(problem, pf.sharing.PerClient()).status == "diverged"


def test_each_group_has_its_own_stable_point(quiet):
    history = settle(quiet, pf.sharing.Groups([0, 1, 1, 0]))
    for place, members in enumerate(([0, 3], [1, 2])):
        p = WEIGHTS[members] / WEIGHTS[members].sum()
        point = (p @ MEAN[members]) / (1 - p @ EPS[members])
        np.testing.assert_allclose(history.final[0, place], point, atol=2e-6)


@pytest.mark.slow
def test_groups_are_found():
    mean = np.array([0.0, 0.2, 9.8, 10.0])
    problem = pf.Problem(pf.losses.squared, pf.populations.Gaussian(mean, np.full(4, 0.3), np.full(4, 0.01)))
    history = settle(problem, pf.sharing.LearnedGroups(2, spread=3.0))
    np.testing.assert_allclose(np.sort(history.final[0]), np.array([0.1, 9.9]) / 0.7, atol=0.05)


def test_a_mask_says_what_is_shared():
    mean = np.array([[0.0, 1.0], [4.0, 3.0]])
    problem = pf.Problem(pf.losses.squared, pf.populations.Gaussian(mean, np.full(2, 0.5), np.full(2, 1e-7)))
    history = settle(problem, pf.sharing.Heads(np.array([True, False])))
    assert history.final[0, 0] == 0.0  # nobody trains it
    np.testing.assert_allclose(history.final[0, 1], 2.0 / 0.5, atol=2e-6)
    apart = np.array([0.0, 1.0]) ** 2  # own entries fit; the shared one is off by 1 for both
    np.testing.assert_allclose(history["performative_risk"][:, -1], apart.sum() / 2, rtol=1e-5)


def test_a_mix_of_both_models(quiet):
    """Shares of 0 are one model for all."""
    one = settle(quiet, pf.sharing.OneModel(), rounds=40)
    mixed = settle(quiet, pf.sharing.Interpolated(0.0), rounds=40)
    np.testing.assert_allclose(mixed.theta, one.theta, atol=1e-12)


@pytest.mark.parametrize(
    "sharing",
    [
        pf.sharing.Ditto(0.5),
        *(
            pytest.param(part, marks=pytest.mark.slow)
            for part in (pf.sharing.PFedMe(0.5), pf.sharing.PerClient(), pf.sharing.Groups([0, 1, 1, 0]))
        ),
    ],
    ids=lambda part: type(part).__name__,
)
def test_executors_agree(sharing):
    problem = pf.Problem(pf.losses.squared, pf.populations.Gaussian(MEAN, EPS, np.ones(4)), weights=WEIGHTS)
    parts = {"participation": pf.SchemeTwo(2), "local_steps": 2, "deploy": pf.Every(2)}
    ran = [
        pf.run(problem, pf.p_fedavg(0.1, sharing=sharing, **parts), 5, 0.0, executor=executor)
        for executor in ("dense", "gather", "loop")
    ]
    for other in ran[1:]:
        np.testing.assert_allclose(other.theta, ran[0].theta, rtol=2e-6, atol=1e-6)
        np.testing.assert_allclose(other["performative_risk"], ran[0]["performative_risk"], rtol=1e-5)


@pytest.mark.parametrize(
    ("make", "why"),
    [
        (lambda: pf.sharing.Groups([0, 2]), r"every group needs a client; \[1\] has none"),
        (lambda: pf.sharing.Groups([0.5, 1.0]), "one number 0, 1, ... per client"),
        (lambda: pf.sharing.Ditto(-1.0), "strength must not be negative"),
        (lambda: pf.sharing.PFedMe(0.0), "strength must be above 0"),
        (lambda: pf.sharing.Interpolated(1.5), r"share must lie in \[0, 1\]"),
        (lambda: pf.sharing.Heads(0.5), "mask must contain True and False"),
        (lambda: pf.sharing.LearnedGroups(0), "at least 1"),
    ],
)
def test_refusals(make, why):
    with pytest.raises(ValueError, match=why):
        make()


def test_what_does_not_fit_the_problem(quiet):
    with pytest.raises(ValueError, match="2 entries for 4 clients"):
        settle(quiet, pf.sharing.Groups([0, 1]), rounds=2)
    with pytest.raises(ValueError, match="mask must be a tree like theta"):
        settle(quiet, pf.sharing.Heads({"head": True}), rounds=2)
    with pytest.raises(ValueError, match="sharing=Ditto with Scaffold"):
        pf.run(quiet, pf.scaffold(0.1, sharing=pf.sharing.Ditto()), 2)
    with pytest.raises(ValueError, match="PFedMe with Performative: a client that trains two models"):
        pf.run(quiet, pf.pofl(0.1, 3, sharing=pf.sharing.PFedMe()), 2)
