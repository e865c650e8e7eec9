"""What a run spends is written down, round by round; a budget is never exceeded, also across a kill."""

import json

import numpy as np
import pytest

import performative as pf
from performative.privacy import guarantee

PROBLEM = pf.Problem(pf.losses.squared, pf.populations.Database(np.zeros((2, 3))))
# All rows in every step: epsilon then has a closed form, and the tests are quick.
ALGORITHM = pf.pcsgd(0.1, clip=1.0, noise_multiplier=20.0, batch=pf.Uniform(3))
DELTA = 1e-5


def run(rounds, privacy, checkpoint=None, checkpoint_every=None, resume=False, **options):
    if checkpoint is not None:
        options["checkpoint"] = pf.Checkpoint(checkpoint, checkpoint_every, resume)
    return pf.run(PROBLEM, ALGORITHM, rounds, theta=0.0, record=pf.Record(risks=False), privacy=privacy, **options)


def spent(rounds):
    return guarantee(PROBLEM, ALGORITHM).spent(rounds, DELTA).epsilon


def test_epsilon_is_recorded_each_round():
    history = run(20, pf.Privacy(DELTA), repeats=3)
    assert history["epsilon"].shape == (3, 21)
    exact = np.asarray([[spent(r) for r in (1, 7, 20)]] * 3)
    written = history["epsilon"][:, [1, 7, 20]]
    assert (
        np.all(written >= exact - 1e-12) and np.all(written <= 1.001 * exact) and np.all(written[:, -1] == exact[:, -1])
    )
    facts = history.meta["privacy"]
    assert facts["epsilon"] == history["epsilon"][0, -1] and facts["stopped"] is None
    assert (facts["unit"], facts["neighbors"]) == ("example", "replace_one")
    assert "simulation" in facts["noise"]


def test_a_long_column_is_never_too_small():
    sampled = pf.Problem(pf.losses.squared, pf.populations.Database(np.zeros((2, 500))))
    algorithm = pf.pcsgd(0.1, clip=1.0, noise_multiplier=2.0, batch=pf.Uniform(5))
    ledger = pf.privacy.Ledger(pf.Privacy(DELTA), sampled, algorithm)
    rounds, at = np.arange(0, 302, 2), [0, 5, 77, 149, 150]
    exact = np.asarray([ledger.spent(int(rounds[i])).epsilon for i in at])
    written = ledger.column(rounds)[at]
    assert np.all(written >= exact - 1e-9) and np.all(written <= 1.1 * exact)
    assert written[-1] == exact[-1]


def test_a_run_stops_before_it_overspends():
    budget = 0.5 * (spent(12) + spent(13))
    history = run(30, pf.Privacy(DELTA, budget))
    assert history.rounds[-1] == 12
    assert history["epsilon"][0, -1] == spent(12) <= budget
    assert "after 12 of 30 rounds" in history.meta["privacy"]["stopped"]
    # The rounds that were run are those of a run without a budget.
    np.testing.assert_array_equal(
        history.theta, pf.run(PROBLEM, ALGORITHM, 12, theta=0.0, record=pf.Record(risks=False)).theta
    )


def test_a_budget_holds_across_resume(tmp_path):
    budget = 0.5 * (spent(12) + spent(13))
    options = {"checkpoint": tmp_path / "run", "checkpoint_every": 4}
    assert run(8, pf.Privacy(DELTA, budget), **options).rounds[-1] == 8
    for _ in range(2):  # and again, when there is nothing left
        history = run(30, pf.Privacy(DELTA, budget), resume=True, **options)
        assert history.rounds[-1] == 12
        assert history["epsilon"][0, -1] == spent(12)
    more = run(14, pf.Privacy(DELTA, 2 * budget), resume=True, **options)
    assert more.rounds[-1] == 14


def test_secure_noise_that_was_lost_is_counted_twice(tmp_path):
    options = {"checkpoint": tmp_path / "run", "checkpoint_every": 4}
    privacy = pf.Privacy(DELTA, noise="secure")
    assert run(8, privacy, **options).meta["privacy"]["epsilon"] == spent(8)
    # A kill after the noise of rounds 9 to 12 was drawn and before they were written down.
    book = tmp_path / "run" / "ledger.json"
    told = json.loads(book.read_text())
    assert (told["wasted"], told["drawn"], told["noise"], told["delta"]) == (0, 8, "secure", DELTA)
    assert told["spent"] == spent(8)
    pf.privacy.Ledger(privacy, PROBLEM, ALGORITHM, tmp_path / "run").write(12)
    history = run(16, privacy, resume=True, **options)
    assert history.meta["privacy"]["epsilon"] == spent(16 + 4)
    told = json.loads(book.read_text())
    assert (told["wasted"], told["drawn"]) == (4, 16)
    # The budget counts them too.
    budget = 0.5 * (spent(24) + spent(25))
    assert run(30, pf.Privacy(DELTA, budget, noise="secure"), resume=True, **options).rounds[-1] == 20


def test_a_ledger_cannot_be_left_behind(tmp_path):
    options = {"checkpoint": tmp_path / "run", "checkpoint_every": 4}
    run(4, pf.Privacy(DELTA), **options)
    with pytest.raises(ValueError, match="keeps a ledger; pass privacy="):
        run(8, None, resume=True, **options)
    with pytest.raises(ValueError, match='has fast noise; continue with noise="fast"'):
        run(8, pf.Privacy(DELTA, noise="secure"), resume=True, **options)
    late = run(8, pf.Privacy(DELTA, 0.9 * spent(4)), resume=True, **options)
    assert late.rounds[-1] == 4 and "the budget is exceeded" in late.meta["privacy"]["stopped"]


@pytest.mark.parametrize("noise", ["fast", "secure"])
def test_a_ledger_that_is_missing_altered_or_old_stops_the_run(tmp_path, noise):
    options = {"checkpoint": tmp_path / "run", "checkpoint_every": 4, "resume": True}
    privacy = pf.Privacy(DELTA, noise=noise)
    book = tmp_path / "run" / "ledger.json"
    run(4, privacy, **options)
    old = book.read_text()
    run(8, privacy, **options)
    now = book.read_text()
    book.unlink()
    for asked, says in ((privacy, "ledger.json is missing"), (None, "keeps a ledger; pass privacy=")):
        with pytest.raises(ValueError, match=says):
            run(12, asked, **options)
    book.write_text(old)
    with pytest.raises(ValueError, match="older than the checkpoint"):
        run(12, privacy, **options)
    for told in (now.replace('"drawn": 8', '"drawn": 9'), now[:40], "[]"):
        book.write_text(told)
        with pytest.raises(ValueError, match=r"was altered|is not what a run wrote"):
            run(12, privacy, **options)
    book.write_text(now)
    assert run(12, privacy, **options).rounds[-1] == 12


def test_rounds_that_were_lost_before_the_first_checkpoint_are_not_forgotten(tmp_path):
    """A start that was killed left a ledger and no state; whoever goes on with other noise is told."""
    folder = tmp_path / "run"
    folder.mkdir()
    pf.privacy.Ledger(pf.Privacy(DELTA, noise="secure"), PROBLEM, ALGORITHM, folder).write(5)
    options = {"checkpoint": folder, "checkpoint_every": 4}
    with pytest.raises(ValueError, match='has secure noise; continue with noise="secure"'):
        run(8, pf.Privacy(DELTA), **options)
    with pytest.raises(ValueError, match="counts 5 rounds of another mechanism"):
        pf.run(
            PROBLEM,
            pf.pcsgd(0.1, clip=1.0, noise_multiplier=9.0, batch=pf.Uniform(3)),
            8,
            theta=0.0,
            record=pf.Record(risks=False),
            privacy=pf.Privacy(DELTA, noise="secure"),
            checkpoint=pf.Checkpoint(folder, every=4),
        )
    with pytest.raises(ValueError, match="pass privacy="):
        run(8, None, **options)
    history = run(8, pf.Privacy(DELTA, noise="secure"), **options)
    assert history.meta["privacy"]["epsilon"] == spent(8 + 5)


def test_an_epsilon_of_zero_is_an_answer():
    """One row of a million, for a few rounds: delta alone pays for it."""
    problem = pf.Problem(pf.losses.squared, pf.populations.Database(np.zeros((1, 1_000_000), np.float32)))
    history = pf.run(
        problem,
        pf.pcsgd(0.1, 1.0, 2.0, batch=pf.Uniform(1)),
        5,
        theta=0.0,
        record=pf.Record(risks=False),
        privacy=pf.Privacy(DELTA),
    )
    np.testing.assert_array_equal(history["epsilon"], np.zeros((1, 6)))
    assert history.meta["privacy"]["epsilon"] == 0.0


@pytest.mark.slow
def test_secure_runs_hide_who_was_drawn():
    algorithm = pf.pcsgd(0.1, clip=1.0, noise_multiplier=2.0, batch=pf.Poisson(0.5, 3))
    first, second = (
        pf.run(
            PROBLEM, algorithm, 20, theta=0.0, record=pf.Record(risks=False), privacy=pf.Privacy(DELTA, noise="secure")
        )
        for _ in "ab"
    )
    assert np.any(first["samples"] != second["samples"]) and first.meta["seed"] is None


@pytest.mark.parametrize(
    ("algorithm", "says"),
    [
        (pf.pcsgd(0.1, 1.0, 1e-5), "may overflow"),
        (pf.pcsgd(0.1, 1.0, 1e5), "would take"),
        (pf.p_fedavg(0.1, channel=pf.channels.ClippedNoise(1.0, 0.0)), "above 0"),
    ],
)
def test_noise_that_does_not_fit_the_grid_is_refused(algorithm, says):
    with pytest.raises(ValueError, match=says):
        pf.run(
            PROBLEM, algorithm, 3, theta=0.0, record=pf.Record(risks=False), privacy=pf.Privacy(DELTA, noise="secure")
        )


def test_a_budget_that_has_room_for_nothing_is_refused():
    with pytest.raises(ValueError, match=r"one round alone spends epsilon = .*, but the budget is 1e-06"):
        run(3, pf.Privacy(DELTA, 1e-6))


def test_no_budget_for_what_cannot_be_certified():
    with pytest.raises(ValueError, match="epsilon is infinite: the estimator Minibatch bounds no person's gradient"):
        pf.run(PROBLEM, pf.p_fedavg(0.1), 3, theta=0.0, privacy=pf.Privacy(DELTA, 1.0))
    history = pf.run(PROBLEM, pf.p_fedavg(0.1), 3, theta=0.0, record=pf.Record(risks=False), privacy=pf.Privacy(DELTA))
    np.testing.assert_array_equal(history["epsilon"], [[0.0, np.inf, np.inf, np.inf]])
    assert "bounds no person's gradient" in history.meta["privacy"]["why"][0]


def test_secure_noise_needs_noise():
    with pytest.raises(ValueError, match="needs a part that adds noise"):
        pf.run(PROBLEM, pf.p_fedavg(0.1), 3, theta=0.0, privacy=pf.Privacy(DELTA, noise="secure"))


def test_the_progress_line_shows_epsilon(capsys):
    run(4, pf.Privacy(DELTA), callbacks=[pf.callbacks.Progress(True)])
    assert f"epsilon {spent(4):.3g}" in capsys.readouterr().err


def test_saved_and_loaded(tmp_path):
    history = run(4, pf.Privacy(DELTA, 5.0))
    again = pf.History.load(history.save(tmp_path / "private.nc"))
    np.testing.assert_array_equal(again["epsilon"], history["epsilon"])
    assert again.meta["privacy"] == history.meta["privacy"]
