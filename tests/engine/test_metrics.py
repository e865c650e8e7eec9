"""A metric of one's own is recorded like ours: in the compiled loop, in checkpoints, sweeps and the live federation."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import performative as pf
from performative.live import Federation, rehearse

PROBLEM = pf.Problem(pf.losses.squared, pf.populations.Gaussian(np.arange(5.0), np.linspace(0.1, 0.7, 5), 1.0))
SOME = pf.p_fedavg(rate=pf.schedules.harmonic(5.0, 50.0), local_steps=2, participation=pf.SchemeOne(3))
# Each executor in one of the two tests that take all of them in `make test`.
EXECUTORS = ("dense", "gather", "loop", "sharded")


def each_executor(*quick):
    return pytest.mark.parametrize(
        "executor", [pytest.param(one, marks=() if one in quick else pytest.mark.slow) for one in EXECUTORS]
    )


def square(view):
    return view.theta**2


def heard(view):
    """Clients that were heard, and the sum of their squared updates."""
    return jnp.sum(view.cohort.active)


def moved(view):
    return jnp.sum(jnp.where(view.cohort.active, view.upload.delta**2, 0))


METRICS = {
    "square": pf.Metric(square, label="squared model", unit="EUR"),
    "heard": pf.Metric(heard, "total"),
    "moved": pf.Metric(moved, "total"),
    "step": pf.Metric(lambda view: view.theta - view.previous),
    "changed": pf.Metric(lambda view: jnp.asarray(view.server.after.participation is not None, jnp.int32), "total"),
}


def run(rounds=12, record=None, algorithm=SOME, **options):
    record = pf.Record(risks=False, metrics=METRICS) if record is None else record
    return pf.run(PROBLEM, algorithm, rounds, theta=1.0, repeats=2, **{"record": record, **options})


@each_executor("gather")
def test_they_are_what_numpy_makes_of_the_models_and_change_no_bit(executor):
    plain = run(record=pf.Record(risks=False), executor=executor)
    seen = run(
        record=pf.Record(risks=False, metrics=METRICS, clients=("update_norm",), cohorts=True), executor=executor
    )
    np.testing.assert_array_equal(plain.theta, seen.theta)
    for name, values in plain.records.items():
        np.testing.assert_array_equal(values, seen[name], err_msg=name)
    np.testing.assert_array_equal(seen["square"], np.asarray(seen.theta) ** 2)  # a level of the model has a start
    np.testing.assert_array_equal(seen["step"][:, 1:], np.diff(seen.theta, axis=1))
    assert np.all(np.isnan(seen["step"][:, 0]))
    np.testing.assert_array_equal(seen["heard"], seen["uploads"])
    norms = np.where(np.isnan(seen.clients["update_norm"]), 0, seen.clients["update_norm"]).astype(np.float64)
    np.testing.assert_allclose(seen["moved"], np.cumsum(np.sum(norms**2, axis=2), axis=1), rtol=1e-5)


def test_levels_are_of_the_record_and_totals_of_all_rounds():
    every, seldom = (run(11, pf.Record(risks=False, metrics=METRICS, every=n), dtype="float64") for n in (1, 4))
    at = [0, 4, 8, 11]
    assert seldom.rounds.tolist() == at
    # Two programs: the compiler may round them differently.
    np.testing.assert_allclose(seldom["square"], every["square"][:, at], rtol=1e-12)
    np.testing.assert_array_equal(seldom["heard"], every["heard"][:, at])
    np.testing.assert_allclose(seldom["moved"], every["moved"][:, at], rtol=1e-12)


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    return run(12, checkpoint=pf.Checkpoint(tmp_path_factory.mktemp("whole"), every=3))


@pytest.mark.slow
def test_they_survive_a_cut_a_file_and_a_sweep(whole, tmp_path):
    run(6, checkpoint=pf.Checkpoint(tmp_path / "run", every=3))
    parts = run(12, checkpoint=pf.Checkpoint(tmp_path / "run", every=3, resume=True))
    loaded = pf.History.load(parts.save(tmp_path / "history.nc"))
    for name in whole.records:
        np.testing.assert_array_equal(whole[name], parts[name], err_msg=name)
        np.testing.assert_array_equal(whole[name], loaded[name], err_msg=name)
    assert loaded.meta["metrics"]["square"] == {"kind": "level", "label": "squared model", "unit": "EUR"}
    with pytest.raises(ValueError, match="belongs to another run; these differ: metrics"):
        run(12, pf.Record(risks=False), checkpoint=pf.Checkpoint(tmp_path / "run", every=3, resume=True))
    swept = pf.sweep(
        PROBLEM, SOME, {"rate.scale": [5.0, 1.0]}, 12, 1.0, 0, 2, record=pf.Record(risks=False, metrics=METRICS)
    )
    assert swept.programs == 1
    for name in METRICS:
        np.testing.assert_allclose(swept.histories[0][name], whole[name], rtol=1e-6, err_msg=name)


def test_labels_reach_plots_and_reports(whole):
    from performative.plotting import label_of
    from performative.report.quantities import groups, recorded

    assert whole.plot("square").get_ylabel() == "squared model [EUR]"
    assert label_of("square", whole) == "squared model [EUR]"
    found = groups(recorded(whole), whole)
    assert "moved" in found["Running totals"] and "square" in found["Other quantities"]


@pytest.mark.slow
def test_the_live_federation_records_them_too():
    algorithm = pf.p_fedavg(rate=0.1, local_steps=2, participation=pf.SchemeTwo(3), deploy="round")
    record = pf.Record(risks=False, metrics=METRICS, clients=("loss", "samples"), cohorts=True)
    here = pf.run(PROBLEM, algorithm, 4, theta=1.0, record=record)
    live = rehearse(Federation(PROBLEM, algorithm, 4, theta=1.0, record=record))
    np.testing.assert_allclose(live.theta, here.theta, rtol=1e-6)
    for name in METRICS:
        np.testing.assert_allclose(live[name], here[name], rtol=1e-5, err_msg=name)
    for name in here.clients:
        np.testing.assert_allclose(live.clients[name], here.clients[name], rtol=1e-5, err_msg=name)
    np.testing.assert_array_equal(live.cohorts["client"], here.cohorts["client"])
    assert np.sum(~np.isnan(here.clients["loss"][0, 1:])) == 12


@each_executor("sharded")
def test_a_run_is_replayed_by_hand_from_its_cohorts(executor):
    """P-FedAvg on Gaussian data without noise: theta_i <- theta_i - eta (theta_i - m_i - eps_i theta_i)."""
    mean, eps, E, eta = np.arange(5.0), np.linspace(0.1, 0.7, 5), 3, 0.2
    problem = pf.Problem(pf.losses.squared, pf.populations.Gaussian(mean, eps, 0.0))
    work = pf.LocalWork(pf.SchemeOne(3), [1, 2, 3, 2, 1])
    algorithm = pf.p_fedavg(rate=eta, participation=work)
    record = pf.Record(risks=False, cohorts=True)
    history = pf.run(problem, algorithm, 8, theta=1.0, repeats=2, dtype="float64", executor=executor, record=record)
    who, weight, steps = (history.cohorts[name] for name in ("client", "weight", "steps"))
    assert np.all(who[:, 0] == -1)
    for repeat in range(2):
        theta = 1.0
        for r in range(1, 9):
            move = 0.0
            for i, a, tau in zip(who[repeat, r], weight[repeat, r], steps[repeat, r], strict=True):
                mine = theta
                for _ in range(tau if i >= 0 else 0):
                    mine -= eta * (mine - mean[i] - eps[i] * mine)
                move += a * (mine - theta)
            theta += move
            np.testing.assert_allclose(history.theta[repeat, r], theta, rtol=1e-12)
    assert steps.max() == E


def test_a_run_on_tables_is_replayed_from_its_cohorts():
    """All rows of a client in each step: theta_i <- theta_i - eta (theta_i - mean of its table)."""
    rows, eta, weights = np.random.default_rng(0).standard_normal((4, 6)), 0.3, [0.1, 0.2, 0.3, 0.4]
    problem = pf.Problem(pf.losses.squared, pf.populations.Database(rows), weights)
    algorithm = pf.p_fedavg(eta, local_steps=2, batch=pf.Whole(), participation=pf.SchemeTwo(2))
    record = pf.Record(risks=False, cohorts=True)
    history = pf.run(problem, algorithm, 10, theta=1.0, dtype="float64", record=record)
    theta, seen = 1.0, set()
    for r in range(1, 11):
        who, weight = history.cohorts["client"][0, r], history.cohorts["weight"][0, r]
        np.testing.assert_allclose(weight, np.asarray(weights)[who] * 4 / 2, rtol=1e-12)
        gap = theta - rows[who].mean(axis=1)
        theta += np.sum(weight * ((1 - eta) ** 2 - 1) * gap)
        np.testing.assert_allclose(history.theta[0, r], theta, rtol=1e-12)
        seen |= set(who.tolist())
    assert len(seen) > 2


def test_clients_tell_what_is_asked_and_only_who_was_there():
    record = pf.Record(risks=False, clients=("loss", "weight", "steps", "samples"), cohorts=True)
    history = run(6, record)
    there = ~np.isnan(history.clients["weight"])
    for r in range(1, 7):
        drawn = set(history.cohorts["client"][0, r]) - {-1}
        assert set(np.flatnonzero(there[0, r])) == drawn
    assert not there[:, 0].any() and np.all(history.clients["steps"][there] == 2)
    np.testing.assert_allclose(np.nansum(history.clients["weight"], axis=2)[:, 1:], 1.0, rtol=1e-6)
    np.testing.assert_array_equal(np.cumsum(np.nansum(history.clients["samples"], axis=2), axis=1), history["samples"])
    with pytest.raises(ValueError, match="no quantity 'speed' is recorded per client; choose from"):
        run(2, pf.Record(risks=False, clients=("speed",)))


@pytest.mark.parametrize(
    ("message", "metric"),
    [
        ("must return one number; it returned float32", lambda view: view.upload.delta),
        ("'uploads' is recorded already", None),
        ("a view has no 'thetas'; it has theta, deployed", lambda view: view.thetas),
    ],
)
def test_what_is_no_metric_is_refused(message, metric):
    metrics = {"uploads": pf.Metric(square)} if metric is None else {"mine": metric}
    with pytest.raises((ValueError, AttributeError), match=message):
        run(2, pf.Record(risks=False, metrics=metrics))


def test_a_metric_may_hold_numbers_of_its_own():
    class Gap(eqx.Module):
        point: jax.Array

        def __call__(self, view):
            return jnp.abs(view.theta - self.point)

    history = run(3, pf.Record(risks=False, metrics={"gap": Gap(jnp.asarray(2.0))}))
    np.testing.assert_allclose(history["gap"], np.abs(np.asarray(history.theta) - 2.0), rtol=1e-6)


# Privacy.

TABLE = pf.Problem(pf.losses.squared, pf.populations.Database(np.linspace(0.0, 1.0, 12).reshape(2, 6)))
# All rows in every step: epsilon then has a closed form.
PRIVATE = pf.pcsgd(0.1, clip=1.0, noise_multiplier=2.0, batch=pf.Uniform(6))


def private(record=None, callbacks=(), **promise):
    record = pf.Record(risks=False) if record is None else record
    return pf.run(TABLE, PRIVATE, 4, theta=0.0, record=record, callbacks=callbacks, privacy=pf.Privacy(1e-5, **promise))


@pytest.mark.slow
def test_with_privacy_a_metric_sees_published_models_only():
    seen = private(pf.Record(risks=False, metrics={"square": square}))
    assert seen.meta["privacy"]["epsilon"] == private().meta["privacy"]["epsilon"] != "infinite"
    names, refused = ("upload", "cohort", "clients", "server", "problem", "time", "asked", "previous"), {}

    def nosy(view):
        for name in names:
            try:
                getattr(view, name)
            except ValueError as error:
                refused[name] = str(error)
        return view.upload.delta

    with pytest.raises(ValueError, match=r"metric .nosy.: view\.upload: with privacy= .* only published models"):
        private(pf.Record(risks=False, metrics={"nosy": nosy}))
    assert set(refused) == set(names) and all("only published models" in said for said in refused.values())
    # Not even by asking whether it is there.
    with pytest.raises(ValueError, match="only published models"):
        private(pf.Record(risks=False, metrics={"sly": lambda view: getattr(view, "upload", view.theta)}))


@pytest.mark.parametrize(
    ("record", "why"),
    [
        (pf.Record(risks=False, metrics={"norm": pf.Metric(lambda v: jnp.sum(v.upload.delta), unprotected=True)}),
         "metric 'norm' may read uploads"),
        (pf.Record(risks=False, clients=("loss",)), "'loss' of each client is recorded"),
        (pf.Record(risks=False, cohorts=True), "who took part is recorded"),
    ],
)  # fmt: skip
def test_what_looks_further_voids_the_guarantee_by_name(record, why):
    history = private(record)
    assert history.meta["privacy"]["epsilon"] == "infinite" and why in history.meta["privacy"]["why"]
    with pytest.raises(ValueError, match="no budget can be kept"):
        private(record, epsilon=1.0)


@pytest.mark.slow
def test_callbacks_of_a_private_run_are_told_of_models_only():
    told = []
    private(pf.Record(risks=2, metrics={"square": square}), [told.append])
    assert all(set(news.records) == {"square", "epsilon"} and not news.risks for news in told)

    class Curious:
        unprotected = True

        def __call__(self, news):
            assert "consensus" in news.records

    history = private(callbacks=[Curious()])
    assert history.meta["privacy"]["why"] == ["callback Curious receives all records"]
