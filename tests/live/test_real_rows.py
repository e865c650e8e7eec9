"""Rows that arrive in a folder, under the model that was published: the whole way there and back."""

import numpy as np
import pandas as pd
import pytest

import performative as pf
from performative.live import Callback, Federation, Folder, Live, ModelFile, Observed, load, read_events, rehearse

CLIENTS, ROWS = 3, 12
RNG = np.random.default_rng(0)
X = RNG.normal(size=(CLIENTS, ROWS, 2))
Y = RNG.integers(0, 2, (CLIENTS, ROWS))
STRENGTH = np.array([0.2, 0.6, 1.0])
WHOLE = {"rate": 0.5, "local_steps": 2, "batch": pf.batches.Whole(), "deploy": "round"}


def people(client, folder):
    """They answer to the published model, and the service writes down what they did, with the model's version."""

    def answer(deployed):
        folder.mkdir(parents=True, exist_ok=True)
        moved = X[client] - STRENGTH[client] * deployed.theta
        table = pd.DataFrame({"a": moved[:, 0], "b": moved[:, 1], "default": Y[client]})
        table["model_version"] = deployed.version
        table.to_parquet(folder / f"{deployed.version:04d}.parquet")

    return Callback(answer)


def live_federation(tmp_path, **options):
    stand_in = Observed(x=np.zeros((CLIENTS, 1, 2)), y=np.zeros((CLIENTS, 1), int), classes=2)

    def source(client):
        folder = tmp_path / f"rows-{client}"
        return Live(people(client, folder), Folder(folder, features=["a", "b"], label="default"), minimum=ROWS)

    problem = pf.Problem(loss=pf.losses.logistic(penalty=0.1), population=stand_in)
    settings = {"rounds": 6, "dtype": "float64", "source": source} | options
    return Federation(problem, pf.p_fedavg(**WHOLE), **settings)


def test_rows_that_people_answer_with_give_the_simulated_trajectory(tmp_path):
    """Every deployment makes a new file; data of earlier ones lie in the same folder and are left alone."""
    live = rehearse(live_federation(tmp_path), tmp_path / "books")
    strategic = pf.Problem(
        loss=pf.losses.logistic(penalty=0.1), population=pf.populations.Strategic(X, Y, strength=STRENGTH)
    )
    run = pf.run(strategic, pf.p_fedavg(**WHOLE), rounds=6, dtype="float64")
    np.testing.assert_allclose(live.theta, run.theta, rtol=0, atol=1e-12)
    assert sorted(path.name for path in (tmp_path / "rows-0").iterdir()) == [f"{v:04d}.parquet" for v in range(6)]


class HomeMade:
    """A source with `deploy` and `sample`, and nothing else."""

    def __init__(self, inner):
        self.inner = inner

    def deploy(self, deployed):
        self.inner.deploy(deployed)

    def sample(self, version):
        return self.inner.sample(version)


def test_a_source_of_ones_own_needs_deploy_and_sample_only(tmp_path):
    usual = live_federation(tmp_path / "usual", rounds=2)
    ours = live_federation(tmp_path / "ours", rounds=2)
    made = Federation(ours.problem, ours.algorithm, 2, dtype="float64", source=lambda c: HomeMade(ours.source(c)))
    assert np.array_equal(rehearse(made).theta, rehearse(usual).theta)


def test_a_client_without_rows_says_what_is_missing(tmp_path):
    usual = live_federation(tmp_path, rounds=1)
    (tmp_path / "empty").mkdir()
    silent = Live(
        Callback(lambda deployed: None), Folder(tmp_path / "empty", features=["a", "b"], label="default"), minimum=5
    )
    made = Federation(usual.problem, usual.algorithm, 1, source=lambda c: silent if c == 2 else usual.source(c))
    live = rehearse(made, tmp_path / "books")
    (event,) = read_events(tmp_path / "books" / "server")
    assert (event["what"], event["client"]) == ("failed", 2)
    assert event["reason"].startswith("TooFewRows: too few rows have arrived")
    assert "0 rows of version 0" in (tmp_path / "books" / "clients" / "2" / "client.log").read_text()
    assert live["missing"][0, -1] == 1


def test_a_second_run_goes_on_with_version_numbers(tmp_path):
    """What publishes models takes no number twice, so a new run in the same place starts after the last."""
    from performative.live.server_store import first_version

    def source(client):
        folder = tmp_path / f"rows-{client}"
        file, folder_of = ModelFile(tmp_path / f"model-{client}.json"), people(client, folder)

        def both(deployed):
            file.publish(deployed)
            folder_of.function(deployed)

        return Live(Callback(both), Folder(folder, features=["a", "b"], label="default"), minimum=ROWS)

    made = live_federation(tmp_path, rounds=2, source=source)
    one = rehearse(made, tmp_path / "one")
    first_version(tmp_path / "two" / "server", 5)
    two = rehearse(made, tmp_path / "two")
    assert np.array_equal(one.theta, two.theta)
    with pytest.warns(UserWarning, match="nothing-was-learned"):
        stale = rehearse(made, tmp_path / "three")  # from 0 again: every client refuses
    assert stale["missing"][0, -1] == 6


def test_a_federation_from_a_file(tmp_path):
    text = """
[problem]
case = { name = "credit", banks = 3 }
[algorithm]
recipe = "p_fedavg"
rate = 0.1
[run]
rounds = 2
repeats = 4
dtype = "float64"
[federation]
timeout = 5
quorum = 2
"""
    (tmp_path / "federation.toml").write_text(text)
    made = load(tmp_path / "federation.toml")
    assert (made.clients, made.rounds, made.timeout, made.quorum) == (3, 2, 5, 2)
    assert not made.algorithm.deploy.each_step  # "round" is the default here
    for wrong, words in [
        ("timeout = -1", r"federation.timeout: timeout must be a finite number above 0; got -1"),
        ("timeuot = 1", r"timeuot.* Did you mean 'timeout'"),
        ('timeout = "x"', r"federation.timeout"),
    ]:
        (tmp_path / "wrong.toml").write_text(text.replace("timeout = 5", wrong))
        with pytest.raises(ValueError, match=words):
            load(tmp_path / "wrong.toml")


@pytest.mark.slow
def test_a_promise_does_not_count_the_sampling_of_rows_that_it_cannot_see(tmp_path):
    # The stand-in has 1,000 rows a client and the source 12: one in 200 would be claimed where one in 3 is drawn.
    stand_in = pf.populations.Strategic(np.zeros((CLIENTS, 1000, 2)), np.tile([0, 1], (CLIENTS, 500)), 0.0)
    problem = pf.Problem(pf.losses.logistic(penalty=0.1), stand_in)
    private = pf.pcsgd(0.1, clip=1.0, noise_multiplier=4.0, batch=pf.Uniform(5), deploy="round")
    source = live_federation(tmp_path).source
    made = Federation(problem, private, 2, dtype="float64", source=source, privacy=pf.Privacy(1e-5))
    live = rehearse(made, tmp_path / "books")
    assert live["epsilon"][0, -1] == pf.privacy.spent(4.0, 2, 1e-5).epsilon
    assert any("the number of rows that arrive is public" in line for line in live.meta["privacy"]["assumes"])
    simulated = pf.privacy.guarantee(problem, private).spent(2, 1e-5).epsilon
    assert simulated < live["epsilon"][0, -1] / 2
