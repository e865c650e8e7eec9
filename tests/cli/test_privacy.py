"""`performative privacy`, and the table [privacy] of a file."""

import json

import pytest
from typer.testing import CliRunner

import performative as pf
from performative.cli import app

FILE = """
[problem]
case = { name = "quadratic", beta = 0.05, rows = 1000 }
[algorithm]
recipe = "RECIPE"
rate = 0.01
clip = 1.0
noise_multiplier = 4.0
MORE
[run]
rounds = 40
record = { risks = false }
PRIVACY
"""
PRIVACY = "[privacy]\ndelta = 1e-5\n"


def invoke(*words):
    return CliRunner().invoke(app, [str(word) for word in words])


def write(tmp_path, privacy=PRIVACY, recipe="pcsgd", more='batch = { name = "Uniform", n = 10 }'):
    file = tmp_path / "private.toml"
    file.write_text(FILE.replace("PRIVACY", privacy).replace("RECIPE", recipe).replace("MORE", more))
    return file


NUMBERS = ("--steps", 100, "--delta", 1e-5, "--sampling", "uniform", "--batch", 10, "--rows", 1000)


def test_spent_and_calibrate_answer_each_other():
    noise = json.loads(invoke("privacy", "calibrate", "--epsilon", 1.0, *NUMBERS, "--json").stdout)["noise_multiplier"]
    assert noise == pytest.approx(pf.privacy.calibrate(1.0, 1e-5, 100, batch=pf.Uniform(10), rows=1000))
    told = json.loads(invoke("privacy", "spent", "--noise", noise, *NUMBERS, "--json").stdout)
    assert 0.98 < told["epsilon"] <= 1.0
    assert (told["neighbors"], told["method"], told["status"]) == ("replace_one", "pld", "completed")


@pytest.mark.parametrize("sampling", ["poisson", "with-replacement", "shuffled"])
def test_every_sampler_has_a_name(sampling):
    result = invoke("privacy", "spent", "--noise", 4, *NUMBERS[:4], "--sampling", sampling, *NUMBERS[6:])
    assert result.exit_code == 0
    assert result.stdout.startswith("epsilon = ") and f"{sampling} sampling" in result.stdout


def test_a_file_is_told_what_it_promises(tmp_path):
    result = invoke("privacy", "spent", write(tmp_path))
    assert result.exit_code == 0
    assert "-DP for each example (replace one)" in result.stdout and "noise: jax.random" in result.stdout
    told = json.loads(invoke("privacy", "spent", write(tmp_path, privacy=""), "--delta", 1e-4, "--json").stdout)
    assert told["delta"] == 1e-4 and told["epsilon"] > 0


@pytest.mark.slow
def test_a_run_from_a_file_keeps_the_books(tmp_path):
    everyone = 'batch = { name = "Uniform", n = 1000 }'  # has a closed form, which is quick
    result = invoke("run", write(tmp_path, PRIVACY + "epsilon = 8.0\n", more=everyone), "--json")
    told = json.loads(result.stdout)
    assert told["privacy"]["epsilon"] <= 8.0 and told["rounds"] < 40
    assert f"after {told['rounds']} of 40 rounds" in told["privacy"]["stopped"]
    assert "epsilon spent" in invoke("run", write(tmp_path, more=everyone)).stdout


def test_what_is_not_certified_says_why(tmp_path):
    file = write(tmp_path, recipe="dicesgd", more="memory_clip = 1.0")
    assert "no guarantee (epsilon is infinite): Dice's memory" in invoke("run", file).stdout.replace("\n", " ")
    refused = invoke("run", write(tmp_path, PRIVACY + "epsilon = 1.0\n", "dicesgd", "memory_clip = 1.0"))
    assert refused.exit_code == 2 and "no budget can be kept" in refused.stderr


@pytest.mark.slow
def test_an_audit_ends_with_a_code_that_says_whether_the_claim_is_kept(tmp_path):
    file = write(tmp_path, more='batch = { name = "Fixed", n = 1 }')
    file.write_text(file.read_text().replace("noise_multiplier = 4.0", "noise_multiplier = 0.3"))
    small = ("--rounds", 20, "--repeats", 400, "--canaries", 0, "--rows", 4, "--json")
    kept = invoke("privacy", "attack", file, *small)
    assert kept.exit_code == 0
    findings = json.loads(kept.stdout)["findings"]
    assert len(findings) >= 3 and not any(finding["alarm"] for finding in findings)
    assert all(0 <= finding["lower"] <= finding["claimed"] for finding in findings)
    broken = invoke("privacy", "attack", file, *small, "--claimed", 0.1)
    told = json.loads(broken.stdout)
    assert (broken.exit_code, told["status"], told["findings"][0]["alarm"]) == (1, "alarm", True)
    assert "the guarantee does not hold" in broken.stderr


def test_an_audit_needs_a_delta(tmp_path):
    result = invoke("privacy", "attack", write(tmp_path, privacy=""))
    assert result.exit_code == 2 and "pass --delta" in result.stderr


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (("spent", "--noise", 1), "missing: --steps, --delta"),
        (("spent", "--noise", 1, "--steps", 10, "--delta", 2), "delta must lie"),
        (("spent", "--noise", 1, "--steps", 10, "--delta", 1e-5, "--sampling", "uniform"), "needs --batch and --rows"),
        (("calibrate", "--epsilon", -1, *NUMBERS), "epsilon must be positive"),
        (("calibrate", "--epsilon", 1, *NUMBERS[:6], "--batch", 2000, "--rows", 1000), "--batch must lie between"),
        (("spent", "nowhere.toml"), "there is no such file"),
    ],
)
def test_slips_end_with_one_message(words, says):
    result = invoke("privacy", *words)
    assert result.exit_code == 2 and says in result.stderr


@pytest.mark.parametrize(
    ("table", "says"),
    [
        ("[privacy]\n", "needs delta"),
        ("[privacy]\ndelta = 1e-5\nepsilom = 1.0\n", "Did you mean 'epsilon'?"),
        ("[privacy]\ndelta = 2.0\n", "delta must lie between 0 and 1"),
        ('[privacy]\ndelta = 1e-5\nnoise = "slow"\n', "noise must be"),
        ("[run]\nprivacy = 1\n", ""),
    ],
)
def test_bad_tables_are_refused(tmp_path, table, says):
    result = invoke("run", write(tmp_path, table))
    assert result.exit_code == 2 and says in result.stderr.replace("\n", " ")
