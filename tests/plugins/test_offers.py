"""Parts, recipes, metrics, callbacks and data of installed packages: in files, suggested, refused where they clash."""

from importlib.metadata import EntryPoint
from pathlib import Path

import numpy as np
import pytest
import tiny_people
from typer.testing import CliRunner

import performative as pf
from performative._base import plugins
from performative.cli.app import app
from performative.config import load_experiment
from performative.config.errors import ConfigError
from performative.data.catalog import data_set
from performative.testing import check_part

FILE = """
title = "Tired"
[problem]
loss = "{loss}"
population = {{ name = "{population}", effort = [1.0, 2.0, 3.0] }}
[algorithm]
recipe = "{recipe}"
rate = 0.1
[run]
rounds = 3
theta = 0.5
"""
TIRED = (Path(tiny_people.__file__).parent / "tired.toml").read_text()


@pytest.fixture
def install(monkeypatch):
    """Pretend that packages with these entry points are installed: {group: {name: value}}."""

    def put(*offered):
        entries = [EntryPoint(name, value, f"performative.{group}") for group, name, value in offered]
        monkeypatch.setattr(plugins, "entry_points", lambda group: [one for one in entries if one.group == group])
        plugins.forget()

    yield put
    plugins.forget()


@pytest.fixture
def tiny(install):
    install(
        ("parts", "Tired", "tiny_people:Tired"),
        ("parts", "absolute", "tiny_people:absolute"),
        ("recipes", "patient", "tiny_people:patient"),
        ("metrics", "effort", "tiny_people:effort"),
        ("metrics", "Near", "tiny_people:Near"),
        ("callbacks", "Diary", "tiny_people:Diary"),
        ("data", "naps", "tiny_people:NAPS"),
    )


def read(tmp_path, loss="absolute", population="Tired", recipe="patient"):
    file = tmp_path / "tired.toml"
    file.write_text(FILE.format(loss=loss, population=population, recipe=recipe))
    return load_experiment(file)


def test_a_file_names_them(tiny, tmp_path):
    read_in = read(tmp_path)
    assert isinstance(read_in.problem.population, tiny_people.Tired) and read_in.problem.loss is tiny_people.absolute
    assert read_in.algorithm.local_steps == 2


@pytest.mark.parametrize(
    ("key", "wrong", "right"),
    [("population", "Tried", "Tired"), ("recipe", "patent", "patient"), ("loss", "absolut", "absolute")],
)
def test_near_names_are_suggested(tiny, tmp_path, key, wrong, right):
    with pytest.raises(ConfigError, match=f"Did you mean '?{right}"):
        read(tmp_path, **{key: wrong})


def test_a_file_records_their_metrics_and_calls_their_callbacks(tiny, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "tired.toml").write_text(TIRED)
    history = load_experiment(tmp_path / "tired.toml").run()
    assert history.status == "completed" and np.all(np.isfinite(history.theta))
    np.testing.assert_allclose(history["effort"][:, 1:], np.abs(np.diff(history.theta, axis=1)), rtol=1e-6)
    np.testing.assert_array_equal(history["Near"], np.abs(np.asarray(history.theta) - 1) <= 1)
    lines = [line.split() for line in Path("diary.txt").read_text().splitlines()]
    assert [int(round) for round, _ in lines] == [1, 2, 3]
    np.testing.assert_allclose([float(one) for _, one in lines], history["effort"].mean(axis=0)[1:], atol=1e-4)


METRICS, CALLBACK = 'metrics = ["effort", { name = "Near", to = 1.0 }]', 'name = "Diary"'


@pytest.mark.parametrize(
    ("old", "new", "says"),
    [
        ('"effort",', '"efort",', r"run.record.metrics\[0\]: there is no metric 'efort'. Did you mean 'effort'"),
        ('"effort",', '"uploads",', r"run.record.metrics\[0\]: 'uploads' is always recorded; remove it"),
        ('"effort",', '{ name = "effort", a = 1 },', "effort takes no arguments; drop a"),
        ('"effort",', '{ name = "Near", to = 2.0 },', "run.record.metrics: 'Near' is listed twice"),
        ('"effort",', "3,", "expected a name, or a table such as .*; got 3"),
        ("to = 1.0", "too = 1.0", r"run.record.metrics\[1\]: unknown key 'too'. Did you mean 'to'"),
        (METRICS, 'metrics = "effort"', "run.record.metrics: expected a list such as"),
        (METRICS, 'metrics = { a-b = "effort" }', "run.record: metrics: a name must be a word"),
        (CALLBACK, 'name = "Diry"', r"run.callbacks\[0\]: there is no callback 'Diry'. Did you mean 'Diary'"),
        (CALLBACK, 'name = "Stopp"', r"run.callbacks\[0\]: there is no callback 'Stopp'. Did you mean 'Stop'"),
        (CALLBACK, 'name = "News"', "there is no callback 'News'"),
        ("every = 1", "evry = 1", r"run.callbacks\[0\]: unknown key 'evry'. Did you mean 'every'"),
        ('path = "diary.txt"', "path = 3", r"run.callbacks\[0\].path: expected text; got 3"),
    ],
)
def test_mistakes_in_metrics_and_callbacks_are_told(tiny, tmp_path, old, new, says):
    assert old in TIRED
    (tmp_path / "tired.toml").write_text(TIRED.replace(old, new))
    with pytest.raises(ConfigError, match=says):
        load_experiment(tmp_path / "tired.toml")


def test_metrics_under_names_of_the_file(tiny, tmp_path):
    both = 'metrics = { zero = { name = "Near", to = 0.0 }, one = { name = "Near", to = 1.0 }, moved = "effort" }'
    (tmp_path / "tired.toml").write_text(TIRED.replace(METRICS, both))
    found = load_experiment(tmp_path / "tired.toml").options["record"].metrics
    assert list(found) == ["zero", "one", "moved"] and float(found["zero"].function.to) == 0.0
    assert found["moved"].function is tiny_people.effort


def test_a_metric_that_nobody_offers(install, tmp_path):
    install()
    text = FILE.format(loss="squared", population="Gaussian", recipe="p_fedavg") + 'record = { metrics = ["effort"] }'
    (tmp_path / "case.toml").write_text(text.replace("effort = [", "sensitivity = 0.5, scale = 1.0, mean = ["))
    with pytest.raises(
        ConfigError, match=r"no metric 'effort'. No installed package provides any \(performative.metrics"
    ):
        load_experiment(tmp_path / "case.toml")


def test_without_the_package_the_name_is_unknown(tmp_path):
    with pytest.raises(ConfigError, match="there is no loss 'absolute'"):
        read(tmp_path)


def test_data_and_help(tiny):
    assert data_set("naps").title == "Naps"
    told = plugins.summary()
    assert "parts: Tired, absolute" in told and "data: naps" in told
    assert "metrics: Near, effort" in told and "callbacks: Diary" in told
    listed = CliRunner().invoke(app, ["data", "list", "--json"])
    assert '"naps"' in listed.stdout


def test_they_keep_the_contract_of_their_slot(tiny):
    problem = pf.Problem(pf.losses.squared, tiny_people.Tired([1.0, 2.0, 3.0]))
    assert "in_a_round" in check_part(plugins.load("parts")["Tired"]([1.0, 2.0, 3.0]), problem, theta=0.5)


def test_what_cannot_be_imported_is_named_and_left_out(install, tmp_path):
    install(("parts", "Gone", "no_such_package:Gone"), ("parts", "Tired", "tiny_people:Tired"))
    with pytest.warns(UserWarning, match="'Gone' of the package no_such_package cannot be imported.*plugin-unusable"):
        assert read(tmp_path, "squared", "Tired", "p_fedavg")


def test_our_names_and_names_of_two_packages_are_not_taken(install):
    install(
        ("recipes", "p_fedavg", "tiny_people:patient"),
        ("data", "naps", "tiny_people:NAPS"),
        ("data", "naps", "other_people:NAPS"),
    )
    from performative.config.registry import recipes

    with pytest.warns(UserWarning, match="'p_fedavg' of the package tiny_people is ignored"):
        assert recipes()["p_fedavg"] is pf.p_fedavg
    with pytest.warns(UserWarning, match="provided by other_people and tiny_people, so neither is used"):
        assert plugins.offers("data") == {}
