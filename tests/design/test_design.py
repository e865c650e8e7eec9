"""Designs of exploration against closed forms, and against what comes of them."""

import json

import numpy as np
import pandas as pd
import pytest
from exploration_worlds import WORLDS, carry_out, gaussian
from scipy import stats
from typer.testing import CliRunner

import performative as pf
from performative.cli.app import app
from performative.design import Alternative, conditions_of, conditions_of_logs
from performative.design.pattern import effective_deployments, signs
from performative.design.power import mean_width, power_of, ratio_for

ONE = pf.Conditions(spread=np.array([[2.0]]), rows=np.array([50]), theta=np.array([1.0]), curvature=np.array([[0.5]]))


@pytest.mark.parametrize("T", [8, 12, 20, 24])
def test_the_pattern_is_blind_to_level_and_trend(T):
    s = signs(T, 1)[:, 0]
    assert set(s) == {-1.0, 1.0} and s.sum() == 0 and s @ np.arange(T) == 0
    assert effective_deployments(signs(T, 1), "linear") == pytest.approx(T)


def test_parameters_are_told_apart():
    S = signs(16, 4)
    np.testing.assert_allclose(S.T @ S, 16 * np.eye(4))
    assert 18 < effective_deployments(signs(20, 3), "linear") <= 20
    assert effective_deployments(signs(8, 3), "linear") == 0  # two blocks cannot tell three


def test_width_and_error_are_the_closed_form():
    """One parameter, theta +- delta: se = sigma / (delta sqrt(n T)), and the width is 2 t se, s being estimated."""
    found = pf.design(ONE, width=0.5, deployments=20)
    assert found.deployments == 20 and found.degrees == 20 - 2 - 1
    error = 2.0 / (found.size * np.sqrt(50 * 20))
    shrink = np.sqrt(np.random.default_rng(0).chisquare(17, 400_000) / 17).mean()
    assert found.width == pytest.approx(0.5)
    assert 2 * stats.t.ppf(0.975, 17) * shrink * error == pytest.approx(0.5, rel=1e-3)
    np.testing.assert_allclose(found.models[:, 0], 1.0 + found.size * signs(20, 1)[:, 0])


def test_power_is_that_of_the_noncentral_t():
    found = pf.design(ONE, effect=0.3, power=0.8, deployments=12)
    ratio, df = 0.3 * found.size * np.sqrt(50 * 12) / 2.0, 9
    critical = stats.t.ppf(0.975, df)
    told = stats.nct.sf(critical, df, ratio) + stats.nct.cdf(-critical, df, ratio)
    assert found.power == pytest.approx(told) == pytest.approx(0.8)
    rng = np.random.default_rng(1)
    t = (ratio + rng.normal(size=200_000)) / np.sqrt(rng.chisquare(df, 200_000) / df)
    assert np.mean(np.abs(t) > critical) == pytest.approx(0.8, abs=4 * np.sqrt(0.16 / 200_000))
    assert power_of(ratio_for(0.6, 5, 0.9), 5, 0.9) == pytest.approx(0.6)
    assert mean_width(2.0, 10**6, 0.95) == pytest.approx(4 * 1.95996, rel=1e-4)


def test_the_cost_is_the_deployed_loss_that_is_added():
    """PR(theta) = ((1 - eps) theta - m)^2 / 2 + ...: T steps of +- delta add T delta^2 (1 - eps)^2 / 2."""
    problem = gaussian(0.4, [1.0])
    found = pf.design(problem, width=0.2, rows=100)
    assert found.cost == pytest.approx(20 * found.size**2 * 0.6**2 / 2)
    assert found.cost_each == pytest.approx(found.cost / 20)
    np.testing.assert_allclose(found.theta, 1.0 / 0.6)
    summary = conditions_of(problem, 100)
    np.testing.assert_allclose(summary.spread, [[1.0]])
    np.testing.assert_allclose(summary.curvature, [[0.36]])


def test_few_large_steps_and_many_small_ones_cost_about_the_same():
    short, long = (pf.design(ONE, width=0.5, deployments=T) for T in (20, 100))
    assert short.size > 2 * long.size and short.cost == pytest.approx(long.cost, rel=0.15)
    assert long.cost < short.cost  # only Student's t tells them apart
    assert [one.deployments for one in short.alternatives] == [8, 40]
    other = pf.design(ONE, width=0.5, deployments=40)
    assert isinstance(short.alternatives[1], Alternative)
    assert short.alternatives[1].size == pytest.approx(other.size) and short.alternatives[1].cost == pytest.approx(
        other.cost
    )


def test_where_steps_are_limited_the_cheapest_clients_do_it():
    """Client 1 tells the most for the least; client 2 costs ten times as much for the same."""
    people = pf.Conditions(
        spread=np.array([[1.0], [0.5], [0.5]]), rows=100, theta=np.zeros(1), curvature=np.array([[1.0], [1.0], [10.0]])
    )
    found = pf.design(people, width=0.2, size=0.5)
    assert found.clients == ("client1",) and found.size <= 0.5
    more = pf.design(people, width=0.2, size=0.07, deployments=100)
    assert len(more.clients) > 1 and "client1" in more.clients and more.deployments > found.deployments
    assert more.width == pytest.approx(0.2) and more.size <= 0.07
    asked = pf.design(people, width=0.2, size=0.5, clients=["client0", "client2"])
    assert asked.clients == ("client0", "client2") and asked.cost > found.cost


def test_each_client_gets_the_step_that_its_noise_asks_for():
    people = pf.Conditions(spread=np.array([[1.0], [3.0]]), rows=[100, 400], theta=np.zeros(1))
    found = pf.design(people, width=0.3, each=True)
    alone = pf.design(pf.Conditions(np.array([[3.0]]), np.array([400]), np.zeros(1)), width=0.3)
    assert found.sizes["client1"] == pytest.approx(alone.size) == pytest.approx(1.5 * found.sizes["client0"])
    assert found.cost is None and "unknown" in str(found)


def test_the_audit_sees_what_was_promised_less_often_as_it_allows_for_more_drift():
    found = pf.design(ONE, effect=0.3)
    assert 0.3 < found.audit_power < found.power
    assert pf.design(ONE, effect=0.3, power=0.999).audit_power > 0.9


def test_it_can_be_stored_and_read():
    found = pf.design(gaussian(0.4, [1.0, 2.0]), effect=0.2, rows=[100, 50])
    told = json.loads(json.dumps(found.to_dict(), allow_nan=False))
    assert told["size"] == found.size and told["clients"] == ["client0", "client1"] and len(told["models"]) == 20
    assert isinstance(found, pf.Design) and "Deploy 20 models at 2 clients" in str(found)


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({}, "exactly one of effect= "),
        ({"effect": 0.1, "width": 0.1}, "exactly one of effect= "),
        ({"effect": -1.0}, "effect must be a positive number"),
        ({"effect": 0.1, "power": 1.0}, "power must lie between 0 and 1"),
        ({"effect": 0.1, "power": 0.04}, "reached without exploring"),
        ({"width": 0.1, "deployments": 4}, "deployments = 4 are too few"),
        ({"width": 0.1, "drift": "smooth"}, "drift must be 'none' or 'linear'"),
        ({"width": 0.1, "column": "y"}, "column has no 'y'"),
        ({"width": 0.1, "clients": []}, "must each name at least one"),
        ({"width": 0.1, "clients": ["client9"]}, "clients has no 'client9'. Did you mean 'client0'"),
        ({"width": 0.001, "size": 0.01}, "out of reach with size = 0.01"),
    ],
)
def test_wrong_input_is_named(options, told):
    with pytest.raises(ValueError, match=told):
        pf.design(ONE, **options)


@pytest.mark.parametrize(
    ("fields", "told"),
    [
        ({"spread": np.array([[0.0]])}, "spread must be above 0"),
        ({"rows": np.array([1])}, "rows must be 2 or more"),
        ({"over_dispersion": np.array([[0.5]])}, "over_dispersion must be 1 or more"),
        ({"curvature": np.ones((2, 3))}, r"curvature must have shape \(1, 1\), clients first; got \(2, 3\)"),
        ({"weights": np.array([0.5, 0.5])}, "weights must be 1 numbers"),
        ({"columns": ("a", "b")}, "columns must contain 1 distinct names"),
    ],
)
def test_conditions_are_checked(fields, told):
    with pytest.raises(ValueError, match=told):
        pf.Conditions(**({"spread": np.ones((1, 1)), "rows": np.array([10]), "theta": np.zeros(1)} | fields))


def test_what_is_no_source_is_refused():
    with pytest.raises(ValueError, match="source must be a Problem, Conditions or a folder"):
        pf.design(3.0, width=0.1)


# From files and logs


def write_logs(folder, shock=0.0):
    rng, theta, models, rows = np.random.default_rng(0), 1.0, [], []
    for t in range(14):
        models.append({"deployment": t, "theta_income": theta})
        for bank, scale in (("north", 1.0), ("south", 2.0)):
            x = 2.0 + 0.4 * theta + shock * rng.normal() + scale * rng.normal(size=300)
            rows.append(pd.DataFrame({"deployment": t, "client": bank, "income": x}))
        theta = 2.0 + 0.5 * rng.normal()
    folder.mkdir()
    pd.DataFrame(models).to_csv(folder / "deployments.csv", index=False)
    pd.concat(rows).to_csv(folder / "data.csv", index=False)
    return folder


def test_logs_tell_noise_rows_and_curvature(tmp_path):
    found = conditions_of_logs(write_logs(tmp_path / "logs"))
    np.testing.assert_allclose(found.spread[:, 0], [1.0, 2.0], rtol=0.05)
    assert list(found.rows) == [300, 300] and found.clients == ("north", "south") and found.columns == ("income",)
    # The squared loss under a slope of 0.4: (1 - 0.4)^2, as well as the logs tell the slope.
    np.testing.assert_allclose(found.curvature, 0.36, rtol=0.3)
    noisy = conditions_of_logs(write_logs(tmp_path / "noisy", shock=0.3))
    assert noisy.over_dispersion.max() > 3 > found.over_dispersion.max()


def invoke(*arguments):
    return CliRunner().invoke(app, [str(one) for one in arguments])


FILE = """
[problem]
loss = "squared"
population = { name = "Gaussian", mean = [1.0, 2.0], sensitivity = 0.4, scale = 1.0 }
"""


def test_the_command_reads_a_file_or_a_folder(tmp_path):
    file = tmp_path / "explore.toml"
    file.write_text(FILE + "[design]\nwidth = 0.2\nrows = 100\n")
    told = json.loads(invoke("design", file, "--json").stdout)
    assert told["status"] == "completed" and told["width"] == pytest.approx(0.2) and told["deployments"] == 20
    other = json.loads(invoke("design", file, "--effect", 0.3, "--power", 0.8, "--json").stdout)
    assert other["power"] == pytest.approx(0.8) and other["asked"] == "effect"
    folder = write_logs(tmp_path / "logs")
    result = invoke("design", folder, "--width", 0.1)
    assert result.exit_code == 0 and "Deploy 20 models at 2 clients" in result.stdout
    missing = invoke("design", folder)
    assert missing.exit_code == 2 and "--effect or --width" in missing.stderr
    for wrong, why in (
        ("rows = 100", "design: needs effect"),
        ("widht = 1", "'widht'"),
        ("width = -1", "width must be"),
    ):
        file.write_text(FILE + f"[design]\n{wrong}\n")
        result = invoke("design", file)
        assert result.exit_code == 2 and why in result.stderr and "Traceback" not in result.stderr, result.stderr


# What was promised comes


@pytest.mark.parametrize("name", ["one client, width 0.2", "three clients, steps of 0.2 at most"])
def test_the_width_that_comes_is_the_one_promised(name):
    found = carry_out(WORLDS[name], 60)
    assert found.came == pytest.approx(found.promised, rel=0.1)


@pytest.mark.slow
@pytest.mark.parametrize("name", WORLDS)
def test_every_world_gets_the_width_power_and_coverage_promised(name):
    runs = 600
    found = carry_out(WORLDS[name], runs)
    assert found.came == pytest.approx(found.promised, rel=0.1)
    assert abs(found.held - 0.95) < 3.3 * np.sqrt(0.95 * 0.05 / runs)
    if found.power is not None:
        # A share of ones is noisiest at a half: its noise changes with the model, and with it the power.
        room = 0.05 if name == "clicks" else 3.3 * np.sqrt(found.power * (1 - found.power) / runs)
        assert abs(found.seen - found.power) < room
