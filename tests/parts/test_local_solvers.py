"""Local solvers and what a server makes of them: reach, control variates, optimizers."""

import dataclasses

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

import performative as pf
from performative._base.run_once import quickly_compiled
from performative._engine.clock import Clock
from performative._engine.executors import Gather
from performative._engine.keys import run_keys
from performative._engine.prepare import on_device, read_theta
from performative._engine.round import open_round
from performative._engine.setup import init_state, prepare
from performative._engine.simulated import federated_round
from performative.aggregators import Mean, Nova, Scaffold, ServerOpt
from performative.config import load_experiment
from performative.estimators import (
    AdaptiveSize,
    ControlVariate,
    Dice,
    Filtered,
    Minibatch,
    Performative,
    Preconditioned,
    Prox,
)
from performative.optimizers import Adagrad, Adam, Momentum, RMSProp, Yogi, as_optimizer
from performative.types import Broadcast, Cohort, Local, Upload

PART_EXAMPLES = {
    "pf.estimators.Prox": "inner=pf.estimators.Minibatch(), mu=0.1",
    "pf.estimators.ControlVariate": {
        "arguments": "inner=pf.estimators.Minibatch()",
        "beside": {"aggregator": "pf.aggregators.Scaffold()"},
    },
    "pf.aggregators.Scaffold": {
        "arguments": "",
        "beside": {"estimator": "pf.estimators.ControlVariate(pf.estimators.Minibatch())"},
    },
    "pf.optimizers.FromOptax": (),
}

pytestmark = pytest.mark.usefixtures("double_precision")

TAU = [1, 2, 5]
# -theta z with z = -1: every gradient is 1, wherever the model is.
SLOPE_ONE = pf.Problem(pf.losses.negative_revenue, pf.populations.Gaussian(-np.ones(3), 0.0, 0.0))
GAUSSIAN = pf.Problem(
    pf.losses.squared, pf.populations.Gaussian([1.0, -2.0, 4.0], [0.5, 0.2, -0.3], 0.5), [0.5, 0.3, 0.2]
)
DAMPED = Momentum(0.6)


def begin(problem, theta=0.0, **parts):
    """Setup, first state and keys, in double precision."""
    setup = on_device(prepare(problem, pf.p_fedavg(**parts), Clock()), jnp.float64)
    state = init_state(setup, read_theta(problem, theta, jnp.float64), True)
    return setup, state, run_keys(jax.random.key(0))


@quickly_compiled
def uploads(setup, state, keys):
    cohort, broadcast, _ = open_round(setup, state, keys)
    return Gather().run(setup, cohort, broadcast, state.clients, keys)[1:]


@quickly_compiled
def one_round(setup, state, keys):
    return federated_round(setup, state, keys)[0]


# --- how far local steps reach


def slow(estimator):
    return pytest.param(estimator, marks=pytest.mark.slow)


@pytest.mark.parametrize(
    "estimator",
    [
        Minibatch(),
        Prox(Minibatch(), 0.7),
        Preconditioned(Minibatch(), DAMPED),
        slow(Preconditioned(Minibatch(), Momentum(0.6, nesterov=True))),
        Prox(Preconditioned(Minibatch(), DAMPED), 0.7),
        slow(Preconditioned(Prox(Minibatch(), 0.7), DAMPED)),
        slow(Preconditioned(Preconditioned(Minibatch(), DAMPED), Adam(0.8, 0.9))),
        Preconditioned(Filtered(Minibatch()), RMSProp()),
        slow(Preconditioned(Minibatch(), Adagrad(0.5))),
        slow(Preconditioned(Minibatch(), Yogi())),
        Preconditioned(Minibatch(), optax.scale_by_lion()),
    ],
)
def test_reach_is_how_far_gradients_of_one_go(estimator):
    """Unequal work and a falling rate: each client's update is minus its reach."""
    work = {"participation": pf.LocalWork(pf.Full(), TAU), "estimator": estimator}
    sent, _ = uploads(*begin(SLOPE_ONE, rate=pf.schedules.harmonic(1.0, 2.0), **work))
    assert len(np.unique(np.asarray(sent.effective_step))) == 3
    np.testing.assert_allclose(sent.delta, -np.asarray(sent.effective_step), rtol=1e-12)


def test_reach_of_a_state_that_is_kept_is_the_long_run():
    kept = Preconditioned(Minibatch(), DAMPED, reset=False)
    setup, state, keys = begin(SLOPE_ONE, rate=0.1, participation=pf.LocalWork(pf.Full(), TAU), estimator=kept)
    np.testing.assert_allclose(
        uploads(setup, state, keys)[0].effective_step, 0.1 * np.asarray(TAU) / (1 - 0.6), rtol=1e-12
    )
    for _ in range(60):
        state = one_round(setup, state, keys)
    sent, _ = uploads(setup, state, keys)
    np.testing.assert_allclose(sent.delta, -np.asarray(sent.effective_step), rtol=1e-10)


def test_the_long_run_of_a_transformation_of_optax():
    kept = Preconditioned(Minibatch(), optax.trace(0.6), reset=False)
    setup, state, keys = begin(SLOPE_ONE, rate=0.1, participation=pf.LocalWork(pf.Full(), TAU), estimator=kept)
    np.testing.assert_allclose(
        uploads(setup, state, keys)[0].effective_step, 0.1 * np.asarray(TAU) / (1 - 0.6), rtol=1e-12
    )


def test_a_state_that_a_domain_hides_is_not_kept():
    """One infinite gradient: the projection makes the update finite, momentum alone remembers it."""
    kept = Preconditioned(Minibatch(), DAMPED, reset=False)
    zero, one = jnp.zeros(()), jnp.asarray(1, jnp.int32)
    local = Local(pf.losses.squared, None, None, zero, Broadcast(zero, zero, {}, one, 1), one, zero)
    spoilt = jax.tree.map(
        lambda leaf: leaf + jnp.inf, kept.init(zero, pf.populations.Gaussian(0.0, 0.0, 1.0), pf.losses.squared)
    )
    after = kept.finish(Upload(zero, one, None, {}), local, spoilt)[1]
    assert jax.tree.leaves(after) and all(bool(jnp.all(leaf == 0)) for leaf in jax.tree.leaves(after))


def test_a_client_that_is_done_keeps_its_state():
    """reset=False: the trace has seen tau_i gradients of 1, not E; reset=True: it is fresh."""
    for reset, known in ((False, [(1 - 0.6**t) / 0.4 for t in TAU]), (True, [0.0] * 3)):
        estimator = Preconditioned(Minibatch(), DAMPED, reset=reset)
        begun = begin(SLOPE_ONE, rate=0.1, participation=pf.LocalWork(pf.Full(), TAU), estimator=estimator)
        memory = uploads(*begun)[1]
        np.testing.assert_allclose(memory.estimator.state.trace, known, rtol=1e-12)


def test_nova_makes_updates_of_gradients_of_one_equal():
    """Then it changes the weights of nobody, and moves by the mean reach."""
    estimator = Prox(Preconditioned(Minibatch(), DAMPED), 0.3)
    for aggregator in (Nova(), Nova(over="cohort")):
        begun = begin(
            SLOPE_ONE, rate=0.1, participation=pf.LocalWork(pf.Full(), TAU), estimator=estimator, aggregator=aggregator
        )
        mean = np.mean(np.asarray(uploads(*begun)[0].effective_step))
        np.testing.assert_allclose(one_round(*begun).theta, -mean, rtol=1e-12)


# --- control variates


@dataclasses.dataclass
class Rounds:
    """SCAFFOLD on noisy data: states, one a round, and what clients sent in the last."""

    setup: object
    states: list
    sent: object


def scaffold(participation, rounds=4, problem=GAUSSIAN, estimator=None, **parts):
    estimator = ControlVariate(Minibatch()) if estimator is None else estimator
    parts = {"rate": 0.1, "aggregator": Scaffold(), **parts}
    setup, state, keys = begin(problem, theta=3.0, estimator=estimator, participation=participation, **parts)
    states = [state]
    for _ in range(rounds):
        states.append(one_round(setup, states[-1], keys))
    return Rounds(setup, states, uploads(setup, states[-2], keys)[0])


def test_the_new_control_variate_is_option_two():
    """c_i - c + (theta_0 - theta_i)/(tau_i eta), Karimireddy et al. 2020, Algorithm 1, for plain steps."""
    made = scaffold(pf.LocalWork(pf.Full(), TAU))
    before, after = made.states[-2:]
    mine, c = np.asarray(before.clients.estimator.own), float(before.server.aggregator.control)
    assert np.all(mine != 0) and c != 0
    option_two = mine - c - np.asarray(made.sent.delta) / (0.1 * np.asarray(TAU))
    np.testing.assert_allclose(after.clients.estimator.own, option_two, rtol=1e-11)
    np.testing.assert_allclose(made.sent.extra["control"], option_two - mine, rtol=1e-10)
    assert np.all(np.asarray(after.clients.estimator.total) == 0)


@pytest.mark.parametrize(
    "scheme", [pytest.param(pf.SchemeOne(2), marks=pytest.mark.slow), pf.SchemeTwo(2)], ids=["SchemeOne", "SchemeTwo"]
)
def test_the_server_keeps_the_exact_mean(scheme):
    """Also where a client is drawn twice, and where weights of a round do not sum to one."""
    for state in scaffold(pf.LocalWork(scheme, TAU), rounds=5).states:
        mean = GAUSSIAN.client_weights @ np.asarray(state.clients.estimator.own)
        np.testing.assert_allclose(state.server.aggregator.control, mean, atol=1e-14)


@pytest.mark.slow
def test_a_broken_client_leaves_the_control_variates_alone():
    broken = pf.Problem(pf.losses.squared, pf.populations.Gaussian([1.0, -2.0, 4.0], [0.5, 0.2, -0.3], 0.5))
    broken = eqx.tree_at(lambda p: p.population.mean, broken, np.asarray([1.0, np.nan, 4.0]))
    for estimator in (
        ControlVariate(Minibatch()),
        Preconditioned(ControlVariate(Minibatch()), DAMPED, reset=False),
    ):
        made = scaffold(pf.Full(), problem=broken, estimator=estimator)
        state = made.states[-1]
        memory = state.clients.estimator
        own = memory.own if isinstance(estimator, ControlVariate) else memory.inner.own
        assert np.isnan(made.sent.delta[1]) and own[1] == 0
        np.testing.assert_allclose(state.server.aggregator.control, np.mean(own), atol=1e-14)
        assert all(np.all(np.isfinite(leaf)) for leaf in jax.tree.leaves((state.theta, memory)))


def test_client_and_server_must_both_know_of_control_variates():
    alone = pf.p_fedavg(0.1, estimator=ControlVariate(Minibatch()))
    with pytest.raises(ValueError, match=r"ControlVariate needs a server .* pf.aggregators.Scaffold\(\)"):
        pf.run(GAUSSIAN, alone, 2)
    alone = pf.p_fedavg(0.1, aggregator=Nova(Scaffold()))
    with pytest.raises(ValueError, match=r"Scaffold needs clients .* ControlVariate\(Minibatch\(\)\)"):
        pf.run(GAUSSIAN, alone, 2)


@pytest.mark.slow
def test_what_wraps_hands_on():
    """Counts, facts, checks and memories of the parts inside."""
    estimator = Preconditioned(ControlVariate(Prox(AdaptiveSize(Performative(5), 1.0), 0.1)), DAMPED)
    algorithm = pf.p_fedavg(0.05, estimator=estimator, aggregator=Scaffold(), batch=pf.Fixed(8), local_steps=3)
    history = pf.run(GAUSSIAN, algorithm, 4, theta=1.0, record=pf.Record(risks=False))
    assert np.all(np.isfinite(history.theta)) and {"samples", "infeasible"} < set(history.records)
    wrapped = Preconditioned(Prox(ControlVariate(Dice(0.1, 0.01, 0.0)), 0.1), DAMPED)
    algorithm = pf.p_fedavg(0.1, estimator=wrapped, aggregator=Scaffold(), batch=pf.Fixed(4))
    with pytest.warns(UserWarning, match=r"too small|grows faster") as said:
        pf.run(GAUSSIAN, algorithm, 200, theta=30.0, record=pf.Record(risks=False))
    assert any("[error-memory-grows]" in str(one.message) for one in said)


# --- optimizers


def fed(tx, moves, rate=1.0):
    """What ServerOpt makes of these moves of the inner aggregator: one client, whose update they are."""
    server = on_device(ServerOpt(Mean(), tx, rate), jnp.float64)
    one, none = jnp.ones(1), jnp.zeros(1, jnp.int32)
    memory, out = server.init(jnp.zeros(2), 1, {}), []
    for move in jnp.asarray(moves):
        upload = jax.vmap(lambda delta: Upload(delta, jnp.ones((), jnp.int32), {}, {}))(move[None])
        step, memory = server.aggregate(jnp.zeros(2), upload, Cohort(none, one), one, memory)
        out.append(step)
    return np.asarray(out)


def test_server_optimizers_by_hand():
    moves = np.random.default_rng(0).standard_normal((5, 2))
    first, m, s = np.zeros((3, 2))
    total, y = np.full(2, 0.2), np.full(2, 1e-6)
    known = {"momentum": [], "adam": [], "adagrad": [], "yogi": []}
    for t, move in enumerate(moves, start=1):
        first = move + 0.8 * first
        known["momentum"].append(first)
        m, s = 0.9 * m + 0.1 * move, 0.99 * s + 0.01 * move**2
        y = y - 0.01 * np.sign(y - move**2) * move**2
        known["adam"].append(m / (1 - 0.9**t) / (np.sqrt(s / (1 - 0.99**t)) + 0.01))
        known["yogi"].append(m / (1 - 0.9**t) / (np.sqrt(y / (1 - 0.99**t)) + 0.01))
        total = total + move**2
        known["adagrad"].append(move / np.sqrt(total + 1e-7))
    made = {
        "momentum": Momentum(0.8),
        "adam": Adam(0.9, 0.99, 0.01),
        "adagrad": Adagrad(0.2),
        "yogi": Yogi(0.9, 0.99, 0.01),
    }
    for name, tx in made.items():
        np.testing.assert_allclose(fed(tx, moves, 0.5), 0.5 * np.asarray(known[name]), rtol=1e-10, err_msg=name)
        np.testing.assert_allclose(fed(tx, -moves), -fed(tx, moves), rtol=1e-12, err_msg=name)
    np.testing.assert_allclose(fed(optax.trace(0.8), moves), known["momentum"], rtol=1e-12)


@pytest.mark.slow
def test_numbers_of_optimizers_can_be_swept():
    algorithm = pf.p_fedavg(
        0.1, estimator=Preconditioned(Minibatch(), DAMPED), aggregator=ServerOpt(Nova(), Adam()), local_steps=2
    )
    grid = {"estimator.tx.decay": [0.1, 0.5], "aggregator.tx.eps": [1e-3, 1e-1], "aggregator.rate": [0.5]}
    made = pf.sweep(GAUSSIAN, algorithm, grid, rounds=2, theta=1.0)
    assert made.programs == 1 and len({float(h.theta[0, -1]) for h in made.histories}) == 4


def test_optimizers_can_be_named_in_a_file(tmp_path):
    (tmp_path / "one.toml").write_text("""
[problem]
loss = "squared"
population = { name = "Gaussian", mean = [1.0, 2.0], sensitivity = 0.5, scale = 1.0 }
[algorithm]
recipe = "p_fedavg"
rate = 0.1
estimator = { name = "Preconditioned", inner = { name = "Prox", inner = "Minibatch", mu = 0.1 }, tx = "Momentum" }
aggregator = { name = "ServerOpt", inner = "Nova", tx = { name = "Yogi", b1 = 0.5 } }
[run]
rounds = 2
""")
    algorithm = load_experiment(tmp_path / "one.toml").algorithm
    assert isinstance(algorithm.estimator.tx, Momentum) and algorithm.aggregator.tx.b1 == 0.5
    assert isinstance(algorithm.aggregator.inner, Nova)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: as_optimizer(optax.adam(1e-3)), "tx turns a direction of 1 into a negative one"),
        (lambda: ServerOpt(Mean(), optax.sgd(0.1)), "contains a learning rate"),
        (lambda: Preconditioned(Minibatch(), 0.9), r"tx must be an optimizer such as pf.optimizers.Momentum\(0.9\)"),
        (lambda: Prox(Minibatch(), -1.0), "Prox: mu must not be negative"),
        (lambda: Prox(Minibatch(), np.nan), "Prox: mu must be finite"),
        (lambda: ControlVariate(Prox(Preconditioned(Minibatch(), DAMPED), 0.1)), "Preconditioned goes outside"),
        (lambda: ControlVariate(Prox(ControlVariate(Minibatch()), 0.1)), "a client has one c_i"),
        (lambda: Nova(over="all"), 'Nova: over must be "clients" or "cohort"'),
        (lambda: ServerOpt(Mean(), DAMPED, -1.0), "ServerOpt: rate must not be negative"),
        (lambda: Momentum(1.0), r"Momentum: decay must lie in \[0, 1\)"),
        (lambda: Adam(b2=-0.1), r"Adam: b2 must lie in \[0, 1\)"),
        (lambda: Adagrad(initial=-1.0), "Adagrad: initial must not be negative"),
        (lambda: Yogi(eps=np.inf), "Yogi: eps must be finite"),
        (lambda: RMSProp(eps=-1.0), "RMSProp: eps must not be negative"),
    ],
)
def test_refusals(make, message):
    with pytest.raises(ValueError, match=message):
        make()
