"""The README's Python runs as it stands, its TOML builds, and it names only what exists."""

import re
from pathlib import Path

import pytest

import performative as pf
from performative.config import load_experiment

README = (Path(__file__).parents[1] / "README.md").read_text(encoding="utf-8")


def _blocks(language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```$", README, flags=re.MULTILINE | re.DOTALL)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:.*run-diverged")  # the text says so
def test_python_blocks_run_in_order(tmp_path, monkeypatch, capsys):
    pytest.importorskip("sklearn")
    monkeypatch.chdir(tmp_path)
    names: dict = {}
    for number, block in enumerate(_blocks("python")):
        exec(compile(block, f"README block {number}", "exec"), names)
    assert pf.History.load(tmp_path / "history.nc").theta.shape == (200, 101)
    assert (tmp_path / "distance.png").stat().st_size > 10_000
    assert "p_fedavg" in capsys.readouterr().out


def test_toml_block_builds(tmp_path):
    (block,) = _blocks("toml")
    pf.cases.credit_table().to_csv(tmp_path / "people.csv", index=False)
    (tmp_path / "credit.toml").write_text(block)
    experiment = load_experiment(tmp_path / "credit.toml")
    assert experiment.problem.clients == 10
    assert experiment.algorithm.participation == pf.SchemeTwo(5)


def test_slot_table_names_what_exists():
    modules = (
        pf.populations,
        pf.estimators,
        pf.batches,
        pf.participation,
        pf.channels,
        pf.aggregators,
        pf.schedules,
        pf,
    )
    rows = re.findall(r"^\| (\w+) \|.*\| (.*) \|$", README, flags=re.MULTILINE)
    named = {name for slot, cell in rows if slot != "slot" for name in re.findall(r"`(\w+)[`(]", cell)}
    assert len(named) > 15
    assert not [name for name in named if not any(hasattr(module, name) for module in modules)]
