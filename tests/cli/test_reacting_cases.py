"""The case studies of PROFL, and estimators written out, from files."""

import json

import pytest
from typer.testing import CliRunner

import performative as pf
from performative._base.describe import describe
from performative.cli import app
from performative.config import load_experiment

# case, its Python form, recipe, window: well above the d parameters, and short enough that warm-up ends.
CASES = {
    '{ name = "pricing_demands", clients = 3, goods = 1, contamination = 0.2 }': (
        lambda: pf.cases.pricing_demands(3, 1, 0.2), "profl", 3,
    ),
    '{ name = "pricing_contribution", clients = 3 }': (lambda: pf.cases.pricing_contribution(3), "pofl", 3),
    '{ name = "strategic_classes", kind = "same", clients = 3 }': (
        lambda: pf.cases.strategic_classes("same", 3), "profl", 4,
    ),
    '{ name = "house_pricing", alpha = 0.2, clients = 3 }': (lambda: pf.cases.house_pricing(0.2, 3), "pg", 3),
    '{ name = "regression_contribution", clients = 3 }': (lambda: pf.cases.regression_contribution(3), "pofl", 3),
}  # fmt: skip
FILE = """
title = "a case"
[problem]
case = CASE
[algorithm]
recipe = "RECIPE"
window = WINDOW
rate = 0.01
batch = { name = "Fixed", n = 20 }
MORE
[run]
rounds = 7
record = { risks = false }
dtype = "float64"
"""


def write(folder, case, recipe, window, more=""):
    file = folder / "case.toml"
    changes = {"CASE": case, "RECIPE": recipe, "WINDOW": str(window), "MORE": more}
    text = FILE
    for old, new in changes.items():
        text = text.replace(old, new)
    file.write_text(text)
    return file


def invoke(*words):
    return CliRunner().invoke(app, [str(word) for word in words])


@pytest.mark.slow
@pytest.mark.parametrize("case", CASES, ids=lambda case: case.split('"')[1])
def test_each_case_runs_by_its_name(case, tmp_path):
    make, recipe, window = CASES[case]
    file = write(tmp_path, case, recipe, window)
    experiment = load_experiment(file)
    assert describe(experiment.problem) == describe(make())
    assert describe(experiment.algorithm) == describe(getattr(pf, recipe)(0.01, window=window, batch=pf.Fixed(20)))
    result = invoke("run", file, "--json")
    assert result.exit_code == 0, result.stderr
    told = json.loads(result.stdout)
    assert (told["status"], told["rounds"], told["title"]) == ("completed", 7, "a case")


INNER = '{ name = "Performative", window = 5, term = "pathwise", family = ESTIMATE }'
WRITTEN = f"""
estimator = {{ name = "Filtered", sparse = 0.03, inner = {INNER} }}
aggregator = {{ name = "PooledJacobian", clusters = 2 }}
"""
PRICES = '{ name = "pricing_demands", clients = 3, goods = 1 }'


@pytest.mark.parametrize("estimate", ['{ name = "Location" }', '"Location"', '{ name = "Location", scale = 1.5 }'])
def test_an_estimator_can_be_written_out(estimate, tmp_path):
    file = write(tmp_path, PRICES, "pofl", 9, WRITTEN.replace("ESTIMATE", estimate))
    family = pf.families.Location(scale=1.5) if "scale" in estimate else pf.families.Location()
    inner = pf.estimators.Performative(5, family=family, term="pathwise")
    algorithm = pf.pofl(
        0.01, window=9, batch=pf.Fixed(20), estimator=pf.estimators.Filtered(inner, sparse=0.03),
        aggregator=pf.aggregators.PooledJacobian(clusters=2),
    )  # fmt: skip
    assert describe(load_experiment(file).algorithm) == describe(algorithm)


@pytest.mark.slow
def test_what_was_written_out_runs(tmp_path):
    result = invoke("run", write(tmp_path, PRICES, "pofl", 9, WRITTEN.replace("ESTIMATE", '"Location"')), "--json")
    assert result.exit_code == 0, result.stderr
    assert json.loads(result.stdout)["status"] == "completed"


ESTIMATOR = "algorithm.estimator"
MISTAKES = {
    "family": ("ESTIMATE", '{ name = "Locatoin" }', f"{ESTIMATOR}.inner.family.name", "Did you mean 'Location'?"),
    "bare family": ("ESTIMATE", '"Slop"', f"{ESTIMATOR}.inner.family", "Did you mean 'Slope'?"),
    "part of another slot": ("ESTIMATE", '"Mean"', f"{ESTIMATOR}.inner.family", "there is no family 'Mean'"),
    "argument of a family": (
        "ESTIMATE", '{ name = "Location", scal = 1 }', f"{ESTIMATOR}.inner.family", "Did you mean 'scale'?",
    ),
    "estimator": ('"Filtered"', '"Filterd"', f"{ESTIMATOR}.name", "Did you mean 'Filtered'?"),
    "inner": ('"Performative"', '"Performativ"', f"{ESTIMATOR}.inner.name", "Did you mean 'Performative'?"),
    "range": ("sparse = 0.03", "sparse = 3", f"{ESTIMATOR}.sparse", "must lie between 0 and 1"),
    "term": ('"pathwise"', '"paths"', f"{ESTIMATOR}.inner.term", 'must be "score" or "pathwise"'),
    "clusters": ("clusters = 2", "clusters = 0", "algorithm.aggregator.clusters", "whole number >= 1; got 0"),
    "case": ("pricing_demands", "pricing_demand", "problem.case.name", "Did you mean 'pricing_demands'?"),
    "argument of a case": ("goods = 1", "good = 1", "problem.case", "Did you mean 'goods'?"),
    "recipe's argument": ("window = 9", "windw = 9", "algorithm", "Did you mean 'window'?"),
    "window too short": ("window = 5", "window = 1", "run", "cannot tell how the data follow 1 parameters"),
    "nothing to pool": (INNER, '"Minibatch"', "run", "PooledJacobian needs clients that track how their data react"),
}  # fmt: skip


@pytest.mark.parametrize("mistake", MISTAKES)
def test_a_mistake_gets_file_key_and_the_nearest_name(mistake, tmp_path):
    old, new, key, says = MISTAKES[mistake]
    file = write(tmp_path, PRICES, "pofl", 9, WRITTEN)
    assert old in file.read_text()
    file.write_text(file.read_text().replace(old, new).replace("ESTIMATE", '"Location"'))
    result = invoke("run", file)
    assert result.exit_code == 2, result.exception
    assert result.stderr.startswith(f"error: {file}: {key}: "), result.stderr
    assert says in result.stderr and len(result.stderr.splitlines()) == 1
