"""What the experiments of P-FedAvg are made of: scaled objectives, ratios with errors, exact recursions."""

import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import performative as pf
from performative._engine.risk import client_risks
from performative.papers import catalog
from performative.papers.p_fedavg.bounds import beyond
from performative.papers.p_fedavg.credit import Whole
from performative.papers.p_fedavg.instance import Study, fall, ratio
from performative.papers.p_fedavg_preprint.equilibria import strategic
from performative.papers.p_fedavg_preprint.weights import averaged
from performative.testing import check_part
from performative.theory import Assumptions, gaussian_beside, theorem_3_3, theorem_b_4

P, M, EPS = np.array([0.1, 0.2, 0.7]), np.array([1.0, 2.0, -1.0]), np.array([0.3, 0.6, 0.2])
QUIET = {"callbacks": [pf.callbacks.Progress(False)]}


def unequal(scale=0.5):
    return pf.Problem(pf.losses.squared, pf.populations.Gaussian(M, EPS, scale), P)


@pytest.mark.slow
def test_scaled_objectives_have_the_same_points_and_larger_gradients():
    problem, scaled = unequal(), unequal().scaled()
    for point in (pf.stable_point, pf.optimal_point):
        np.testing.assert_allclose(point(scaled), point(problem), rtol=1e-12)
    model = jnp.asarray(3.0)
    plain, larger = (jax.jacobian(lambda theta, one=one: client_risks(one, theta, model)) for one in (problem, scaled))
    np.testing.assert_allclose(larger(model), 3 * P * np.asarray(plain(model)), rtol=1e-5)


@pytest.mark.slow
def test_scheme_two_on_scaled_objectives_steps_by_n_p():
    """Everyone drawn, no noise: the mean of models after E steps of eta N p_i along grad f_i, by hand."""
    start, eta, E = 5.0, 0.05, 3
    algorithm = pf.p_fedavg(eta, local_steps=E, participation=pf.SchemeTwo(3))
    with jax.enable_x64(True):
        run = pf.run(unequal(0.0).scaled(), algorithm, 1, start, dtype="float64", **QUIET)
        plain = pf.run(unequal(0.0), algorithm, 1, start, dtype="float64", **QUIET)
    theta = np.full(3, start)
    for _ in range(E):
        theta = theta - eta * 3 * P * (theta - M - EPS * theta)
    np.testing.assert_allclose(run.final[0], theta.mean(), rtol=1e-12)
    assert abs(float(plain.final[0]) - theta.mean()) > 1e-3


@pytest.mark.slow
def test_scaled_population_keeps_the_contract():
    assert set(check_part(unequal().scaled().population)) >= {"jit_equals_eager", "vmap_equals_loop", "sweeps", "nodes"}


def test_ratio_is_of_means_with_the_error_of_pairs():
    top, bottom = np.array([1.0, 2.0, 3.0]), np.array([2.0, 4.0, 6.0])
    assert ratio(top, bottom) == (0.5, 0.0)
    found, error = ratio(top + np.array([0.3, 0.0, -0.3]), bottom)
    assert found == pytest.approx(0.5)
    assert error == pytest.approx(0.3 / math.sqrt(3) / 4)


def gaussian(**more):
    how = {"mean_variance": 0.6, "sensitivity_variance": 0.1, "start": 10.0, "beta": 100.0, "gamma": 1e4}
    return Study(25, 10.0, 0.9, 0.1, 0, local_steps=5, **how | more)


@pytest.mark.slow
def test_what_settles_elsewhere_does_not_fall():
    s = gaussian(rounds=400, repeats=4)
    runs = s.sweep({"on": {"deploy": "step"}, "off": {"deploy": pf.fedavg(rate=0.1).deploy}})
    on, off = (fall(runs[name]) for name in ("on", "off"))
    assert on[0] + 3 * on[1] < 1
    assert abs(off[0] - 1) < 0.02 < 1 - on[0]


def test_recursion_of_averaged_models_agrees_where_weights_are_equal():
    s = gaussian(long_rounds=300)
    exact = s.exact("two", 20)
    for scaled in (False, True):
        found = averaged(s, 20, scaled)
        np.testing.assert_allclose(found.mean, exact.mean, rtol=1e-10)
        np.testing.assert_allclose(found.mse, exact.mse, rtol=1e-6)


def test_a_bound_that_promises_nothing_is_not_kept():
    given = Assumptions.of_gaussian([1.0, 1.0], [1.1, 1.1], 0.1, start=3.0)
    assert math.isnan(beyond(gaussian_beside(theorem_b_4(given, 1, 1.0, 10.0), [1.0, 1.0], [1.1, 1.1], 0.1, start=3.0)))


def test_a_bound_is_exceeded_or_loose():
    calm = {"mean": [1.0, 1.0], "sensitivity": [0.1, 0.1], "scale": 0.0, "start": 3.0}
    forms = [theorem_3_3(Assumptions.of_gaussian(**calm), 1, 1, printed=printed) for printed in (False, True)]
    kept, broken = (beyond(gaussian_beside(theorem, **calm, rounds=50)) for theorem in forms)
    assert kept < 1 < broken


@pytest.mark.slow
def test_a_game_knows_leader_and_followers():
    found = strategic(clients=2, rows=10, strength=[0.3, 0.6], penalty=0.5, moves=30, seed=1).numbers
    assert found["dynamics_off"] < 1e-6 and found["leader_off"] < 1e-6
    assert max(found["follower_gain"], found["lender_gain"]) < 1e-9
    assert found["leader_over_stable"] < 1


@pytest.mark.parametrize("paper", ["p_fedavg", "p_fedavg_preprint"])
def test_rows_have_no_thresholds_of_ours_and_say_what_they_are_about(paper):
    for name in catalog.names(paper):
        experiment = catalog.find(name)
        assert "{" not in experiment.noted(True).replace("{'", "")
        for claim in experiment.claims:
            checks = [check for check in (claim.printed, claim.corrected) if check is not None]
            assert not any(check.threshold_of_ours() for check in checks), (name, claim.id)
            assert claim.kind != "paper" or claim.about, (name, claim.id)


def test_whole_tables_are_taken_at_every_step():
    """One round of E = 2 on two clients with three rows each, gradients of all rows by hand."""
    rng = np.random.default_rng(0)
    x, y, strength = rng.normal(size=(2, 3, 2)), np.array([[0, 1, 1], [1, 0, 0]]), np.array([0.5, 1.0])
    problem = pf.Problem(pf.losses.logistic(0.1), pf.populations.Strategic(x, y, strength))
    algorithm = pf.p_fedavg(0.3, local_steps=2, batch=Whole(3))
    with jax.enable_x64(True):
        run = pf.run(problem, algorithm, 1, np.ones(2), dtype="float64", **QUIET)
    models = np.ones((2, 2))
    for _ in range(2):
        moved = x - strength[:, None, None] * models[:, None]
        chance = 1 / (1 + np.exp(-np.einsum("nmd,nd->nm", moved, models)))
        models = models - 0.3 * (np.mean((chance - y)[..., None] * moved, axis=1) + 0.1 * models)
    np.testing.assert_allclose(run.final[0], models.mean(axis=0), rtol=1e-10)
