"""A run, and a live federation, under watch."""

import jax.numpy as jnp
import numpy as np
import pytest

import performative as pf
from performative.live import Federation, rehearse

PROBLEM = pf.Problem(pf.losses.squared, pf.populations.Gaussian(np.arange(4.0), 0.6, 1.0))
ALGORITHM = pf.p_fedavg(rate=0.5, batch=pf.Fixed(20), deploy="round")
MOVED = pf.Metric(lambda view: jnp.mean(view.upload.delta), "level", "mean step", "")
RECORD = pf.Record(metrics={"moved": MOVED}, risks=False)


def test_a_run_is_watched_and_no_bit_changes():
    watch = pf.watch(drift="none")
    plain = pf.run(PROBLEM, ALGORITHM, 30, theta=5.0, record=RECORD)
    seen = pf.run(PROBLEM, ALGORITHM, 30, theta=5.0, record=RECORD, callbacks=[pf.callbacks.Watching(watch, ["moved"])])
    np.testing.assert_array_equal(plain.theta, seen.theta)
    report = watch.report()
    assert report.looks == 29 and report.input["quarantined"] == {}
    # A step is rate * (mean - theta), which falls by rate * (1 - 0.6) with each unit of the model.
    one = report.reactions[0]
    assert (one.column, one.parameter) == ("moved", "model") and one.low <= -0.2 <= one.high


def test_a_federation_is_watched(tmp_path):
    watch = pf.watch(drift="none")
    federation = Federation(PROBLEM, ALGORITHM, rounds=12, theta=5.0, record=RECORD)
    rehearse(federation, tmp_path, callbacks=[pf.callbacks.Watching(watch, ["moved"])])
    assert watch.tally.looks == 11


def test_an_alarm_may_end_a_run():
    watch = pf.watch(drift="none")
    watching = pf.callbacks.Watching(watch, ["moved"], stop=True)
    history = pf.run(PROBLEM, ALGORITHM, 200, theta=50.0, record=RECORD, callbacks=[watching])
    assert "Watching: reaction" in history.meta["stopped_by"]


def test_what_is_wrong_is_told():
    watch = pf.watch()
    for wrong in ({"columns": "moved"}, {"columns": []}, {"columns": ["moved"], "every": 0}):
        with pytest.raises(ValueError, match=r"Watching|every"):
            pf.callbacks.Watching(watch, **wrong)
    with pytest.raises(ValueError, match="must be created by"):
        pf.callbacks.Watching(3, ["moved"])
    with pytest.raises(ValueError, match="'loss' is not recorded"):
        pf.run(PROBLEM, ALGORITHM, 5, theta=1.0, callbacks=[pf.callbacks.Watching(watch, ["loss"])])


@pytest.mark.slow
def test_a_summary_stands_for_a_large_model():
    watch = pf.watch(drift="none")
    watching = pf.callbacks.Watching(watch, ["moved"], summary=lambda theta: {"size": float(np.abs(theta).sum())})
    pf.run(PROBLEM, ALGORITHM, 10, theta=5.0, record=RECORD, callbacks=[watching])
    assert watch.schema.parameters == ("size",)
