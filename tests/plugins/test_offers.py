"""Parts, recipes and data sets of installed packages: named in files, suggested, and refused where they clash."""

from importlib.metadata import EntryPoint

import numpy as np
import pytest
import tiny_people
from typer.testing import CliRunner

import performative as pf
from performative import plugins
from performative.cli.app import app
from performative.config import load_experiment
from performative.config.errors import ConfigError
from performative.data.catalogue import data_set
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
    history = pf.run(read_in.problem, read_in.algorithm, **read_in.options)
    assert history.status == "completed" and np.all(np.isfinite(history.theta))


@pytest.mark.parametrize(
    ("key", "wrong", "right"),
    [("population", "Tried", "Tired"), ("recipe", "patent", "patient"), ("loss", "absolut", "absolute")],
)
def test_near_names_are_suggested(tiny, tmp_path, key, wrong, right):
    with pytest.raises(ConfigError, match=f"Did you mean '?{right}"):
        read(tmp_path, **{key: wrong})


def test_without_the_package_the_name_is_unknown(tmp_path):
    with pytest.raises(ConfigError, match="there is no loss 'absolute'"):
        read(tmp_path)


def test_data_and_help(tiny):
    assert data_set("naps").title == "Naps"
    told = plugins.summary()
    assert "parts: Tired, absolute" in told and "data: naps" in told
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

    with pytest.warns(UserWarning, match="'p_fedavg' of the package tiny_people is left out"):
        assert recipes()["p_fedavg"] is pf.p_fedavg
    with pytest.warns(UserWarning, match="offered by other_people and tiny_people, so neither is taken"):
        assert plugins.offers("data") == {}
