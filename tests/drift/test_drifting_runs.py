"""Drifting people in runs: inside and around other populations, in every executor, with every rule of deployment."""

import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import performative as pf
from performative._base.client_axis import slice_client
from performative._base.run_once import quickly_compiled
from performative._engine.clock import Clock
from performative._engine.keys import run_keys
from performative._engine.prepare import on_device, read_theta
from performative._engine.setup import init_state, prepare
from performative._engine.simulated import federated_round
from performative.populations import Contaminated, Drifting, Gaussian, Mixture, Sluggish, Strategic

PART_EXAMPLES = {
    "pf.populations.Drifting": (
        "inner=G, path=pf.paths.Linear(0.1)",
        "inner=pf.populations.Sluggish(G, 0.5), path=pf.paths.Periodic(np.linspace(0.1, 1.0, N), 5.0)",
        "inner=G, path=pf.paths.Jump(1.0, 0.5), of='sensitivity'",
    ),
}
N = 5
RNG = np.random.default_rng(0)
G = Gaussian(np.arange(float(N)), 0.5, 1.0)
X, Y = RNG.standard_normal((N, 6, 2)), np.tile([0, 1, 0, 1, 1, 0], (N, 1))
PATH = pf.paths.Linear(np.linspace(-0.1, 0.3, N)) + pf.paths.Periodic(0.5, 5.0)
QUIET = pf.Record(risks=False)
SHARE = pf.populations.shares.Constant([0.25, 0.75])
MADE = {
    "gaussian": Drifting(G, PATH),
    "in sluggish": Sluggish(Drifting(G, PATH), 0.5),
    "around sluggish": Drifting(Sluggish(G, 0.5), PATH),
    "in contaminated": Contaminated(Drifting(G, PATH), 0.2, Gaussian(np.full(N, 9.0), 0.0, 1.0)),
    "around contaminated": Drifting(Contaminated(G, 0.2, Gaussian(np.full(N, 9.0), 0.0, 1.0)), PATH),
    "in a mixture": Mixture((G, Drifting(G, PATH)), SHARE),
    "around a mixture": Drifting(Mixture((G, G), SHARE), PATH),
    "strategic": Drifting(Strategic(X, Y, 0.5), pf.paths.Linear([[0.1, -0.1]] * N)),
    "a walk": Drifting(G, pf.paths.RandomWalk(np.full(N, 0.3))),
    "twice": Drifting(Drifting(G, PATH), pf.paths.Jump(2.0, 1.0)),
}


def problem_of(name):
    return pf.Problem(pf.losses.logistic(0.1) if name == "strategic" else pf.losses.squared, MADE[name])


def states(problem, executor="gather", rounds=3, clock=None, theta=None, **parts):
    """States of a few rounds in float64, the start first."""
    algorithm = pf.p_fedavg(**{"rate": 0.1, "local_steps": 2, "participation": pf.SchemeTwo(3), **parts})
    setup = on_device(prepare(problem, algorithm, Clock() if clock is None else clock), jnp.float64)
    found = [init_state(setup, read_theta(setup.problem, theta, jnp.float64), True)]
    step = quickly_compiled(lambda setup, state, keys: federated_round(setup, state, keys, executor)[0])
    for _ in range(rounds):
        found.append(step(setup, found[-1], run_keys(jax.random.key(3))))
    return found


SLOW = [name for name in MADE if name != "in sluggish"]


@pytest.mark.parametrize("name", [pytest.param(n, marks=pytest.mark.slow if n in SLOW else ()) for n in MADE])
def test_rounds_of_executors_agree(name, double_precision):
    ends = [states(problem_of(name), executor) for executor in ("gather", "dense")]
    for a, b in zip(*map(jax.tree.leaves, ends), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-12, atol=1e-14)  # to the bit by client, see tests/parity
    assert float(ends[0][-1].time.high) == 3 * 2.0


@pytest.mark.slow
@pytest.mark.parametrize("name", ["gaussian", "in sluggish", "strategic"])
def test_loop_and_gather_runs_agree(name):
    runs = [
        pf.run(problem_of(name), pf.p_fedavg(0.1, local_steps=2), rounds=3, executor=how, dtype="float64", record=QUIET)
        for how in ("gather", "loop")
    ]
    np.testing.assert_allclose(*(run.theta for run in runs), rtol=1e-12)


def test_samples_move_with_the_path(double_precision):
    person, theta = jnp.asarray(2, jnp.int32), jnp.ones(2)
    moved, inner = on_device((MADE["strategic"].at(3.0), MADE["strategic"].inner), jnp.float64)
    for client in range(N):
        x, y = slice_client(moved, client).sample(person, None, theta)
        z, w = slice_client(inner, client).sample(person, None, theta)
        np.testing.assert_allclose(x - z, [0.3, -0.3], rtol=1e-12)
        assert y == w


# What one person sees: noise-free, no reaction, eta = 1, so that the model is the level of the time it was met at.
CLEAN = pf.Problem(pf.losses.squared, Drifting(Gaussian([0.0, 0.0], 0.0, 0.0), pf.paths.Linear(1.0)))


@pytest.mark.parametrize(
    ("deploy", "E", "last"),
    [
        ("step", 2, [1, 3, 5, 7]),  # each step meets the time of its own
        ("round", 2, [0, 2, 4, 6]),  # a round meets the time at its start
        # The data are of today, whatever model people met.
        pytest.param(pf.Every(2), 2, [0, 2, 4, 6], marks=pytest.mark.slow),
        pytest.param("never", 2, [0, 2, 4, 6], marks=pytest.mark.slow),
    ],
)
def test_people_meet_a_model_at_the_time_of_its_deployment(deploy, E, last):
    algorithm = pf.p_fedavg(1.0, local_steps=E, deploy=deploy)
    history = pf.run(CLEAN, algorithm, rounds=4, theta=0.0, record=QUIET)
    np.testing.assert_allclose(history.theta[0, 1:], last, atol=1e-6)


@pytest.mark.slow
def test_slow_clients_have_a_clock_of_their_own():
    # One step takes client 0 one unit of time and client 1 three; a round lasts as long as the slowest: 6 + 1.
    clock = pf.Clock(compute=[1.0, 3.0], communication=1.0)
    algorithm = pf.p_fedavg(1.0, local_steps=2)
    history = pf.run(CLEAN, algorithm, rounds=3, theta=0.0, clock=clock, record=QUIET)
    # At their second step they meet the times 7 r + 1 and 7 r + 3.
    np.testing.assert_allclose(history.theta[0, 1:], 7.0 * np.arange(3) + 2.0, atol=1e-6)
    np.testing.assert_allclose(history["time"][0], 7.0 * np.arange(4), atol=1e-6)
    np.testing.assert_allclose(history["distance_to_stable"][0], [0.0, 5.0, 5.0, 5.0], atol=1e-6)  # 7 r - 2 - 7 (r - 1)


def test_the_world_of_those_who_sit_out(double_precision):
    moving = {
        absent: states(problem_of("gaussian"), deploy="round", absent=absent, theta=0.0)
        for absent in ("frozen", "reacts")
    }
    for before, after in itertools.pairwise(moving["reacts"]):
        np.testing.assert_array_equal(after.clients.world[0], np.full(N, float(before.time.high)))
    for before, after in itertools.pairwise(moving["frozen"]):
        out = before.participation.value() == after.participation.value()
        assert out.sum() == 2
        np.testing.assert_array_equal(after.clients.world[0][out], before.clients.world[0][out])
        np.testing.assert_array_equal(after.clients.world[0][~out], float(before.time.high))


@pytest.mark.slow
def test_a_run_goes_on_where_it_was_cut(tmp_path):
    def run(rounds, folder):
        kept = pf.Checkpoint(tmp_path / folder, every=2, resume=True)
        return pf.run(problem_of("a walk"), pf.p_fedavg(0.1), rounds, theta=0.0, checkpoint=kept, record=QUIET)

    run(4, "cut")
    cut, whole = run(8, "cut"), run(8, "whole")
    np.testing.assert_array_equal(cut.theta, whole.theta)
    np.testing.assert_array_equal(cut["distance_to_stable"], whole["distance_to_stable"])


@pytest.mark.slow
def test_speeds_can_be_swept():
    speeds = [0.0, 0.5]
    found = pf.sweep(CLEAN, pf.p_fedavg(1.0), {"problem.population.path.velocity": speeds}, 4, theta=0.0, record=QUIET)
    assert [float(history.final[0]) for history in found.histories] == pytest.approx([0.0, 1.5])


def test_risks_are_those_of_the_time():
    history = pf.run(CLEAN, pf.p_fedavg(1.0), rounds=3, theta=0.0)
    # theta_r = r - 1 at time r: the risk of people who stand one unit further on.
    np.testing.assert_allclose(history["performative_risk"][0, 1:], 0.5, atol=1e-6)


def test_people_who_read_no_time_run_the_same_program(double_precision):
    problem = pf.Problem(pf.losses.squared, G)
    assert problem.at(3.0) is problem and not G.reads_time and MADE["in a mixture"].reads_time
    assert not MADE["in a mixture"].at(2.0).reads_time
    (start,) = states(problem, rounds=0)
    assert start.time is None
    algorithm = pf.p_fedavg(0.1)

    def leaves(population):
        setup = on_device(prepare(pf.Problem(pf.losses.squared, population), algorithm, Clock()), jnp.float64)
        state = init_state(setup, jnp.zeros(()), True)
        program = jax.make_jaxpr(lambda state: federated_round(setup, state, run_keys(jax.random.key(0)), "dense")[0])
        return state, program(state)

    state, still = leaves(G)
    moving_state, moving = leaves(Drifting(G, pf.paths.Linear(0.1)))
    assert len(still.in_avals) == len(jax.tree.leaves(state)) < len(moving.in_avals)
    # The time and its compensation, and each client's time of its last deployment.
    assert len(jax.tree.leaves(moving_state)) - len(jax.tree.leaves(state)) == 3
    assert len(still.eqns) < len(moving.eqns)


@pytest.mark.parametrize(
    ("make", "match"),
    [
        (lambda: Drifting(G, PATH, of="level"), "Drifting: of must name a field of Gaussian; got 'level'"),
        (lambda: Drifting(G, pf.paths.Linear([1.0, 2.0])), "inner.mean has 5, path.velocity has 2"),
        (lambda: Drifting(G, pf.paths.Linear(np.ones((N, 3)))), r"path moves quantities of shape \(3,\) per client"),
        (lambda: Drifting(Strategic(X, Y, 0.5), PATH, of="x"), "of='x' is a table of Strategic; leave `of` out"),
        (lambda: pf.stable_point(CLEAN), r"specify a time, with time=.*\[target-moves\]"),
        (
            lambda: pf.plan(problem_of("a walk"), pf.Cost(), 0.1),
            r"plan: the data change on their own, .* pf.sweep; .*\[target-moves\]",
        ),
        (lambda: pf.optimal_point(CLEAN), "problem.at"),
        (lambda: pf.stable_point(CLEAN, time=np.nan), "time must be"),
        (lambda: CLEAN.at(np.inf), "at: time must be finite; got inf"),
        (lambda: CLEAN.at([1.0, 2.0]), r"at: time must be one number; got shape \(2,\)"),
    ],
)
def test_bad_input(make, match):
    with pytest.raises(ValueError, match=match):
        make()


@pytest.mark.filterwarnings("ignore:A JAX array is being set as static")
def test_an_array_is_no_name_of_a_field():
    with pytest.raises(ValueError, match="Drifting: of must name a field of Gaussian"):
        Drifting(G, PATH, of=np.ones((2, 2)))
