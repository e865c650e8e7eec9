"""Callbacks of ours by name in a file: made from their tables, called by the run, refused with the key."""

import csv
import sys
import types

import numpy as np
import pytest

import performative as pf
import performative.live
from performative.callbacks import CSV, Stop, Threshold
from performative.callbacks.news import News
from performative.config import ConfigError, load_experiment

GOOD = """
[problem]
loss = "squared"
population = { name = "Gaussian", mean = [0.0, 1.0, 2.0], sensitivity = 0.5, scale = 1.0 }
[algorithm]
recipe = "p_fedavg"
rate = 0.1
[run]
rounds = 400
repeats = 2
theta = 9.0
record = { risks = false }
[[run.callbacks]]
name = "Stop"
condition = { number = "distance_to_stable", below = 5.0 }
every = 2
[[run.callbacks]]
name = "CSV"
path = "records.csv"
"""


def load(folder, text=GOOD):
    (folder / "case.toml").write_text(text)
    return load_experiment(folder / "case.toml")


def test_a_file_stops_and_writes(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    history = load(tmp_path).run()
    last = int(history.rounds[-1])
    assert history.status == "stopped" and last < 400 and last % 2 == 0
    assert history.meta["stopped_by"] == f"Stop(distance_to_stable < 5.0) at round {last}"
    distance = history["distance_to_stable"].mean(axis=0)
    assert distance[-1] < 5.0 <= distance[-3]
    with open("records.csv", newline="") as file:
        rows = list(csv.DictReader(file))
    assert len(rows) == 2 * (last + 1)
    np.testing.assert_allclose(float(rows[-1]["distance_to_stable"]), history["distance_to_stable"][1, -1], rtol=1e-6)


CONDITION = 'condition = { number = "distance_to_stable", below = 5.0 }'


@pytest.mark.parametrize(
    ("old", "new", "says"),
    [
        (CONDITION, "", r"run.callbacks\[0\]: Stop needs condition"),
        (
            CONDITION,
            'condition = "near"',
            r"callbacks\[0\].condition: expected a table of number, below, above; got 'n",
        ),
        (CONDITION, "condition = 3", r"callbacks\[0\].condition: expected a table of number, below, above; got 3"),
        ("below = 5.0", "below = 5.0, above = 1.0", r"callbacks\[0\].condition: Threshold: give either below or above"),
        ("below = 5.0", 'below = "5"', r"callbacks\[0\].condition.below: expected a number; got '5'"),
        ("below = 5.0", "below = nan", r"callbacks\[0\].condition.below: Threshold: below must be finite"),
        ("below = 5.0", "blow = 5.0", r"callbacks\[0\].condition: unknown key 'blow'. Did you mean 'below'"),
        ("every = 2", "every = 0", r"callbacks\[0\].every: every must be a whole number >= 1; got 0"),
        ('"records.csv"', '"nowhere/records.csv"', r"callbacks\[1\].path: path='nowhere.*there is no folder"),
        ('"CSV"', '"CVS"', r"callbacks\[1\]: there is no callback 'CVS'. Did you mean 'CSV'"),
        ('name = "CSV"', 'names = "CSV"', r"callbacks\[1\]: expected a name, or a table"),
        ('[[run.callbacks]]\nname = "CSV"', "[run.callbacks2]\nname = 3", "unknown key 'callbacks2'"),
    ],
)
def test_a_mistake_is_told_with_its_key(tmp_path, old, new, says):
    assert old in GOOD
    with pytest.raises(ConfigError, match=says):
        load(tmp_path, GOOD.replace(old, new))


def test_callbacks_are_a_list_and_a_bare_name_will_do(tmp_path):
    bare = GOOD.partition("[[run.callbacks]]")[0]
    found = load(tmp_path, bare + 'callbacks = ["Progress", { name = "CSV", path = "x.csv" }]').options["callbacks"]
    assert isinstance(found[0], pf.callbacks.Progress) and isinstance(found[1], CSV)
    with pytest.raises(ConfigError, match=r"run.callbacks: expected a list such as \[\"Progress\"\]; got 'Progress'"):
        load(tmp_path, bare + 'callbacks = "Progress"')


def test_trackers_take_settings_of_their_own_and_ask_for_their_package(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "wandb", types.ModuleType("wandb"))
    monkeypatch.setitem(sys.modules, "mlflow", None)
    table = 'callbacks = [{ name = "WandB", project = "shift", mode = "offline", tags = ["a", "b"] }]'
    bare = GOOD.partition("[[run.callbacks]]")[0]
    (tracker,) = load(tmp_path, bare + table).options["callbacks"]
    assert tracker.project == "shift" and tracker.settings == {"mode": "offline", "tags": ["a", "b"]}
    with pytest.raises(ConfigError, match=r"run.callbacks\[0\]: pf.callbacks.MLflow needs mlflow: pip install mlflow"):
        load(tmp_path, bare + 'callbacks = ["MLflow"]')


def news(**numbers):
    records = {name: np.asarray(values, np.float32) for name, values in numbers.items()}
    risks = {name: records.pop(name) for name in list(records) if name.endswith("risk")}
    return News(np.arange(2), records, risks, 0.0, 2, 4, 0.0, {})


def test_a_threshold_takes_the_mean_over_repeats_at_the_last_record():
    near = Threshold("gap", below=1.0)
    assert near(news(gap=[[9.0, 0.5], [9.0, 1.0]])) and not near(news(gap=[[0.0, 0.5], [0.0, 2.0]]))
    assert not near(news(gap=[[0.0, np.nan], [0.0, 0.0]]))
    assert Threshold("gap", above=1.0)(news(gap=[[0.0, 3.0], [0.0, 0.0]]))
    of_settings = [[[0.0, 0.5]], [[0.0, 1.5]]]
    assert not near(news(gap=of_settings)) and Threshold("gap", below=2.0)(news(gap=of_settings))
    risk = Threshold("performative_risk", below=1.0)
    assert risk(news(gap=[[0.0]], performative_risk=[0.5, 0.9])) and not risk(news(gap=[[0.0]]))
    with pytest.raises(ValueError, match=r"Threshold: 'gapp' is not recorded. Did you mean 'gap'"):
        Threshold("gapp", below=1.0)(news(gap=[[0.0]]))
    with pytest.raises(ValueError, match="give either below or above; got None and None"):
        Threshold("gap")
    assert Stop(near).reason == "Stop(gap < 1.0)" and Stop(near, reason="enough").reason == "enough"


def test_a_federation_leaves_them_to_simulations(tmp_path, monkeypatch):
    """A site need not have the tracker of whoever simulates the same file."""
    monkeypatch.setitem(sys.modules, "mlflow", None)
    bare = GOOD.partition("[[run.callbacks]]")[0].replace("rate = 0.1", 'rate = 0.1\ndeploy = "round"')
    (tmp_path / "case.toml").write_text(bare + 'callbacks = ["MLflow"]\n')
    assert pf.live.load(tmp_path / "case.toml").rounds == 400
