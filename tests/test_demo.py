"""The demo's numbers hang together, and its two files stand alone."""

import base64
import json
import re

import findings_schema
import jax.numpy as jnp
import numpy as np
import pytest
from typer.testing import CliRunner

from performative import cases
from performative._engine.prepare import on_device
from performative.cli import app
from performative.cli.demonstration.solve import _measure
from performative.cli.demonstration.words import WORDS


@pytest.fixture(scope="module")
def demo(tmp_path_factory):
    folder = tmp_path_factory.mktemp("demo")
    result = CliRunner().invoke(app, ["demo", "--quick", "--json", "--out", str(folder)])
    assert result.exit_code == 0, result.stderr
    return json.loads(result.stdout), result.stderr, folder


def test_the_three_answers(demo):
    told, shown, _ = demo
    static, learned, stable, optimal = told["models"]
    findings_schema.check(told["findings"], WORDS)
    assert [model["name"] for model in told["models"]][2:] == ["stable point", "optimal point"]
    # It changes the data, retraining settles, and ignoring it costs: the reasons to show this problem at all.
    assert told["decisions_changed"] > 0.1
    assert static["deployed_risk"] > 1.5 * static["expected_risk"]
    assert told["contraction"] < 1 and told["distance_end"] < 0.25 * told["distance_start"]
    gaps = told["retraining"]
    assert gaps[0] == pytest.approx(told["distance_start"], rel=1e-5)
    # Two at a time, since retraining swings about the point; a tenth is left to what is not linear so far from it.
    assert gaps[-1] / gaps[-3] == pytest.approx(told["contraction"] ** 2, rel=0.1)
    assert static["deployed_accuracy"] + 0.05 < learned["deployed_accuracy"]
    assert static["deployed_risk"] > stable["deployed_risk"] > optimal["deployed_risk"]
    assert stable["expected_risk"] == pytest.approx(stable["deployed_risk"], rel=1e-6)
    assert told["stable_residual"] < 1e-8 and told["optimal_residual"] < 1e-6
    for question in ("Does deployment", "Does retraining", "What does"):
        assert question in shown


def test_page_needs_nothing_else(demo):
    _, _, folder = demo
    text = (folder / "demo.html").read_text(encoding="utf-8")
    assert sorted(path.name for path in folder.iterdir()) == ["demo.html", "demo.png"]
    assert not re.findall(r"(?:src|href|srcset)=\"(?!data:)", text) and "@import" not in text
    assert "<script" not in text
    assert "prefers-color-scheme: dark" in text and 'name="viewport"' in text
    pictures = [base64.b64decode(code) for code in re.findall(r"data:image/svg\+xml;base64,([\w+/=]+)", text)]
    assert len(pictures) == 6 and all(b"</svg>" in picture for picture in pictures)
    assert (folder / "demo.png").read_bytes()[:8] == b"\x89PNG\r\n\x1a\n"


def test_measures_against_plain_numpy():
    problem = cases.credit()
    population, weights = problem.population, np.asarray(problem.client_weights)
    theta, deployed = np.random.default_rng(1).normal(size=(2, 9))
    risk = accuracy = 0.0
    for i, rows in enumerate(population.count):
        x, y = population.x[i, :rows].copy(), population.y[i, :rows]
        x[:, list(population.features)] -= population.strength[i] * deployed[list(population.features)]
        score = x @ theta
        loss = np.logaddexp(0.0, score) - y * score + 0.5 * 0.04 * np.sum(theta[:-1] ** 2)
        risk += weights[i] * loss.mean()
        accuracy += weights[i] * np.mean((score > 0) == (y == 1))
    stacked = [jnp.asarray(v[None], jnp.float32) for v in (theta, deployed)]
    found = _measure(on_device(problem, jnp.float32), *stacked)
    assert float(found["risk"][0]) == pytest.approx(risk, rel=1e-5)
    assert float(found["accuracy"][0]) == pytest.approx(accuracy, abs=1e-3)


def test_case_is_the_same_everywhere_and_reacts_as_said():
    table = cases.credit_table()
    assert table.equals(cases.credit_table()) and not table.equals(cases.credit_table(seed=8))
    population = cases.credit(strength=2.0).population
    np.testing.assert_allclose(population.strength, 4.0 * np.arange(10) / 9)
    names = cases.credit().columns.names
    assert [names[i] for i in population.features] == list(cases.CHANGEABLE)


def test_a_file_in_the_way_is_refused(tmp_path):
    (tmp_path / "taken").write_text("mine")
    result = CliRunner().invoke(app, ["demo", "--quick", "--out", str(tmp_path / "taken")])
    assert result.exit_code == 2 and "this is a file" in result.stderr
    assert (tmp_path / "taken").read_text() == "mine"
