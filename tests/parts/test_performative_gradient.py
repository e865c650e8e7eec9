"""The performative gradient: unbiased in each of its forms, learned from a window, refused where it cannot be."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import performative as pf
from performative._base.reaction import Moments, Window
from performative._engine.prepare import on_device
from performative._engine.risk import decoupled_risk
from performative.families import ClassLocation, Location, Proportions, Slope
from performative.populations.base import collect
from performative.testing.uses import slice_client
from performative.types import Scene

PART_EXAMPLES = {
    "pf.estimators.Performative": (
        "window=7",
        "window=7, term='pathwise', reset_after=3",
        "window=None, term='pathwise'",
    ),
    "pf.families.Location": {"arguments": "", "population": "G"},
    "pf.families.ClassLocation": {
        "arguments": "classes=2",
        "population": "pf.populations.Strategic(X, Y, 0.1)",
        "loss": "pf.losses.logistic(0.1)",
    },
    "pf.families.Slope": {
        "arguments": "",
        "population": "pf.populations.Regression(np.zeros(N), 1.0, np.ones(N), 0.1, 1.0)",
        "loss": "pf.losses.ridge(0.1)",
    },
    "pf.families.Proportions": {
        "arguments": "groups=2",
        "population": "pf.populations.Mixture((G, G), pf.populations.shares.Linear([0.5, 0.5], [0.1, -0.1]))",
    },
}

pytestmark = pytest.mark.slow

SAMPLES = 1_000_000
ERRORS = 5.0  # standard errors
PRICES = np.asarray([1.3, 0.7])


def pricing():
    gamma = np.asarray([[1.0, 0.3], [0.2, 2.0]])
    population = pf.populations.Pricing(np.asarray([[6.0, 7.0]]), gamma[None], 1.0)
    return pf.Problem(pf.losses.negative_revenue, population), PRICES, Location(), -gamma


def house():
    population = pf.populations.Regression(np.asarray([1.5]), 1.0, 1.6, -1.2, 2.0)
    return pf.Problem(pf.losses.ridge(1.0), population), np.asarray(-0.5), Slope(), np.asarray([[1.2]])


def classes():
    sensitivity = np.asarray([[0.1, 1.5]])
    population = pf.populations.Classes(np.asarray([[1.0, 0.5], [-1.0, -0.4]]), sensitivity, 0.7)
    reaction = -np.kron(sensitivity.T, np.eye(2))
    return pf.Problem(pf.losses.logistic(0.1), population), np.asarray([-0.4, -0.3]), ClassLocation(2), reaction


def groups():
    demands = [pf.populations.Outliers(np.asarray([mu]), 0.5) for mu in (1.0, 3.0)]
    share = pf.populations.shares.Linear(level=(0.6, 0.4), slope=(0.1, -0.1))
    problem = pf.Problem(pf.losses.negative_revenue, pf.populations.Mixture(demands, share))
    return problem, np.asarray(1.2), Proportions(2), np.asarray([[0.1], [-0.1]])


def second_terms(problem, theta, family, reaction, samples=SAMPLES):
    """Both terms sample by sample, [n, d], in each form, at the true f and df/dtheta; and the exact gradient."""
    on = on_device(problem, jnp.float64)
    mine = slice_client(on.population, 0)
    noise = mine.draw(jax.random.key(3), (samples,), theta)
    batch = collect(mine, noise, None, mine.init(Scene(theta, problem.loss)), theta)
    each, first = jax.vmap(jax.value_and_grad(on.loss), in_axes=(None, 0))(theta, batch.z)
    first = first.reshape(samples, -1)
    known = family.fit(batch)  # one sample in a million moves it by nothing that counts here
    score = family.score(batch, known)
    forms = {"score": each[:, None] * score, "score with baseline": (each - jnp.mean(each))[:, None] * score}
    if mine.smooth:
        slope = jax.vmap(jax.grad(on.loss, argnums=1, allow_int=True), in_axes=(None, 0))(theta, batch.z)
        forms["pathwise"] = family.displace(batch, slope)
    exact = jax.grad(lambda t: decoupled_risk(on, jnp.ones(1), t, t))(theta).reshape(-1)
    return {name: first + form @ reaction for name, form in forms.items()}, exact


@pytest.mark.parametrize(
    "case",
    [pricing, house, *(pytest.param(case, marks=pytest.mark.slow) for case in (classes, groups))],
    ids=lambda case: case.__name__,
)
def test_every_form_is_unbiased_against_the_exact_gradient(case):
    problem, theta, family, reaction = case()
    with jax.enable_x64(True):
        forms, exact = second_terms(problem, jnp.asarray(theta), family, jnp.asarray(reaction))
        for name, rows in forms.items():
            error = np.asarray(jnp.std(rows, axis=0)) / np.sqrt(SAMPLES)
            assert np.all(np.abs(np.asarray(jnp.mean(rows, axis=0) - exact)) <= ERRORS * error), name
    # What ignores the reaction is far off: the test can tell.
    assert np.any(np.abs(np.asarray(exact)) > 0)


def test_a_baseline_and_a_path_save_variance():
    problem, theta, family, reaction = pricing()
    with jax.enable_x64(True):
        forms, _ = second_terms(problem, jnp.asarray(theta), family, jnp.asarray(reaction), 100_000)
        variance = {name: float(jnp.sum(jnp.var(rows, axis=0))) for name, rows in forms.items()}
    assert variance["score"] > 5 * variance["score with baseline"] > 5 * variance["pathwise"]


def test_differentiating_the_samples_is_the_exact_gradient():
    """window=None on a finite table: no sampling error is left when the batch is every row once."""
    rng = np.random.default_rng(1)
    x, y = rng.standard_normal((1, 8, 3)), rng.integers(0, 2, (1, 8))
    problem = pf.Problem(pf.losses.logistic(0.1), pf.populations.Strategic(x, y, 0.7, features=(0, 2)))
    theta = np.asarray([0.3, -0.5, 0.2])
    algorithm = pf.p_fedavg(1.0, batch=pf.Uniform(8), estimator=pf.estimators.Performative(None, term="pathwise"))
    history = pf.run(problem, algorithm, 1, theta=theta, dtype="float64", record=pf.Record(risks=False))
    with jax.enable_x64(True):
        on = on_device(problem, jnp.float64)
        exact = jax.grad(lambda t: decoupled_risk(on, jnp.ones(1), t, t))(jnp.asarray(theta))
    np.testing.assert_allclose(theta - history.theta[0, -1], exact, rtol=1e-10)


def filled_window(models, map_, length):
    window = Window.empty(length, jnp.asarray(models[0]), jnp.asarray(models[0] @ map_.T))
    for t, model in enumerate(models):
        window = window.write(jnp.asarray(model), jnp.asarray(model @ map_.T), jnp.asarray(t, jnp.int32))
    return window


def test_a_model_that_stays_deployed_has_one_entry():
    with jax.enable_x64(True):
        window = filled_window(np.asarray([[0.0], [1.0]]), np.ones((1, 1)), 4)
        for f in (2.0, 3.0):
            window = window.write(jnp.asarray([1.0]), jnp.asarray([f]), jnp.asarray(9, jnp.int32))
        model, parameters = window.newest()
        assert window.count == 2 and window.times == 3 and model == 1
        np.testing.assert_allclose(parameters, [(1 + 2 + 3) / 3])


def test_a_linear_map_is_recovered_and_empty_slots_are_exact():
    rng = np.random.default_rng(0)
    map_, models = rng.standard_normal((4, 3)), rng.standard_normal((5, 3))
    with jax.enable_x64(True):
        for length in (5, 9):  # four slots of the longer window were never written
            window = filled_window(models, map_, length)
            here = rng.standard_normal(3)
            found, reach = Moments.of(*window.differences(jnp.asarray(here), jnp.asarray(map_ @ here))).jacobian(1e-6)
            np.testing.assert_allclose(found, map_, rtol=1e-8, atol=1e-10)
            np.testing.assert_allclose(reach, np.linalg.svd(models - here, compute_uv=False)[-1], rtol=1e-8)


def test_the_ring_keeps_the_newest():
    with jax.enable_x64(True):
        window = filled_window(np.arange(7.0)[:, None], np.ones((1, 1)), 3)
    assert sorted(np.asarray(window.models)[:, 0]) == [4, 5, 6] and window.count == 7 and window.last == 6


def test_directions_without_spread_are_left_out():
    along = np.linspace(0.0, 1.0, 6)[:, None] * np.asarray([1.0, 1.0]) + 1e-6 * np.random.default_rng(0).normal(
        size=(6, 2)
    )
    noisy = along @ np.diag([2.0, 2.0]) + 1e-3 * np.random.default_rng(1).normal(size=(6, 2))
    with jax.enable_x64(True):
        moments = Moments.of(jnp.asarray(along), jnp.asarray(noisy))
        wild, _ = moments.jacobian(1e-12)
        calm, _ = moments.jacobian(1e-2)
        still, reach = Moments.of(jnp.zeros((6, 2)), jnp.asarray(noisy)).jacobian(1e-2)
        assert np.abs(np.asarray(wild)).max() > 100
        np.testing.assert_allclose(np.asarray(calm) @ np.ones(2), [2.0, 2.0], atol=0.01)
        assert np.all(np.asarray(still) == 0) and reach == 0


def first_steps(estimator, rounds, deploy="step"):
    problem = pf.Problem(pf.losses.negative_revenue, pf.populations.Pricing([6.0, 7.0], [1.0, 3.0], 1.0))
    algorithm = pf.p_fedavg(0.05, batch=pf.Fixed(50), estimator=estimator, deploy=deploy)
    return pf.run(problem, algorithm, rounds, theta=0.0, dtype="float64", record=pf.Record(risks=False)).theta[0]


@pytest.mark.slow
def test_the_first_steps_go_by_the_plain_gradient():
    window = 4
    plain, learned = first_steps(pf.estimators.Minibatch(), 7), first_steps(pf.estimators.Performative(window), 7)
    # Steps 0 to H are plain (Algorithm 2, line 6), so the models up to H + 1 agree.
    np.testing.assert_allclose(learned[: window + 2], plain[: window + 2], rtol=1e-12)
    assert np.all(np.abs(learned[window + 2 :] - plain[window + 2 :]) > 1e-3)


def test_one_sample_says_nothing_of_a_score():
    problem, theta, *_ = pricing()
    with pytest.raises(ValueError, match=r"learns nothing from one sample per step.*batch=pf.Fixed"):
        pf.run(problem, pf.pofl(0.1, window=9), 1, theta=theta)


@pytest.mark.slow
def test_a_class_that_is_absent_is_as_it_was():
    """Nothing reacts here, so both gradients must end at one point, though most batches lack the rare class."""
    population = pf.populations.Classes([[6.0], [4.0]], 0.0, 0.5, share=(0.98, 0.02))
    problem = pf.Problem(pf.losses.logistic(0.1), population)
    common = {"rate": 0.1, "batch": pf.Fixed(50)}
    ends = [
        pf.run(problem, how, 300, repeats=4, record=pf.Record(risks=False)).theta[:, -50:].mean()
        for how in (pf.p_fedavg(**common), pf.pofl(window=25, **common))
    ]
    assert abs(ends[0] - ends[1]) < 0.05


@pytest.mark.slow
def test_nothing_deployed_nothing_learned():
    plain, learned = (first_steps(e, 8, "never") for e in (pf.estimators.Minibatch(), pf.estimators.Performative(3)))
    np.testing.assert_allclose(learned, plain, rtol=1e-12)


@pytest.mark.slow
def test_a_client_that_was_away_starts_over():
    with jax.enable_x64(True):
        window = filled_window(np.arange(5.0)[:, None], np.ones((1, 1)), 3)
        assert window.forget_if(jnp.asarray(True)).count == 0 and window.forget_if(jnp.asarray(False)).count == 5
    problem = pf.Problem(pf.losses.negative_revenue, pf.populations.Pricing(np.full(6, 6.0), 1.0, 1.0))

    def model(reset_after):
        estimator = pf.estimators.Performative(3, reset_after=reset_after)
        algorithm = pf.p_fedavg(
            0.05, batch=pf.Fixed(50), local_steps=5, participation=pf.SchemeTwo(2), estimator=estimator
        )
        return pf.run(problem, algorithm, 20, theta=0.0, dtype="float64", record=pf.Record(risks=False)).theta[0]

    always, never = model(None), model(5)
    assert np.all(np.isfinite(never)) and np.any(always != never)


def test_a_window_that_cannot_tell_is_refused():
    problem, theta, *_ = pricing()
    run = dict(rounds=1, theta=theta, record=pf.Record(risks=False))
    with pytest.raises(ValueError, match=r"window=2.*2 parameters.*window >= 5"):
        pf.run(problem, pf.pofl(0.1, window=2, batch=pf.Fixed(4)), **run)
    with pytest.warns(pf.PerformativeWarning, match=r"not well above the 2 parameters.*\[window-too-short\]"):
        pf.run(problem, pf.pofl(0.1, window=3, batch=pf.Fixed(4)), **run)


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: pf.estimators.Performative(5, term="scores"), 'term must be "score" or "pathwise"'),
        (lambda: pf.estimators.Performative(0), "window must be a whole number >= 1"),
        (lambda: pf.estimators.Performative(5, family="mean"), "family must be one such as"),
        (lambda: pf.estimators.Performative(None), 'give it term="pathwise"'),
        (lambda: pf.estimators.Performative(5, rtol=2.0), r"rtol must lie in \[0, 1\)"),
        (lambda: pf.families.Proportions(0), "groups must be a whole number"),
        (lambda: pf.families.Location(0.0), "scale is a standard deviation and must be positive"),
    ],
)
def test_slips_are_named(make, words):
    with pytest.raises(ValueError, match=words):
        make()


def test_the_estimator_must_fit_the_population():
    problem, theta, *_ = groups()
    with pytest.raises(ValueError, match=r"the model changes who is sampled.*term=\"score\""):
        pf.run(problem, pf.p_fedavg(0.1, estimator=pf.estimators.Performative(9, term="pathwise")), 1, theta=theta)

    class Unknown(pf.populations.AbstractPopulation):
        level: jax.Array = pf.per_client()

        def sample(self, noise, world, theta):
            return self.level + theta + jax.random.normal(noise, ())

    unknown = pf.Problem(pf.losses.squared, Unknown(np.arange(3.0)))
    with pytest.raises(ValueError, match=r"Unknown does not declare how its data are distributed; pass family="):
        pf.run(unknown, pf.pofl(0.1, window=5, batch=pf.Fixed(4)), 1, theta=0.0)
    given = pf.estimators.Performative(5, family=pf.families.Location())
    assert (
        pf.run(
            unknown, pf.p_fedavg(0.1, batch=pf.Fixed(4), estimator=given), 2, theta=0.0, record=pf.Record(risks=False)
        ).status
        == "completed"
    )


def test_columns_that_do_not_vary_say_nothing():
    z = jnp.stack([jnp.linspace(-1.0, 1.0, 5), jnp.ones(5)], axis=1)
    batch = pf.types.Batch(z, None, None)
    family = Location()
    score = family.score(batch, family.fit(batch))
    assert np.all(np.asarray(score[:, 1]) == 0) and np.all(np.isfinite(score))
    assert eqx.tree_equal(family.displace(batch, z), z)
