"""Plans against the best of a grid, and their predictions against what happens."""

import itertools
import json
import math
from functools import partial

import numpy as np
import pytest

import performative as pf
from performative.plan.choices import longest_step
from performative.plan.law import Laws
from performative.plan.near import look_around
from performative.plan.pilots import last_exit
from performative.plan.settings import LocalMaps, Setting, rounds_to

SLOW = pytest.mark.slow
RNG = np.random.default_rng(0)
MEAN, SENSITIVITY = RNG.normal(2.0, 2.0, 10), RNG.uniform(0.1, 0.6, 10)
PROBLEM = pf.Problem(pf.losses.squared, pf.populations.Gaussian(MEAN, SENSITIVITY, 1.0))
# One client answers by more than it is moved: alone it would run away.
PULLED = np.where(np.arange(10) == 3, 1.8, SENSITIVITY)
DRAWN = pf.Problem(pf.losses.squared, pf.populations.Gaussian(MEAN, PULLED, 1.0))
STABLE = MEAN.mean() / (1 - SENSITIVITY.mean())


def exact_time(setting_rate, E, scheme, k, cost, accuracy, limit):
    """Time to accuracy by the exact recursion, infinite beyond `limit`; written without the planner."""
    each = E * float(cost.step) + float(cost.communication)
    rounds = int(limit / each) + 1
    if rounds < 1 or rounds * E > 200_000:
        return np.inf
    moments = pf.theory.gaussian_moments(
        MEAN, SENSITIVITY, 1.0, setting_rate(np.arange(rounds * E)), local_steps=E, start=0.0, scheme=scheme, k=k
    )
    error = np.sqrt(moments.mse)
    below = np.flatnonzero(error <= accuracy)
    outside = np.flatnonzero(error > 1.05 * accuracy)
    settled = below[below > outside[-1]] if len(outside) else below  # not what swings through the point
    return settled[0] * each if len(settled) else np.inf


@pytest.mark.parametrize(
    "communication, accuracy",
    [
        pytest.param(1.0, 0.05, marks=pytest.mark.slow),
        pytest.param(100.0, 0.05, marks=pytest.mark.slow),
        pytest.param(10.0, 0.2, marks=pytest.mark.slow),
    ],
)
def test_the_choice_is_within_a_quarter_of_the_best_on_a_grid(communication, accuracy):
    cost = pf.Cost(communication=communication)
    plan = pf.plan(PROBLEM, cost, accuracy, theta=0.0, batches=(1,))
    chosen = plan.choice.setting
    assert plan.method == "exact moments"
    real = exact_time(chosen.eta, chosen.local_steps, chosen.scheme, chosen.k, cost, accuracy, 3 * plan.time)
    np.testing.assert_allclose(plan.time, real, rtol=1e-12)
    best = np.inf
    kappa = 1 - SENSITIVITY.mean()
    constant = [lambda t, r=rate: np.full(len(t), r) for rate in np.geomspace(2e-3, 1.5, 8)]
    harmonic = [
        lambda t, b=beta / kappa, first=first: b / (t + b / first)
        for beta, first in itertools.product((0.8, 1.5, 4.0), (0.2, 0.6, 1.2))
    ]
    for E, (scheme, k) in itertools.product((1, 8, 20, 50), (("full", None), ("two", 5))):
        for rate in (*constant, *harmonic):
            best = min(best, exact_time(rate, E, scheme, k, cost, accuracy, 3 * plan.time))
    assert plan.time <= 1.25 * best, (plan.time, best)


@pytest.mark.slow
def test_the_prediction_is_what_a_run_does():
    cost = pf.Cost(communication=20.0)
    plan = pf.plan(PROBLEM, cost, 0.1, theta=0.0, batches=(4,))
    history = pf.run(
        PROBLEM,
        plan.algorithm,
        2 * plan.rounds,
        theta=0.0,
        repeats=1000,
        record=pf.Record(risks=False, consensus=False),
    )
    error = np.sqrt(np.mean(np.square(history["distance_to_stable"]), axis=0))
    rounds = last_exit(error, history.rounds, 0.1)
    assert abs(rounds - plan.rounds) <= max(1, 0.1 * plan.rounds)


@pytest.mark.parametrize("scheme, k", [("full", None), ("one", 3), ("two", 5)])
@pytest.mark.parametrize("decay", [None, 40.0])
@pytest.mark.parametrize("deploy", ["step", "round"])
def test_the_linear_model_is_exact_for_quadratic_problems(scheme, k, decay, deploy):
    """But for spans of rounds that it takes at once."""
    setting = Setting(4, scheme, k, 2, 0.05, decay)
    near = look_around(PROBLEM, 0.0)
    np.testing.assert_allclose(near.stable, STABLE, rtol=1e-12)
    accuracy = 0.6 if decay is None else 0.5
    rounds = rounds_to(LocalMaps(near, deploy), setting, accuracy)
    moments = pf.theory.gaussian_moments(
        MEAN, SENSITIVITY, 1.0, setting.eta(np.arange(4 * 4000)), local_steps=4, batch=2, start=0.0, scheme=scheme,
        k=k, deploy=deploy,
    )  # fmt: skip
    exact = np.flatnonzero(moments.mse <= accuracy**2)[0]
    assert abs(rounds - exact) <= 1 + 0.12 * exact


@pytest.mark.slow
@pytest.mark.parametrize(("scheme", "k"), [("full", None), ("one", 3), ("two", 5)])
@pytest.mark.parametrize("deploy", ["step", "round"])
def test_the_law_is_that_of_the_theory_in_one_dimension(scheme, k, deploy):
    laws = Laws(PROBLEM, pf.p_fedavg, 0.5, STABLE, deploy, None, True, 4)
    for decay in (None, 40.0):
        setting = Setting(3, scheme, k, 2, 0.05, decay)
        moments = pf.theory.gaussian_moments(
            MEAN, SENSITIVITY, 1.0, setting.eta(np.arange(3 * 50)), local_steps=3, batch=2, start=0.5, scheme=scheme,
            k=k, deploy=deploy,
        )  # fmt: skip
        np.testing.assert_allclose(laws.errors(setting, 50), np.sqrt(moments.mse), rtol=1e-9)


VECTORS = {
    "a matrix, one mean a client": pf.populations.Gaussian(
        MEAN[:3], np.random.default_rng(3).normal(0, 0.3, (3, 2, 2)), 1.0
    ),
    "a scale by coordinate": pf.populations.Gaussian(MEAN[:3], 0.4, np.array([[0.1, 1.0], [2.0, 0.5], [1.0, 1.0]])),
    "a sensitivity by coordinate": pf.populations.Gaussian(
        MEAN[:3], np.array([[0.1, 0.8], [-2.0, 0.5], [0.4, 0.4]]), 1.0
    ),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", VECTORS)
def test_vectors_are_planned_exactly_and_the_plan_does_what_it_says(name):
    problem = pf.Problem(pf.losses.squared, VECTORS[name], [0.5, 0.2, 0.3])
    start = np.array([3.0, -3.0])
    accuracy = 0.2 * float(np.linalg.norm(pf.stable_point(problem) - start))
    plan = pf.plan(problem, pf.Cost(), accuracy, theta=start, local_steps=(1, 4), batches=(2,))
    assert plan.method == "exact moments" and plan.reached <= accuracy
    history = pf.run(
        problem,
        plan.algorithm,
        plan.rounds,
        theta=start,
        repeats=2000,
        record=pf.Record(risks=False, consensus=False),
        seed=5,
    )
    square = np.square(history["distance_to_stable"])
    laws = Laws(problem, pf.p_fedavg, start, pf.stable_point(problem), "step", None, True, 4)
    exact = laws.errors(plan.choice.setting, plan.rounds)
    # Four standard errors at the last round, for 2,000 repeats.
    spread = np.std(square[:, -1], ddof=1) / np.sqrt(2000)
    assert abs(np.mean(square[:, -1]) - exact[-1] ** 2) < 4 * spread
    assert exact[-1] == pytest.approx(plan.reached)


cohort_nova = partial(pf.p_fedavg, aggregator=pf.aggregators.Nova(over="cohort"))
RECIPES = [pf.p_fedavg, pf.fedvarp, pf.scaffold, pf.fedavgm, cohort_nova, partial(pf.fedprox, mu=0.5)]


@pytest.mark.slow
@pytest.mark.parametrize("recipe", RECIPES)
def test_one_machine_has_the_moments_of_all_settings(recipe):
    """Other numbers of steps, samples and rates than those that it was made with."""
    problem = pf.Problem(
        pf.losses.squared, pf.populations.Gaussian(MEAN[:4], SENSITIVITY[:4], 1.0), [0.4, 0.3, 0.2, 0.1]
    )
    laws = Laws(problem, recipe, 0.5, pf.stable_point(problem), "round", None, True, 5)
    for setting in (Setting(3, "two", 2, 2, 0.05), Setting(2, "two", 2, 4, 0.1, 20.0)):
        known = pf.moments(problem, setting.algorithm(None, "round", recipe), 40, 0.5)
        np.testing.assert_allclose(laws.errors(setting, 40) ** 2, known.mse_stable, rtol=1e-10)


def test_the_longest_step_is_the_edge_of_stability():
    plain = look_around(PROBLEM, 0.0)
    assert longest_step(LocalMaps(plain, "step"), 1) == 2 / plain.steepest  # no client may swing
    near = look_around(DRAWN, 0.0)
    edge = longest_step(LocalMaps(near, "step"), 64)
    assert edge < 2 / near.steepest
    for part, settles in ((0.9, True), (1.2, False)):
        eta = np.full(64 * 400, part * edge)
        moments = pf.theory.gaussian_moments(MEAN, PULLED, 1.0, eta, local_steps=64, start=0.0)
        assert (moments.mse[-1] < 10 * moments.mse[200]) == settles, part


@pytest.mark.slow
def test_stragglers_make_the_server_go_on_without_them():
    """A hundred equal clients: the last of them takes five times as long as the median one."""
    alike = pf.Problem(pf.losses.squared, pf.populations.Gaussian(np.full(100, 2.0), np.full(100, 0.5), 1.0))
    slow = pf.Cost(step=0.01, communication=0.0, latency=pf.participation.Exponential(10.0))
    plan = pf.plan(alike, slow, 0.2, theta=0.0, batches=(8,), local_steps=(1, 4), pilots=False)
    assert plan.choice.setting.scheme == "first"
    plain = pf.plan(alike, pf.Cost(step=1.0, communication=1.0), 0.2, theta=0.0, batches=(8,), local_steps=(1, 4))
    assert plain.choice.setting.scheme == "full"


@pytest.mark.slow
def test_unequal_speeds_and_latencies():
    speeds = np.linspace(1.0, 5.0, 10)
    cost = pf.Cost(step=speeds, communication=1.0, latency=pf.participation.Exponential(np.linspace(1.0, 9.0, 10)))
    plan = pf.plan(PROBLEM, cost, 0.3, theta=0.0, batches=(8,), local_steps=(1, 4))
    assert all(option.setting.scheme != "first" for option in plan.ranked)  # it would hear fast clients more often
    assert plan.choice.round_time > 5.0
    alone = pf.Cost(step=speeds, communication=1.0)
    assert alone.round_time("full", 10, 4, 8, np.full(10, 0.1)) == 4 * 5.0 + 1.0
    assert 4 * 1.0 + 1.0 <= alone.round_time("two", 2, 4, 8, np.full(10, 0.1)) < 4 * 5.0 + 1.0


@pytest.mark.slow
def test_privacy():
    table = np.random.default_rng(1).normal(1.0, 1.0, (4, 2000))
    population = pf.populations.Database(table, pf.populations.shifts.Linear(np.full(4, 0.4)))
    problem = pf.Problem(pf.losses.squared, population)
    how = {"theta": 0.0, "local_steps": (1, 8), "batches": (50,)}
    loose = pf.plan(problem, pf.Cost(), 0.1, privacy=pf.Privacy(delta=1e-5, epsilon=2.0), **how)
    assert loose.reached == 0.1 and loose.choice.setting.scheme == "full"
    steps = loose.rounds * loose.choice.setting.local_steps
    spent = pf.privacy.spent(loose.choice.setting.noise, steps, 1e-5, batch=pf.Uniform(50), rows=2000)
    assert spent.epsilon <= 2.0
    assert "pf.plan chose" in pf.privacy.guarantee(problem, loose.algorithm).not_covered[0]
    history = pf.run(problem, loose.algorithm, loose.rounds, theta=0.0, repeats=400, record=pf.Record(risks=False))
    error = np.sqrt(np.mean(np.square(history.final - pf.stable_point(problem))))
    assert error < 1.25 * 0.1  # what clipping adds is not in the prediction
    tight = pf.plan(problem, pf.Cost(), 0.01, privacy=pf.Privacy(delta=1e-5, epsilon=0.02), **how)
    assert tight.reached > 0.01 and "out of reach" in str(tight)


def test_words_and_json():
    plan = pf.plan(PROBLEM, pf.Cost(communication=30.0), 0.1, theta=0.0, batches=(1, 8), local_steps=(1, 4, 16))
    said = json.loads(json.dumps(plan.to_dict()))
    assert said["choice"]["local_steps"] == plan.choice.setting.local_steps and said["time"] == plan.time
    assert plan.runner_up is not None and plan.runner_up.time >= plan.time
    assert f"{plan.rounds} rounds" in str(plan) and "runner-up" in str(plan)


@pytest.mark.parametrize(
    "change, message",
    [
        ({"accuracy": 0.0}, "accuracy must be a positive number"),
        ({"accuracy": 100.0}, "the start is already"),
        ({"deploy": "never"}, 'deploy must be "step" or "round"'),
        ({"cost": pf.Cost(step=[1.0, 2.0])}, "for 10 clients"),
        ({"privacy": pf.Privacy(delta=1e-5, epsilon=1.0)}, "privacy needs people in a table"),
        ({"local_steps": (0,)}, "local_steps must be a list, each a whole number >= 1"),
        ({"batches": ()}, "must each contain at least one candidate"),
    ],
)
def test_slips(change, message):
    given = {"cost": pf.Cost(), "accuracy": 0.1, "theta": 0.0} | change
    with pytest.raises(ValueError, match=message):
        pf.plan(PROBLEM, **given)


def test_the_first_to_answer_may_have_long_work():
    """Who is among the first K depends on latency alone; the server then waits for their work, as in a run."""
    step = np.asarray([0.1] * 8 + [20.0, 20.0])
    latency = pf.participation.Exponential(5.0)
    predicted = pf.Cost(step, communication=2.0, latency=latency).round_time("first", 8, 4, 1, np.full(10, 0.1))
    algorithm = pf.p_fedavg(0.01, local_steps=4, participation=pf.FirstK(8, latency))
    history = pf.run(
        PROBLEM, algorithm, 400, theta=0.0, clock=pf.Clock(step, 2.0), record=pf.Record(risks=False, theta="last")
    )
    spread = np.diff(history["time"][0])
    assert abs(predicted - spread.mean()) < 5 * spread.std() * np.sqrt(1 / 400 + 1 / 512)


@pytest.mark.slow
def test_the_edge_of_a_domain_is_tried_in_pilot_runs():
    edge = pf.Problem(PROBLEM.loss, PROBLEM.population, domain=pf.Box(-1.0, 1.0))
    plan = pf.plan(edge, pf.Cost(), 0.3, theta=0.0, local_steps=(1,), batches=(8,))
    assert plan.method == "pilot runs" and plan.reached <= 0.3
    assert plan.start == pytest.approx(1.0)
    inside = pf.Problem(PROBLEM.loss, PROBLEM.population, domain=pf.Box(-50.0, 50.0))
    plan = pf.plan(inside, pf.Cost(), 0.5, theta=0.0, local_steps=(4,), batches=(8,), pilots=False)
    assert plan.method == "linear model" and plan.accuracy == 0.5


def test_outliers_without_a_variance_are_refused():
    junk = pf.populations.Outliers(np.zeros(2), 1.0, law="cauchy")
    problem = pf.Problem(
        pf.losses.squared, pf.populations.Contaminated(pf.populations.Gaussian([1.0, 2.0], 0.3, 1.0), 0.1, junk)
    )
    with pytest.raises(ValueError, match="no-variance"):
        pf.plan(problem, pf.Cost(), 0.1, theta=0.0)


def test_nothing_settles():
    problem = pf.Problem(pf.losses.squared, pf.populations.Gaussian([1.0, 2.0], [1.5, 1.2], 1.0))
    with pytest.raises(ValueError, match="small steps do not settle"):
        pf.plan(problem, pf.Cost(), 0.1, theta=0.0)


@pytest.mark.slow
def test_pilot_runs_on_a_problem_that_is_not_quadratic():
    """Strategic credit: the prediction holds in a run with other seeds."""
    frame = pf.cases.credit_table()
    problem = pf.Problem.from_frame(frame, client="bank", label="default", strategic=["utilization"], strength=1.0)
    start = np.zeros(np.shape(pf.stable_point(problem)))
    distance = float(np.linalg.norm(pf.stable_point(problem)))
    plan = pf.plan(problem, pf.Cost(communication=20.0, sample=0.05), 0.15 * distance, theta=start)
    assert plan.method == "pilot runs"
    history = pf.run(
        problem,
        plan.algorithm,
        2 * plan.rounds,
        theta=start,
        seed=7,
        repeats=32,
        record=pf.Record(risks=False, stable=pf.stable_point(problem)),
    )
    error = np.sqrt(np.mean(np.square(history["distance_to_stable"]), axis=0))
    rounds = last_exit(error, history.rounds, plan.accuracy)
    assert abs(rounds - plan.rounds) <= max(1, 0.25 * plan.rounds)


@pytest.mark.slow
@pytest.mark.parametrize("recipe", ["fedvarp", partial(pf.fedprox, mu=0.5)])
def test_every_recipe_is_planned_by_its_own_moments(recipe):
    rng = np.random.default_rng(0)
    people = pf.populations.Gaussian(rng.normal(size=8), rng.uniform(-0.3, 0.6, 8), 1.0)
    problem = pf.Problem(pf.losses.squared, people)
    plan = pf.plan(problem, pf.Cost(communication=5.0), 0.05, recipe=recipe, local_steps=(1, 4), batches=(1,))
    assert plan.method == "exact moments" and plan.reached <= 0.05
    history = pf.run(problem, plan.algorithm, plan.rounds, repeats=4_000, record=pf.Record(risks=False, theta="last"))
    error = np.sqrt(np.mean(np.square(np.asarray(history.final) - float(pf.stable_point(problem)))))
    assert abs(error / plan.reached - 1) < 0.05


@pytest.mark.slow
def test_people_whose_noise_multiplies_are_planned_exactly():
    """The second moments of regression do not close in the short recursion."""
    problem = pf.Problem(pf.losses.ridge(0.1), pf.populations.Regression([0.0, 0.5], 0.5, [1.0, 2.0], 0.3, 0.5))
    plan = pf.plan(problem, pf.Cost(), 0.3, local_steps=(2,), batches=(1,))
    exact = pf.moments(problem, plan.algorithm, plan.rounds)
    assert plan.method == "exact moments"
    assert plan.reached == pytest.approx(math.sqrt(exact.mse_stable[-1]), rel=1e-9) and plan.reached <= 0.3


def test_an_unknown_recipe_is_named():
    problem = pf.Problem(pf.losses.squared, pf.populations.Gaussian(1.0, 0.5, 1.0))
    with pytest.raises(ValueError, match="fedvarp"):
        pf.plan(problem, pf.Cost(), 0.1, recipe="fedvarb")
