"""What a server keeps of a long run: few files, the last models, and a log that says so."""

import numpy as np
import pytest
from federations import OneThread, federation, simulated

import performative as pf
from performative.live import model_versions, rehearse, retention, rollback, serve, verify_journal
from performative.live.server_store import model_file


def records(folder):
    return sorted(path.name for path in (folder / "server").glob("records-*.npz"))


@pytest.fixture
def few(monkeypatch):
    monkeypatch.setattr(retention, "_TOGETHER", 3)


def test_records_are_put_together_and_nothing_is_lost(few, tmp_path):
    made = federation(rounds=8)
    live = rehearse(made, tmp_path)
    assert records(tmp_path) == [
        "records-000000-000002.npz", "records-000003-000005.npz", "records-000006.npz", "records-000007.npz"
    ]  # fmt: skip
    assert np.allclose(live.theta, simulated(made).theta, atol=1e-12)
    whole = rehearse(made, tmp_path / "whole")
    assert np.array_equal(live.theta, whole.theta) and np.array_equal(live["samples"], whole["samples"])


@pytest.mark.parametrize("cut", [pytest.param(2, marks=pytest.mark.slow), 3, pytest.param(4, marks=pytest.mark.slow)])
def test_a_run_goes_on_from_records_that_are_together(few, tmp_path, cut):
    made = federation(rounds=7)
    serve(made, OneThread(made, tmp_path), tmp_path / "server", rounds=cut)
    live = serve(made, OneThread(made, tmp_path), tmp_path / "server", resume=True)
    assert np.array_equal(live.theta, rehearse(made, tmp_path / "whole").theta)
    assert records(tmp_path)[0] == "records-000000-000002.npz" and len(records(tmp_path)) == 3


def test_callbacks_are_told_each_round_once(few, tmp_path):
    told = []

    made = federation(rounds=7)
    serve(
        made, OneThread(made, tmp_path), tmp_path / "server", callbacks=[lambda news: told.extend(news.rounds.tolist())]
    )
    assert told == list(range(8))


def test_the_last_models_are_kept(tmp_path):
    made = federation(rounds=6, keep_models=2)
    rehearse(made, tmp_path)
    folder = tmp_path / "server"
    # Version 6 is the model that the run ended with; it was not deployed yet.
    assert model_versions(folder) == [4, 5, 6]
    assert verify_journal(folder).sound
    with pytest.raises(ValueError, match=r"no model of version 3 .* keep_models="):
        rollback(made, folder, 3)
    assert rollback(made, folder, 4) == 6
    content = model_file(folder, 4).read_bytes()
    model_file(folder, 4).unlink()
    found = verify_journal(folder)
    assert "the model of version 4 is missing" in found.fault and found.line
    model_file(folder, 4).write_bytes(content)
    assert verify_journal(folder).sound


def test_models_that_went_stay_gone_when_more_are_kept(tmp_path):
    fewer, more = federation(rounds=4, keep_models=1), federation(rounds=6, keep_models=50)
    serve(fewer, OneThread(fewer, tmp_path), tmp_path / "server")
    serve(more, OneThread(more, tmp_path), tmp_path / "server", resume=True)
    assert model_versions(tmp_path / "server") == [3, 4, 5, 6]
    assert verify_journal(tmp_path / "server").sound


def test_how_many_models_are_kept_by_default():
    assert retention.models_kept(None, np.zeros(3)) == retention.MOST
    assert retention.models_kept(None, np.zeros(13_000_000, np.float32)) == (1 << 30) // 52_000_000
    assert retention.models_kept(None, np.broadcast_to(np.zeros(1), (1 << 28,))) == retention.FEWEST
    assert retention.models_kept(7, np.zeros(3)) == 7
    with pytest.raises(ValueError, match="keep_models"):
        federation(keep_models=0)


def test_models_of_all_rounds_that_do_not_fit_are_refused(tmp_path, monkeypatch):
    monkeypatch.setattr(retention, "ROOM", 3 * 8 * 5)  # five models of three numbers
    with pytest.raises(ValueError, match=r'the models of 6 rounds take .*record=pf.Record\(theta="last"\)'):
        rehearse(federation(rounds=6), tmp_path / "all")
    live = rehearse(federation(rounds=6, record=pf.Record(theta="last")), tmp_path / "last")
    assert np.asarray(live.theta).shape == (1, 1, 3)
    assert np.array_equal(live.final, simulated(federation(rounds=6)).final)


def test_a_run_goes_on_with_the_records_that_it_began_with(tmp_path):
    made, other = federation(rounds=2), federation(rounds=3, record=pf.Record(theta="last"))
    serve(made, OneThread(made, tmp_path), tmp_path / "server")
    with pytest.raises(ValueError, match='began with theta="all"'):
        serve(other, OneThread(other, tmp_path), tmp_path / "server", resume=True)
