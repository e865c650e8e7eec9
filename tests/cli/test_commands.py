"""What commands print, write and return."""

import json
import re
import subprocess
import sys
from pathlib import Path

import jax
import numpy as np
import pytest
import typer
from typer.testing import CliRunner

import performative as pf
import performative.cli.benchmarks
from performative._base.describe import describe
from performative.cli import app
from performative.cli.app import COMMANDS
from performative.cli.summary import mean_interval
from performative.config import Experiment, load_experiment

EXAMPLES = sorted((Path(__file__).parents[2] / "examples").glob("*.toml"))
FILE = """
title = "a mean that follows the model"
[problem]
loss = "squared"
population = { name = "Gaussian", mean = [0.0, 1.0, 2.0], sensitivity = 0.5, scale = 1.0 }
[algorithm]
recipe = "p_fedavg"
rate = 0.1
[run]
rounds = 6
theta = 0.0
repeats = 3
"""


@pytest.fixture
def file(tmp_path):
    path = tmp_path / "case.toml"
    path.write_text(FILE)
    return path


def invoke(*words):
    return CliRunner().invoke(app, [str(word) for word in words])


def test_groups_of_unequal_size_can_stand_in_a_file(tmp_path):
    path = tmp_path / "cycle.toml"
    path.write_text(
        FILE.replace("rate = 0.1", 'rate = 0.1\nparticipation = { name = "Cyclic", groups = [[0], [1, 2]] }')
    )
    assert load_experiment(path).algorithm.participation.groups.tolist() == [0, 1, 1]


@pytest.mark.slow
def test_plan_prints_its_choice_and_names_slips(tmp_path):
    path = tmp_path / "plan.toml"
    costs = "cost = { communication = 20, latency = { name = 'Exponential', mean = 2.0 } }"
    path.write_text(FILE + f"[plan]\naccuracy = 0.3\nlocal_steps = [1, 4]\nbatches = [8]\ntheta = 0.0\n{costs}\n")
    told = json.loads(invoke("plan", path, "--json").stdout)
    assert (
        told["status"] == "completed" and told["choice"]["local_steps"] in (1, 4) and told["method"] == "exact moments"
    )
    assert invoke("run", path).exit_code == 0  # [plan] does not disturb a run
    for wrong, message in (("acuracy = 0.3", "Did you mean 'accuracy'"), ("accuracy = -1.0", "positive number")):
        path.write_text(FILE + f"[plan]\n{wrong}\n")
        result = invoke("plan", path)
        assert result.exit_code == 2 and message in result.stderr


def test_run_does_what_python_does(file, tmp_path):
    result = invoke("run", file, "--json", "--seed", 5, "--out", tmp_path / "h.nc")
    assert result.exit_code == 0, result.stderr
    told = json.loads(result.stdout)
    problem = pf.Problem(pf.losses.squared, pf.populations.Gaussian([0.0, 1.0, 2.0], 0.5, 1.0))
    history = pf.run(problem, pf.p_fedavg(rate=0.1), rounds=6, theta=0.0, seed=5, repeats=3)
    np.testing.assert_array_equal(pf.History.load(tmp_path / "h.nc").theta, history.theta)
    final = history["distance_to_stable"][:, -1].astype(np.float64)
    assert told["final"]["distance_to_stable"]["mean"] == pytest.approx(final.mean(), rel=1e-12)
    assert (told["status"], told["rounds"], told["repeats"]) == ("completed", 6, 3)
    assert (told["title"], told["out"]) == ("a mean that follows the model", str(tmp_path / "h.nc"))
    assert "distance to the stable point" in result.stderr  # the table is for people

    people = invoke("run", file)
    assert people.exit_code == 0
    assert "distance to the stable point" in people.stdout and "executor dense" in people.stdout


HOSTILE = "[/b] [red]\x1b]0;owned\x07\x1b[2J\u202e"


def test_foreign_text_is_plain_and_the_result_is_saved_before_it_is_shown(file, tmp_path):
    """Brackets are no markup, and a terminal is handed no control characters."""
    title = json.dumps(HOSTILE)
    file.write_text(FILE.replace('"a mean that follows the model"', title))
    out = tmp_path / "out.nc"
    result = CliRunner().invoke(app, ["run", str(file), "--out", str(out)])
    assert result.exit_code == 0, result.output
    assert "[/b] [red]␛]0;owned␛[2J\ufffd" in result.output
    assert not set("\x1b\x07\u202e") & set(result.output)
    assert pf.History.load(out).status == "completed"


def test_a_result_is_on_the_disk_before_the_terminal_breaks(file, tmp_path, monkeypatch):
    def breaks(*_):
        raise RuntimeError("the terminal is gone")

    monkeypatch.setattr("performative.cli.summary.table", breaks)
    result = CliRunner().invoke(app, ["run", str(file), "--out", str(tmp_path / "out.nc")])
    assert result.exit_code == 1 and "the terminal is gone" in result.output
    assert pf.History.load(tmp_path / "out.nc").status == "completed"


FULL_DISK = """
import resource, signal, sys
import numpy as np
import performative as pf

history = pf.History(
    theta=np.random.default_rng(0).normal(size=(4, 5001)), rounds=np.arange(5001), records={}, risk_rounds=np.arange(0),
    risks={}, weights=np.ones(1), participation=None, stopped_at=-np.ones(4, int), meta={},
)
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
resource.setrlimit(resource.RLIMIT_FSIZE, (50_000, 50_000))
try:
    history.save(sys.argv[1])
except OSError as error:
    print("refused:", error)
"""


def test_a_full_disk_is_an_error_and_leaves_nothing(tmp_path):
    """No crash inside HDF5, no half-written file, and an older result stays."""
    (tmp_path / "out.nc").write_bytes(b"an older result")
    done = subprocess.run([sys.executable, "-c", FULL_DISK, tmp_path / "out.nc"], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("refused:")
    assert [p.name for p in tmp_path.iterdir()] == ["out.nc"]
    assert (tmp_path / "out.nc").read_bytes() == b"an older result"


def test_divergence_is_code_1_and_the_history_is_kept(file, tmp_path):
    file.write_text(FILE.replace("rate = 0.1", "rate = 1e9"))
    result = invoke("run", file, "--json", "--out", tmp_path / "h.nc")
    told = json.loads(result.stdout)
    assert result.exit_code == 1
    assert (told["status"], told["diverged"]) == ("diverged", 3)
    assert "3 of 3 repeats diverged" in told["error"]["message"]
    assert pf.History.load(tmp_path / "h.nc").status == "diverged"


def test_resume_goes_on_and_needs_a_folder(file, tmp_path):
    folder = tmp_path / "checkpoint"
    first = json.loads(invoke("run", file, "--json", "--checkpoint", folder).stdout)
    again = json.loads(invoke("run", file, "--json", "--checkpoint", folder, "--resume").stdout)
    assert again["final"] == first["final"]
    assert "already contains a run" in invoke("run", file, "--checkpoint", folder).stderr
    lost = invoke("run", file, "--resume")
    assert lost.exit_code == 2 and "run.checkpoint" in lost.stderr


@pytest.mark.parametrize(
    ("out", "says"), [("h.csv", "ends in .nc"), ("nowhere/h.nc", "there is no folder"), (".", "ends in .nc")]
)
def test_bad_out_is_refused_before_the_run(file, tmp_path, out, says):
    result = invoke("run", file, "--out", tmp_path / out)
    assert result.exit_code == 2 and says in result.stderr and result.stdout == ""


def test_json_tells_errors_too(tmp_path):
    result = invoke("run", tmp_path / "nope.toml", "--json")
    told = json.loads(result.stdout)
    assert result.exit_code == 2
    assert told["error"]["file"] == str(tmp_path / "nope.toml")
    assert told["error"]["message"].endswith("there is no such file.")


def test_failures_and_interrupts_have_codes_and_no_traceback(file, monkeypatch):
    def fail(self, **more):
        raise RuntimeError("out of luck\nsecond line")

    monkeypatch.setattr(Experiment, "run", fail)
    result = invoke("run", file)
    assert result.exit_code == 1
    assert "RuntimeError: out of luck" in result.stderr and "Traceback" not in result.stderr
    assert isinstance(invoke("--debug", "run", file).exception, RuntimeError)

    def interrupt(self, **more):
        raise KeyboardInterrupt

    monkeypatch.setattr(Experiment, "run", interrupt)
    assert invoke("run", file).exit_code == 130


def test_an_interrupt_does_not_wait_for_the_compiled_loop_or_crash():
    """JAX's clean-up at exit would: it frees what the loop, which cannot be stopped, still uses."""
    program = """
import jax, jax.numpy as jnp
import performative.cli, performative_command

def command():
    forever = jax.jit(lambda x: jax.lax.while_loop(lambda x: x[0, 0] < 1, lambda x: 0 * (x @ x), x))
    forever(jnp.zeros((64, 64)))  # dispatched, not awaited
    raise KeyboardInterrupt

performative.cli.main = command
performative_command.main()
"""
    ended = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=120)
    assert (ended.returncode, ended.stderr) == (130, "error: interrupted.\n")


def test_warnings_are_one_line(file, monkeypatch):
    def warn(self, **more):
        import warnings

        warnings.warn("mind the step", RuntimeWarning, stacklevel=1)
        raise KeyboardInterrupt

    monkeypatch.setattr(Experiment, "run", warn)
    monkeypatch.setattr(sys, "warnoptions", [])
    assert invoke("run", file).stderr.splitlines() == ["warning: mind the step", "error: interrupted."]


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_examples_build(path):
    assert load_experiment(path).options["rounds"] > 0


def test_nested_parts_are_the_ones_python_makes():
    experiment = load_experiment(next(path for path in EXAMPLES if path.stem == "stragglers"))
    clean = pf.populations.Sluggish(pf.populations.Gaussian([0.0, 1.0, 2.0, 3.0], 0.5, 1.0), 0.5)
    stray = pf.populations.Gaussian(3.0, 0.0, 1.0)
    problem = pf.Problem(pf.losses.squared, pf.populations.Contaminated(clean, 0.1, stray), domain=pf.Box(-10, 10))
    waiting = pf.FirstK(2, pf.participation.Exponential([1.0, 1.0, 2.0, 4.0]))
    work = pf.LocalWork(waiting, pf.participation.UniformSteps(1, 4))
    algorithm = pf.p_fedavg(rate=0.05, deploy=pf.Every(5), absent="reacts", participation=work)
    assert describe(experiment.problem) == describe(problem)
    assert describe(experiment.algorithm) == describe(algorithm)
    assert jax.tree.structure(experiment.algorithm) == jax.tree.structure(algorithm)


def test_arrays_from_files(file, tmp_path):
    np.save(tmp_path / "means.npy", np.array([3.0, 4.0]))
    file.write_text(FILE.replace("[0.0, 1.0, 2.0]", '{ file = "means.npy" }'))
    assert load_experiment(file).problem.population.mean.tolist() == [3.0, 4.0]


def test_version_and_help():
    import performative

    assert invoke("--version").stdout == f"performative {performative.__version__}\n"
    assert json.loads(invoke("--version", "--json").stdout)["performative"] == performative.__version__
    assert "Exit codes" in invoke("--help").stdout
    assert invoke("run").exit_code == 2
    module = subprocess.run(
        [sys.executable, "-m", "performative", "--version"], capture_output=True, text=True, check=True
    )
    assert module.stdout == f"performative {performative.__version__}\n"


def leaves(group, *words):
    """Every command with the words that call it, whatever group it is in."""
    for name, command in group.commands.items():
        yield from leaves(command, *words, name) if hasattr(command, "commands") else [((*words, name), command)]


def test_every_command_says_what_it_does_and_speaks_json():
    found = dict(leaves(typer.main.get_command(app)))
    assert {words[0] for words in found} == set(COMMANDS)
    for words, command in found.items():
        assert command.help and "Exit codes" in command.epilog, words
        assert "--json" in {option for parameter in command.params for option in parameter.opts}, words
    assert "Exit codes" in invoke("run", "--help").stdout


def test_a_file_that_is_a_command_is_one_of_the_commands():
    """A command is a file and a word in COMMANDS; a file with something of its own name was meant to be one."""
    here = Path(pf.__file__).parent / "cli"
    meant = [
        path.stem for path in here.glob("*.py") if re.search(rf"^(def )?{path.stem}\b[ (]", path.read_text(), re.M)
    ]
    assert sorted(meant) == sorted({*COMMANDS, "app"})


def test_bench_prints_ratios_and_knows_its_names(monkeypatch):
    row = {"benchmark": "tiny", "ours_s": 1.1, "reference_s": 1.0, "ratio": 1.1, "note": "made up"}
    monkeypatch.setattr(performative.cli.benchmarks, "find_benchmarks", lambda: {"tiny": lambda: row})
    assert json.loads(invoke("bench", "--json").stdout)["benchmarks"] == [row]
    assert "made up" in invoke("bench", "tiny").stdout
    wrong = invoke("bench", "tyny")
    assert wrong.exit_code == 2 and "Did you mean 'tiny'?" in wrong.stderr


def test_interval_is_students():
    # t quantile 0.975 with 3 degrees of freedom: 3.182446 (any table); sd of 1, 2, 3, 4: sqrt(5/3).
    found = mean_interval([1.0, 2.0, 3.0, 4.0])
    half = 3.182446305 * np.sqrt(5 / 3) / 2
    assert (found["low"], found["high"]) == pytest.approx((2.5 - half, 2.5 + half), rel=1e-6)
    assert mean_interval([1.0]) == {"mean": 1.0, "low": None, "high": None}
