"""Callbacks are told every record once, change no number, and end a run cleanly."""

import csv
import sys
import types

import numpy as np
import pytest

import performative as pf
from performative.live import Federation, rehearse

PROBLEM = pf.Problem(pf.losses.squared, pf.populations.Gaussian(np.arange(4.0), 0.5, 1.0))
SOME = pf.p_fedavg(rate=0.1, local_steps=2, participation=pf.SchemeOne(2))


class Listener:
    """Your own."""

    def __init__(self, every=None):
        self.news, self.began, self.closed, self.every = [], 0, 0, every

    def begin(self, about, total):
        self.began += 1

    def __call__(self, news):
        self.news.append(news)

    def close(self):
        self.closed += 1

    def joined(self, name):
        return np.concatenate([news.records[name] for news in self.news], axis=-1)


def run(rounds=10, callbacks=(), **options):
    return pf.run(PROBLEM, SOME, rounds, theta=1.0, repeats=2, callbacks=callbacks, **options)


RECORDS = {"risks": pf.Record(risks=3), "thinned": pf.Record(risks=False, every=3)}
# Each executor once in `make test`.
QUICK = {("gather", "risks"), ("loop", "thinned"), ("sharded", "thinned")}


@pytest.mark.parametrize(
    ("executor", "kept"),
    [
        pytest.param(executor, kept, marks=() if (executor, kept) in QUICK else pytest.mark.slow)
        for executor in ("dense", "gather", "loop", "sharded")
        for kept in RECORDS
    ],
)
def test_every_record_is_told_once_and_no_bit_changes(executor, kept):
    listener, record = Listener(), RECORDS[kept]
    plain = run(executor=executor, record=record)
    heard = run(executor=executor, record=record, callbacks=[listener])
    np.testing.assert_array_equal(plain.theta, heard.theta)
    assert (listener.began, listener.closed) == (1, 1) and len(listener.news) > 1
    for name, values in heard.records.items():
        if name != "communications":  # a count of rounds, which needs no telling
            np.testing.assert_array_equal(listener.joined(name), values, err_msg=name)
            np.testing.assert_array_equal(plain[name], values, err_msg=name)
    assert np.concatenate([news.rounds for news in listener.news]).tolist() == heard.rounds.tolist()
    np.testing.assert_array_equal(listener.news[-1].theta, heard.final)
    if record.risks:
        np.testing.assert_array_equal(listener.news[-1]["performative_risk"], heard["performative_risk"][:, -1])
    assert heard.status == "completed"


def test_a_function_will_do_and_says_how_often():
    rounds = []
    run(12, [lambda news: rounds.append(news.round)], record=pf.Record(risks=False))
    assert rounds == list(range(1, 13))  # twenty looks at most, a round each here
    often = Listener(every=4)
    run(60, [often], record=pf.Record(risks=2))
    assert [news.round for news in often.news] == list(range(4, 61, 4))


def test_stop_ends_a_run_and_says_so():
    near = pf.callbacks.Stop(lambda news: np.max(news["distance_to_stable"][:, -1]) < 1.9, every=2)
    history = run(400, [near], record=pf.Record(risks=False))
    last = int(history.rounds[-1])
    assert last < 400 and last % 2 == 0 and history.status == "stopped"
    assert history.meta["stopped_by"] == f"Stop(<lambda>) at round {last}"
    assert np.max(history["distance_to_stable"][:, -1]) < 1.9
    np.testing.assert_array_equal(history.theta, run(last, [Listener(every=2)], record=pf.Record(risks=False)).theta)
    with pytest.raises(KeyError, match="no 'speed' in the news"):
        run(4, [lambda news: news["speed"]], record=pf.Record(risks=False))


def test_privacy_counts_the_rounds_that_were_run():
    problem = pf.Problem(pf.losses.squared, pf.populations.Database(np.linspace(0.0, 1.0, 12).reshape(2, 6)))
    algorithm = pf.pcsgd(0.1, clip=1.0, noise_multiplier=2.0, batch=pf.Uniform(6))
    stop = pf.callbacks.Stop(lambda news: news.round >= 4, every=2)
    options = {"theta": 0.0, "record": pf.Record(risks=False)}
    short = pf.run(problem, algorithm, 20, callbacks=[stop], privacy=pf.Privacy(1e-5), **options)
    four = pf.run(problem, algorithm, 4, callbacks=[Listener(every=2)], privacy=pf.Privacy(1e-5), **options)
    assert short.meta["privacy"]["epsilon"] == four.meta["privacy"]["epsilon"]
    # A budget that was not used up is not why it ended.
    budget = pf.Privacy(1e-5, epsilon=2 * four.meta["privacy"]["epsilon"])
    facts = pf.run(problem, algorithm, 2000, callbacks=[stop], privacy=budget, **options).meta["privacy"]
    assert facts["stopped"] is None


def test_an_error_in_a_callback_leaves_the_checkpoint_and_the_run_goes_on(tmp_path):
    listener = Listener()

    def kept(name, resume=False):
        return pf.Checkpoint(tmp_path / name, every=2, resume=resume)

    def fails(news):
        if news.round == 6:
            raise RuntimeError("out of luck")

    record = pf.Record(risks=False)
    with pytest.raises(RuntimeError, match="out of luck"):
        run(10, [listener, fails], record=record, checkpoint=kept("cut"))
    assert listener.closed == 1 and listener.news[-1].round == 6
    again = Listener()
    resumed = run(10, [again], record=record, checkpoint=kept("cut", resume=True))
    whole = run(10, record=record, checkpoint=kept("whole"))
    np.testing.assert_array_equal(resumed.theta, whole.theta)
    # Told again from the start: what was recorded before the error is not lost to anybody.
    np.testing.assert_array_equal(again.joined("uploads"), whole["uploads"])
    np.testing.assert_array_equal(again.joined("consensus"), whole["consensus"])
    assert [news.round for news in again.news] == [6, 8, 10]


def test_csv_holds_every_record(tmp_path):
    path = tmp_path / "run.csv"
    history = run(6, [pf.callbacks.CSV(path)], record=pf.Record(risks=2))
    rows = list(csv.DictReader(path.read_text().splitlines()))
    assert len(rows) == 2 * 7
    mine = [float(row["uploads"]) for row in rows if row["repeat"] == "1"]
    rounds = [int(row["round"]) for row in rows if row["repeat"] == "1"]
    assert rounds == history.rounds.tolist() and mine == history["uploads"][1].tolist()


def test_sweeps_have_an_axis_of_settings(tmp_path):
    listener, path = Listener(), tmp_path / "sweep.csv"
    swept = pf.sweep(PROBLEM, SOME, {"rate": [0.1, 0.2]}, 5, 1.0, 0, 3, callbacks=[listener, pf.callbacks.CSV(path)])
    assert listener.news[0].settings == [{"rate": 0.1}, {"rate": 0.2}]
    np.testing.assert_array_equal(listener.joined("uploads")[1], swept.histories[1]["uploads"])
    assert len(list(csv.DictReader(path.read_text().splitlines()))) == 2 * 3 * 6
    stopped = pf.sweep(
        PROBLEM, SOME, {"rate": [0.1, 0.2]}, 5, 1.0, 0, 3, callbacks=[pf.callbacks.Stop(lambda news: True)]
    )
    assert [h.status for h in stopped.histories] == ["stopped"] * 2 and np.all(np.isfinite(stopped.scores()))


@pytest.mark.slow
def test_the_live_federation_calls_them_each_round(tmp_path):
    listener = Listener()
    federation = Federation(PROBLEM, pf.p_fedavg(rate=0.1, deploy="round"), 6, theta=1.0)
    stop = pf.callbacks.Stop(lambda news: news.round >= 4)
    history = rehearse(federation, tmp_path, callbacks=[listener, stop])
    assert [news.round for news in listener.news] == [1, 2, 3, 4] and listener.closed == 1
    assert history.status == "stopped" and history.meta["stopped_by"].endswith("at round 4")
    np.testing.assert_array_equal(listener.joined("uploads"), history["uploads"])
    resumed = rehearse(federation, tmp_path, resume=True)
    assert resumed.status == "completed" and resumed.rounds[-1] == 6


# Trackers.


class Fake(types.ModuleType):
    """A tracker that writes down what it is told."""

    def __init__(self, name):
        super().__init__(name)
        self.calls, self.active = [], None

    def __getattr__(self, name):
        if name.startswith("__"):
            raise AttributeError(name)

        def call(*args, **kwargs):
            self.calls.append((name, args, kwargs))
            return self

        return call

    def active_run(self):
        return self.active


def metric_calls(fake, name):
    return [(args, kwargs) for called, args, kwargs in fake.calls if called == name]


def test_mlflow_gets_means_by_round(monkeypatch):
    fake = Fake("mlflow")
    monkeypatch.setitem(sys.modules, "mlflow", fake)
    record = pf.Record(risks=2)
    history = run(8, [pf.callbacks.MLflow("shift", "first", "file:here")], record=record)
    assert [name for name, *_ in fake.calls[:3]] == ["set_tracking_uri", "set_experiment", "start_run"]
    logged = {kwargs["step"]: args[0] for args, kwargs in metric_calls(fake, "log_metrics")}
    assert sorted(logged) == list(range(9)) and fake.calls[-1][0] == "end_run"
    assert logged[8]["uploads"] == history["uploads"][:, -1].mean()
    assert logged[8]["performative_risk"] == pytest.approx(history["performative_risk"][:, -1].mean())
    assert "consensus" not in logged[0] and "performative_risk" not in logged[1]  # what does not exist is not logged
    fake.calls.clear()
    fake.active = "mine"  # a run of the user's own is neither begun nor ended
    run(8, [pf.callbacks.MLflow()], record=record)
    assert not metric_calls(fake, "start_run") and not metric_calls(fake, "end_run")


def test_wandb_and_tensorboard_get_the_same(monkeypatch, tmp_path):
    wandb, board = Fake("wandb"), Fake("tensorboardX")
    monkeypatch.setitem(sys.modules, "wandb", wandb)
    monkeypatch.setitem(sys.modules, "tensorboardX", board)
    trackers = [pf.callbacks.WandB("shift", mode="offline"), pf.callbacks.TensorBoard(tmp_path)]
    history = run(4, trackers, record=pf.Record(risks=1))
    assert wandb.calls[0][0] == "init" and wandb.calls[0][2]["project"] == "shift" and wandb.calls[-1][0] == "finish"
    logged = {kwargs["step"]: args[0] for args, kwargs in metric_calls(wandb, "log")}
    assert logged[4]["uploads"] == history["uploads"][:, -1].mean()
    scalars = {(name, step): value for (name, value, step), _ in metric_calls(board, "add_scalar")}
    assert scalars["uploads", 4] == logged[4]["uploads"] and board.calls[-1][0] == "close"


@pytest.mark.parametrize(
    ("name", "module"), [("MLflow", "mlflow"), ("WandB", "wandb"), ("TensorBoard", "tensorboardX")]
)
def test_a_tracker_that_is_not_installed_says_what_to_install(monkeypatch, name, module):
    for missing in (module, "torch", "torch.utils.tensorboard"):
        monkeypatch.setitem(sys.modules, missing, None)
    arguments = ("folder",) if name == "TensorBoard" else ()
    with pytest.raises(ModuleNotFoundError, match=rf"pf\.callbacks\.{name} needs {module}: pip install {module}"):
        getattr(pf.callbacks, name)(*arguments)
