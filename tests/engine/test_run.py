"""What `run` promises: shapes, records, repeats, thinning, early stops, no second compilation."""

import jax
import numpy as np
import pytest

import performative as pf
from performative._engine.assemble import flatten_rows
from performative._engine.chunk import RecordBuffer, run_chunk

MEANS = np.asarray([0.0, 1.0, 2.0, 3.0, 4.0])
PROBLEM = pf.Problem(pf.losses.squared, pf.populations.Gaussian(MEANS, 0.5, 1.0))
ALGORITHM = pf.p_fedavg(rate=0.1, local_steps=2, participation=pf.SchemeOne(3))


def test_the_readme_shape_of_a_history():
    history = pf.run(PROBLEM, ALGORITHM, rounds=6, theta=0.0, repeats=4)
    assert history.theta.shape == (4, 7)
    assert np.all(history.theta[:, 0] == 0.0)
    assert history.status == "completed"
    assert history.meta["executor"] == "gather"
    data = history.to_xarray()
    assert data["theta"].dims == ("repeat", "round")
    for name in (
        "consensus",
        "time",
        "uploads",
        "samples",
        "communications",
        "distance_to_stable",
        "distance_to_optimal",
    ):
        assert data[name].dims == ("repeat", "round"), name
    assert data["performative_risk"].dims == ("repeat", "risk_round")


def test_distances_and_risks_are_what_they_say():
    history = pf.run(PROBLEM, ALGORITHM, rounds=4, theta=0.0, dtype="float64", record=pf.Record(risks=4))
    stable, optimal = 2.0 / 0.5, 0.5 * 2.0 / 0.25
    np.testing.assert_allclose(history["distance_to_stable"], np.abs(history.theta - stable), rtol=1e-12)
    np.testing.assert_allclose(history["distance_to_optimal"], np.abs(history.theta - optimal), rtol=1e-12)
    # f(theta; phi) = mean_i ((theta - m_i - phi/2)^2 + 1) / 2, with phi the model deployed in the last round.
    theta, deployed = history.theta[0, 1:], history.theta[0, :-1]

    def risk(theta, deployed):
        return np.mean((theta[:, None] - MEANS - 0.5 * deployed[:, None]) ** 2 + 1.0, axis=1) / 2

    np.testing.assert_allclose(history["decoupled_risk"][0], risk(theta, deployed), rtol=1e-12)
    np.testing.assert_allclose(history["performative_risk"][0], risk(theta, theta), rtol=1e-12)


def test_a_repeat_is_the_same_however_many_there_are():
    options = {"dtype": "float64", "record": pf.Record(risks=False)}
    few = pf.run(PROBLEM, ALGORITHM, rounds=5, theta=0.0, repeats=2, **options)
    many = pf.run(PROBLEM, ALGORITHM, rounds=5, theta=0.0, repeats=5, **options)
    np.testing.assert_allclose(few.theta, many.theta[:2], rtol=1e-14)
    assert not np.allclose(many.theta[0, -1], many.theta[1, -1])
    other = pf.run(PROBLEM, ALGORITHM, rounds=5, theta=0.0, repeats=2, seed=1, **options)
    assert not np.allclose(few.theta[0, -1], other.theta[0, -1])


@pytest.mark.slow
def test_thinning_keeps_the_trajectory_and_adds_up_the_counts():
    full = pf.run(PROBLEM, ALGORITHM, rounds=7, theta=0.0, dtype="float64", record=pf.Record(risks=False))
    thin = pf.run(PROBLEM, ALGORITHM, rounds=7, theta=0.0, dtype="float64", record=pf.Record(every=3, risks=False))
    assert thin.rounds.tolist() == [0, 3, 6, 7]
    np.testing.assert_allclose(thin.theta, full.theta[:, [0, 3, 6, 7]], rtol=1e-14)
    for name in ("time", "uploads", "samples", "communications"):
        np.testing.assert_allclose(thin[name], full[name][:, [0, 3, 6, 7]], rtol=1e-14)
    last = pf.run(
        PROBLEM, ALGORITHM, rounds=7, theta=0.0, dtype="float64", record=pf.Record(every=3, risks=False, theta="last")
    )
    np.testing.assert_allclose(last.theta, full.theta[:, [7]], rtol=1e-14)
    np.testing.assert_allclose(last["distance_to_stable"], thin["distance_to_stable"], rtol=1e-14)


def test_other_numbers_do_not_compile_again():
    pf.run(PROBLEM, ALGORITHM, rounds=16, theta=0.0, record=pf.Record(risks=False))
    before = run_chunk.programs
    other = pf.Problem(pf.losses.squared, pf.populations.Gaussian(MEANS + 1.0, 0.3, 2.0))
    again = pf.p_fedavg(rate=0.2, local_steps=2, participation=pf.SchemeOne(3))
    pf.run(other, again, rounds=13, theta=1.0, seed=5, record=pf.Record(risks=False))
    assert run_chunk.programs == before


def test_divergence_is_a_named_result_that_stops_the_run():
    runaway = pf.Problem(pf.losses.squared, pf.populations.Gaussian(MEANS, 3.0, 1.0))
    with pytest.warns(UserWarning, match="run-diverged"):
        history = pf.run(runaway, pf.p_fedavg(rate=0.9), rounds=400, theta=1.0, repeats=2)
    assert history.status == "diverged"
    assert np.all(history.stopped_at > 0)
    assert history.rounds[-1] < 400
    stop = int(history.stopped_at[0])
    assert abs(history.theta[0, stop]) > 2e8
    assert abs(history.theta[0, stop - 1]) <= 2e8


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:.*run-diverged")
def test_each_repeat_is_judged_by_itself():
    problem = pf.Problem(pf.losses.squared, pf.populations.Gaussian(MEANS - 2.0, 0.0, 1.0))
    history = pf.run(problem, pf.p_fedavg(rate=0.1), rounds=3, theta=0.0, record=pf.Record(limit=0.05), repeats=64)
    assert 0 < np.sum(history.stopped_at >= 0) < 64
    assert history.rounds[-1] == 3
    outside = np.abs(history.theta) > 0.05
    expected = np.where(outside.any(axis=1), outside.argmax(axis=1), -1)
    np.testing.assert_array_equal(history.stopped_at, expected)


def test_realized_participation_is_held_against_the_weights():
    weights = np.asarray([0.4, 0.3, 0.1, 0.1, 0.1])
    problem = pf.Problem(pf.losses.squared, pf.populations.Gaussian(MEANS, 0.5, 1.0), weights=weights)
    history = pf.run(problem, ALGORITHM, rounds=400, theta=0.0, repeats=8, record=pf.Record(risks=False))
    assert history.participation is not None
    np.testing.assert_allclose(history.participation.sum(axis=1), 1.0, rtol=1e-5)
    draws = 3 * 400 * 8
    error = np.sqrt(weights * (1 - weights) / draws)
    assert np.all(np.abs(history.participation.mean(axis=0) - weights) < 4 * error)


def test_the_clock_counts_steps_messages_and_stragglers():
    clock = pf.Clock(compute=2.0, communication=5.0)
    history = pf.run(PROBLEM, ALGORITHM, rounds=3, theta=0.0, clock=clock, record=pf.Record(risks=False))
    np.testing.assert_allclose(history["time"][0], [0.0, 9.0, 18.0, 27.0])
    assert history["communications"][0].tolist() == [0, 2, 4, 6]
    waiting = pf.p_fedavg(rate=0.1, participation=pf.FirstK(2, pf.participation.UniformLatency(10.0)))
    waited = (
        pf.run(PROBLEM, waiting, rounds=200, theta=0.0, repeats=20, record=pf.Record(risks=False))["time"][:, -1] / 200
        - 1.0
    )
    # The second of five uniform times on (0, 10): mean 10 * 2/6, variance 100 * 2*4/(36*7).
    error = np.sqrt(100 * 8 / 252 / (200 * 20))
    assert abs(waited.mean() - 10 / 3) < 4 * error


@pytest.mark.slow
def test_deployments_step_round_never_and_lazy_settle_where_they_should():
    # eps = 1/2, m_bar = 2, theta_0 = 2: retraining settles at 4, the static learner at m_bar + eps theta_0 = 3.
    quiet = pf.Problem(pf.losses.squared, pf.populations.Gaussian(MEANS, 0.5, 0.0))
    for deploy, end in (("step", 4.0), ("round", 4.0), ("never", 3.0), (pf.Every(3), 4.0)):
        history = pf.run(
            quiet,
            pf.p_fedavg(rate=0.3, deploy=deploy),
            rounds=300,
            theta=2.0,
            dtype="float64",
            record=pf.Record(risks=False),
        )
        assert abs(history.theta[0, -1] - end) < 1e-9, deploy
    static = pf.run(quiet, pf.fedavg(rate=0.3), rounds=150, theta=2.0, dtype="float64", record=pf.Record(risks=False))
    assert abs(static.theta[0, -1] - 3.0) < 1e-9
    # A lazy world responds to the model of the last multiple of three.
    lazy = pf.run(
        quiet,
        pf.p_fedavg(rate=0.3, deploy=pf.Every(3)),
        rounds=5,
        theta=2.0,
        dtype="float64",
        record=pf.Record(risks=False),
    ).theta[0]
    for r in range(5):
        deployed = lazy[3 * (r // 3)]
        np.testing.assert_allclose(lazy[r + 1], lazy[r] - 0.3 * (lazy[r] - 2.0 - 0.5 * deployed), rtol=1e-12)


def test_projection_holds_after_steps_and_moves():
    # All clients pull towards 4; the box ends at 1.5.
    alike = pf.populations.Gaussian(np.full(5, 2.0), 0.5, 0.0)
    boxed = pf.Problem(pf.losses.squared, alike, domain=pf.Box(-1.0, 1.5))
    history = pf.run(boxed, pf.p_fedavg(rate=0.5, local_steps=3), rounds=10, theta=0.0, record=pf.Record(risks=False))
    assert history.theta.max() <= 1.5
    assert history.theta[0, -1] == pytest.approx(1.5)
    assert history["consensus"][0, -1] == pytest.approx(0.0, abs=1e-12)


@pytest.mark.slow
def test_the_smallest_client_must_serve_the_batch():
    # Client 1 has two real rows; what pads its table must never be trained on.
    x = np.ones((2, 5, 1))
    x[1, 2:] = 1e6
    population = pf.populations.Strategic(x, np.zeros((2, 5), int), 0.0, count=[5, 2])
    problem = pf.Problem(pf.losses.ridge(0.0), population)
    with pytest.raises(ValueError, match=r"Uniform\(n=4\).* only 2"):
        pf.run(problem, pf.p_fedavg(rate=0.1, batch=pf.Uniform(4)), rounds=1)
    for batch in (pf.Uniform(2), pf.Shuffled(2), pf.Fixed(5)):
        history = pf.run(
            problem, pf.p_fedavg(rate=0.1, batch=batch), rounds=4, theta=[1.0], record=pf.Record(risks=False)
        )
        np.testing.assert_allclose(history.theta[0, :, 0], 0.9 ** np.arange(5), rtol=1e-5)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:.*run-diverged")
def test_divergence_stops_a_run_without_risks_too_and_at_the_same_record():
    runaway = pf.Problem(pf.losses.squared, pf.populations.Gaussian(MEANS, 3.0, 1.0))
    options = {"rounds": 20_000, "theta": 1.0}
    without = pf.run(runaway, pf.p_fedavg(rate=0.9), record=pf.Record(risks=False), **options)
    beside = pf.run(runaway, pf.p_fedavg(rate=0.9), record=pf.Record(risks=100), **options)
    assert without.rounds[-1] == without.stopped_at[0] == beside.rounds[-1]
    np.testing.assert_array_equal(without.theta, beside.theta)


def test_names_do_not_compile_again():
    pf.run(PROBLEM, pf.p_fedavg(rate=0.1), rounds=16, theta=0.0, record=pf.Record(risks=False))
    before = run_chunk.programs
    pf.run(PROBLEM, pf.multi_agent_pp(rate=0.1), rounds=16, theta=0.0, record=pf.Record(risks=False))
    assert run_chunk.programs == before


def test_seeds_and_starts_are_checked():
    with pytest.raises(ValueError, match=r"seed must be a whole number from 0 to 2\^32 - 1; got 4294967296"):
        pf.run(PROBLEM, ALGORITHM, rounds=1, theta=0.0, seed=2**32)
    boxed = pf.Problem(pf.losses.squared, PROBLEM.population, domain=pf.Box(1.0, 2.0))
    with pytest.raises(ValueError, match="theta must start inside the domain"):
        pf.run(boxed, ALGORITHM, rounds=1, theta=5.0)
    assert pf.run(boxed, ALGORITHM, rounds=1, record=pf.Record(risks=False)).theta[0, 0] == 1.0
    with pytest.raises(ValueError, match="limit must be a positive number"):
        pf.run(PROBLEM, ALGORITHM, rounds=1, theta=0.0, record=pf.Record(limit=float("nan")))


def test_a_misspelt_slot_is_named():
    with pytest.raises(ValueError, match=r"no argument 'partcipation'\. Did you mean 'participation'"):
        pf.p_fedavg(rate=0.1, partcipation=pf.Full())


def test_any_pytree_is_a_model():
    def loss(theta, z):
        return jax.numpy.sum((theta["a"] - z) ** 2) / 2 + theta["b"][1] ** 2

    problem = pf.Problem(loss, Echo(MEANS))
    start = {"a": np.asarray(0.0), "b": np.ones(2)}
    history = pf.run(problem, pf.p_fedavg(rate=0.1), rounds=3, theta=start, record=pf.Record(risks=2))
    assert history.theta["b"].shape == (1, 4, 2)
    assert set(history.to_xarray()) >= {"theta.a", "theta.b"}


class Echo(pf.populations.AbstractPopulation):
    """A population in a few lines: only `sample`, with a key for noise."""

    level: np.ndarray = pf.per_client()

    def sample(self, noise, world, theta):
        return self.level + 0.5 * theta["a"] + jax.random.normal(noise)


@pytest.mark.parametrize("rounds", [1, 2])
def test_tiny_runs(rounds):
    assert pf.run(PROBLEM, ALGORITHM, rounds=rounds, theta=0.0).theta.shape == (1, rounds + 1)


def test_records_do_not_keep_the_buffer_of_their_chunk():
    none = {"totals": {}, "clients": {}, "cohorts": {}}
    one = none | {"levels": {"a": np.zeros(2)}, "theta": np.zeros((2, 3)), "sound": np.ones(2)}
    shapes = jax.tree.map(lambda leaf: jax.ShapeDtypeStruct(leaf.shape, np.float32), one)
    chunk = flatten_rows(RecordBuffer(shapes, 1, 64).read(5))
    assert chunk["theta/0"].shape == (2, 5, 3) and chunk["levels/a"].shape == (2, 5)
    assert all(array.base is None for array in chunk.values())
