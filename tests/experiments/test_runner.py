"""Experiments: files that are whole, runs that leave data, figure and manifest, and a ledger made from them."""

import builtins
import dis
import importlib
import inspect
import json

import numpy as np
import pytest
import xarray as xr
from matplotlib.figure import Figure

from performative.cli.output import Exit
from performative.papers import catalog, figure, ledger, runner, store
from performative.papers.claims import UNTESTED
from performative.papers.outcome import Outcome, bars, curves, lay_out, mean

TOML = """
title = "A walk"
place = "Figure 9"
code = "walk.go"
[constants]
steps = 40
seed = 3
[quick]
steps = 10
[[panels]]
data = "path"
x = "step"
marks = ["end"]
[[panels]]
data = "ends"
kind = "bars"
[[panels]]
data = "path"
kind = "points"
log = "x"
[[claims]]
id = "goes-up"
claim = "It goes up."
how = "The last point."
printed = { number = "end", above = 0.0 }
expected = "holds"
[[claims]]
id = "far"
claim = "It goes far."
how = "The last point."
printed = { number = "end", above = 1000.0 }
reason = "it takes small steps"
expected = "fails"
quick = false
"""
calls = []


def go(steps, seed):
    calls.append(steps)
    paths = np.cumsum(np.random.default_rng(seed).normal(1.0, 1.0, (4, steps)), axis=1)
    lines = {"one": (np.arange(1, steps + 1), paths), "shorter": (np.arange(1, steps, 2), paths[:2, 1::2])}
    return Outcome(
        {"end": mean(paths[:, -1]), "lost": np.inf}, {"path": lay_out(lines), "ends": bars({"one": paths[:, -1]})}
    )


@pytest.fixture
def walk(tmp_path, monkeypatch):
    """One experiment, named ours/walk, and nothing else."""
    (tmp_path / "ours").mkdir()
    (tmp_path / "ours" / "walk.toml").write_text(TOML)
    monkeypatch.setattr(catalog, "FOLDER", tmp_path)
    monkeypatch.setattr(catalog.Experiment, "function", lambda self: go)
    monkeypatch.setattr(ledger, "SHIPPED", tmp_path / "ledger.json")
    calls.clear()
    return tmp_path / "out"


def test_a_run_leaves_data_figure_and_manifest(walk):
    manifest = runner.reproduce("ours/walk", out=walk)
    folder = walk / "ours" / "walk"
    assert sorted(path.name for path in folder.iterdir()) == [
        "data.nc",
        "figure.pdf",
        "figure.png",
        "figure.svg",
        "manifest.json",
    ]
    stored = json.loads((folder / "manifest.json").read_text())
    assert stored == {name: value for name, value in manifest.items() if name != "new"}
    assert stored["constants"] == {"steps": 40, "seed": 3} and stored["seed"] == 3
    assert {"performative", "jax", "python"} <= set(stored["versions"]) and stored["device"]
    assert [row["verdict"] for row in stored["claims"]] == ["holds", "fails"]
    assert stored["claims"][0]["place"] == "Figure 9"
    with xr.open_datatree(folder / "data.nc", engine="h5netcdf") as tree:
        assert tree["path"]["value"].dims == ("series", "repeat", "x")
        assert list(tree["path"]["series"].values) == ["one", "shorter"]
        assert np.isnan(tree["path"]["value"].values[1, 2:]).all()


def test_what_was_done_is_not_done_again(walk, monkeypatch):
    monkeypatch.setattr(figure, "draw", lambda *args: Figure(figsize=(1, 1)))
    assert runner.reproduce("ours/walk", quick=True, out=walk)["new"]
    assert not runner.reproduce("ours/walk", quick=True, out=walk)["new"]
    assert runner.reproduce("ours/walk", out=walk)["new"]
    assert not runner.reproduce("ours/walk", quick=True, out=walk)["new"], "a full run stands"
    assert runner.reproduce("ours/walk", quick=True, out=walk, fresh=True)["new"]
    assert calls == [10, 40, 10]
    # Other constants: done anew.
    (catalog.FOLDER / "ours" / "walk.toml").write_text(TOML.replace("seed = 3", "seed = 4"))
    assert runner.reproduce("ours/walk", quick=True, out=walk)["new"]


def test_claims_are_judged_anew_by_the_numbers_of_the_run(walk):
    before = runner.reproduce("ours/walk", out=walk)
    file = catalog.FOLDER / "ours" / "walk.toml"
    file.write_text(TOML.replace("It goes far.", "It goes a little way.").replace("1000.0", "1.0"))
    after = runner.reproduce("ours/walk", out=walk)
    assert not after["new"] and calls == [40]
    assert [row["verdict"] for row in after["claims"]] == ["holds", "holds"]
    assert after["claims"][1]["claim"] == "It goes a little way."
    assert store.read_manifest(walk / "ours" / "walk")["numbers"] == before["numbers"]


@pytest.mark.slow
def test_a_figure_is_drawn_again_from_the_data_when_it_would_look_different(walk):
    folder, file = walk / "ours" / "walk", catalog.FOLDER / "ours" / "walk.toml"
    runner.reproduce("ours/walk", out=walk)
    first = (folder / "figure.svg").read_bytes()
    assert not runner.reproduce("ours/walk", out=walk)["new"]
    assert (folder / "figure.svg").read_bytes() == first
    (folder / "figure.svg").write_bytes(b"as it was")
    runner.reproduce("ours/walk", out=walk)
    assert (folder / "figure.svg").read_bytes() == b"as it was", "the same look: nothing is drawn"
    file.write_text(TOML.replace('title = "A walk"', 'title = "A stroll"'))
    assert not runner.reproduce("ours/walk", out=walk)["new"]
    assert calls == [40] and (folder / "figure.svg").read_bytes() not in (first, b"as it was")


@pytest.mark.parametrize(
    "text", ["{broken", None, *(pytest.param(t, marks=pytest.mark.slow) for t in ("", "[]", "{}"))]
)
def test_what_is_damaged_is_done_again(walk, text):
    runner.reproduce("ours/walk", out=walk)
    manifest = walk / "ours" / "walk" / "manifest.json"
    if text is None:
        (manifest.parent / "data.nc").unlink()
    else:
        manifest.write_text(text)
        assert {row["verdict"] for row in ledger.read(walk)} == {UNTESTED}
    assert runner.reproduce("ours/walk", out=walk)["new"] and calls == [40, 40]


@pytest.mark.slow
def test_a_lost_figure_is_drawn_again(walk):
    runner.reproduce("ours/walk", out=walk)
    picture = walk / "ours" / "walk" / "figure.png"
    picture.unlink()
    assert not runner.reproduce("ours/walk", out=walk)["new"] and picture.is_file() and calls == [40]


@pytest.mark.slow
def test_a_full_row_of_the_release_goes_before_a_quick_one(walk):
    runner.reproduce("ours/walk", out=walk)
    ledger.write(ledger.read(walk), ledger.SHIPPED)
    runner.reproduce("ours/walk", quick=True, out=walk, fresh=True)
    assert not any(row["quick"] for row in ledger.read(walk))
    ledger.SHIPPED.unlink()
    assert all(row["quick"] for row in ledger.read(walk))


def test_bars_take_the_color_of_the_line_of_their_name():
    from matplotlib.colors import to_hex

    from performative.plotting import COLORS

    panels = (catalog.Panel(data="lines"), catalog.Panel(data="bars", kind="bars"))
    data = {
        "lines": lay_out({"a": ([0, 1], [[0.0, 1.0]]), "b": ([0, 1], [[0.0, 2.0]])}),
        "bars": bars({"b": [1.0], "c": [2.0]}),
    }
    drawn = figure.draw(panels, Outcome({}, data), "A title that is far too long for one line of a figure", "Figure 1")
    assert [to_hex(bar.get_facecolor()).upper() for bar in drawn.axes[1].patches] == [COLORS[1], "#777777"]
    alone = figure.draw(panels[1:], Outcome({}, data), "Bars", "Figure 1")
    assert [to_hex(bar.get_facecolor()).upper() for bar in alone.axes[0].patches] == [COLORS[0]] * 2
    assert alone.get_suptitle() == "Bars  (Figure 1)"


def test_a_run_that_breaks_off_leaves_no_result(walk, monkeypatch):
    runner.reproduce("ours/walk", out=walk)
    monkeypatch.setattr(figure, "draw", lambda *args: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        runner.reproduce("ours/walk", out=walk, fresh=True)
    assert store.read_manifest(walk / "ours" / "walk") is None


def test_the_ledger_is_made_from_runs(walk):
    assert [row["verdict"] for row in ledger.read(walk)] == [UNTESTED, UNTESTED]
    runner.reproduce("ours/walk", quick=True, out=walk)
    rows = ledger.read(walk)
    assert [row["key"] for row in rows] == ["ours/walk#goes-up", "ours/walk#far"]
    assert ledger.count(rows) == {"holds": 1, "not tested": 1}
    # What is shipped serves where nothing was run, unless the claim has changed since.
    ledger.write(rows, ledger.SHIPPED)
    assert ledger.read()[0]["verdict"] == "holds"
    (catalog.FOLDER / "ours" / "walk.toml").write_text(TOML.replace("It goes up.", "It goes down."))
    assert ledger.read()[0]["verdict"] == UNTESTED


def test_commands(walk, capsys):
    from typer.testing import CliRunner

    from performative.cli import app

    call = CliRunner().invoke
    out = ["--out", str(walk)]
    done = call(app, ["reproduce", "ours/walk", *out, "--json"])
    assert done.exit_code == 0 and json.loads(done.stdout)["experiments"][0]["claims"][0]["verdict"] == "holds"
    assert "done before" in call(app, ["reproduce", "--all", *out]).stdout
    table = call(app, ["reproduce", "--ledger", *out]).stdout
    assert "2 measurements: 1 holds, 1 fails" in table
    assert "ours/walk" in call(app, ["reproduce", "--list"]).stdout
    for arguments, message in (
        (["ours/wolk"], "there is no experiment 'ours/wolk'. Did you mean 'ours/walk'?"),
        ([], "pass names of experiments, --paper NAME or --all"),
        (["--paper", "profle"], "there is no paper 'profle'. Did you mean 'profl'?"),
        (["--all", "ours/walk"], "pass names of experiments, --paper NAME or --all"),
        (["ours/walk", "--save", "x.json"], "--save FILE requires --ledger."),
        (["ours/walk", "--ledger"], "--ledger prints all, or those of --paper NAME; it takes nothing else."),
    ):
        failed = call(app, ["reproduce", *arguments, *out])
        assert failed.exit_code == Exit.BAD_INPUT and message in failed.stderr.replace("\n", " ")


def test_one_that_fails_does_not_stop_the_others(walk, monkeypatch):
    from typer.testing import CliRunner

    from performative.cli import app

    (catalog.FOLDER / "ours" / "again.toml").write_text(TOML)
    monkeypatch.setattr(
        catalog.Experiment, "function", lambda self: go if self.name == "ours/walk" else (lambda **k: 1 / 0)
    )
    monkeypatch.setattr(runner, "_mark", lambda experiment, quick: f"{experiment.name}{quick}")
    done = CliRunner().invoke(app, ["reproduce", "--all", "--out", str(walk), "--jobs", "1", "--json"])
    assert done.exit_code == Exit.FAILED
    told = json.loads(done.stdout)
    assert told["failed"] == {"ours/again": "ZeroDivisionError: division by zero"}
    assert [one["name"] for one in told["experiments"]] == ["ours/walk"]


def test_bad_files_are_refused_with_the_place(tmp_path):
    file = tmp_path / "bad.toml"
    for text, message in (
        (TOML.replace('title = "A walk"', ""), "bad.toml: title: Field required"),
        (TOML.replace("steps = 10", "stepps = 10"), r"\[quick\] sets \['stepps'\]"),
        (TOML.replace('id = "far"', 'id = "goes-up"'), r"claims share the id \['goes-up'\]"),
        (TOML.replace("above = 0.0", "abov = 0.0"), r"claims.0.printed"),
    ):
        file.write_text(text)
        with pytest.raises(ValueError, match=message):
            catalog.read(file, "ours/bad")


@pytest.mark.slow
def test_curves_keep_few_points_and_their_places():
    import performative as pf

    problem = pf.Problem(pf.losses.squared, pf.populations.Gaussian([0.0, 1.0], 0.5, 1.0))
    quiet = {"rounds": 1000, "theta": 0.0, "repeats": 2, "record": pf.Record(consensus=False)}
    histories = {
        "a": pf.run(problem, pf.p_fedavg(0.1, local_steps=2), **quiet),
        "b": pf.run(problem, pf.p_fedavg(0.1, local_steps=3), **quiet),
    }
    array = curves(histories, "distance_to_stable", "step")
    assert array.dims == ("series", "repeat", "x") and array.sizes["x"] <= 600
    last = array.sel(series="a", x=2000.0).values
    np.testing.assert_allclose(last, np.asarray(histories["a"]["distance_to_stable"])[:, -1])
    assert float(array["x"].max()) == 3000.0


@pytest.mark.parametrize("name", catalog.names())
def test_every_experiment_hangs_together(name):
    """Constants are the function's arguments; claims and panels are of one piece. What they measure is not run here."""
    experiment = catalog.find(name)
    function = experiment.function()
    inspect.signature(function).bind(**experiment.settings(False))
    inspect.signature(function).bind(**experiment.settings(True))
    assert experiment.constants.keys() >= {"seed"} or "seed" not in inspect.signature(function).parameters


@pytest.mark.parametrize("name", sorted({catalog.find(name).function().__module__ for name in catalog.names()}))
def test_every_name_that_an_experiment_uses_is_there(name):
    """Figures are not run here, so a name that nobody imported would be met by whoever runs them first."""
    module = importlib.import_module(name)
    waiting, used = [compile(inspect.getsource(module), module.__file__, "exec")], set()
    while waiting:
        code = waiting.pop()
        used |= {step.argval for step in dis.get_instructions(code) if step.opname == "LOAD_GLOBAL"}
        waiting += [one for one in code.co_consts if inspect.iscode(one)]
    assert not used - vars(module).keys() - vars(builtins).keys()


def test_there_are_enough_claims():
    """At least sixty claims of the papers, and those of our own."""
    of_papers = [
        claim for name in catalog.names() if not name.startswith("ours/") for claim in catalog.find(name).claims
    ]
    assert len(of_papers) >= 60


def test_the_shipped_ledger_is_what_the_files_expect():
    """Rows of the release: none missing, none of a claim that has changed, and verdicts as expected."""
    for row in ledger.read():
        name, identity = row["key"].split("#")
        claim = next(one for one in catalog.find(name).claims if one.id == identity)
        assert row["verdict"] in (claim.expected, UNTESTED), row["key"]


@pytest.mark.slow
def test_side_by_side(tmp_path):
    """Two processes, one name that does not exist: the other is done all the same."""
    names = [name for name in catalog.names("profl") if name.endswith(("appendix_d22", "sample_size"))]
    done = dict(runner.reproduce_all([*names, "profl/no_such"], True, tmp_path, jobs=2))
    assert done["profl/no_such"].startswith("ValueError: there is no experiment")
    assert all(done[name]["status"] == "completed" for name in names) and len(names) == 2
    with pytest.raises(ValueError, match="jobs must be a whole number >= 1; got 0"):
        next(runner.reproduce_all(names, jobs=0))


def test_results_depend_on_code_and_not_on_comments():
    from performative.papers.dependence import library, meaning

    plain = 'def f(x):\n    """Half."""\n    return x / 2\n'
    assert meaning(plain) == meaning('"""A module."""\n\ndef f(x):  # so it is\n    return (x / 2)\n')
    assert meaning(plain) != meaning(plain.replace("2", "3"))
    assert library() == library() and len(library()) == 16
