"""The worked examples run as they stand, and what they print at the end is so."""

import runpy
from pathlib import Path

import matplotlib
import numpy as np
import pytest

EXAMPLES = Path(__file__).parents[1] / "examples"


@pytest.fixture
def run_example(tmp_path, monkeypatch, capsys):
    """Runs one of them in an empty folder; returns its names and what it printed."""
    pytest.importorskip("sklearn")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("MPLBACKEND", "Agg")
    matplotlib.use("Agg")

    def run(name):
        names = runpy.run_path(str(EXAMPLES / f"{name}.py"), run_name="__main__")
        from matplotlib import pyplot

        pyplot.close("all")
        assert [path.name for path in tmp_path.iterdir()] == [f"{name}.png"]
        assert (tmp_path / f"{name}.png").stat().st_size > 20_000
        return names, capsys.readouterr().out

    return run


@pytest.mark.slow
def test_your_own_data(run_example):
    names, told = run_example("bring_your_own_data")
    assert names["count"].max() == names["y"].shape[1] > 2 * names["count"].min(), "no padding to show"
    # 750 people kept apart: the share that is judged rightly has a standard error of 1.5 points.
    assert abs(names["share_right"](names["federated"]) - names["share_right"](names["together"])) < 0.03
    assert names["told"] - names["kept"] > 5, "the answer costs nothing"
    assert names["won"] - names["kept"] > 5, "retraining wins nothing back"
    assert abs(names["won"] - 100 * names["settled"]) < 3
    assert f"accuracy of {names['told']:.1f}% before they react, and {names['kept']:.1f}% once" in told


@pytest.mark.slow
def test_your_own_population(run_example):
    names, told = run_example("bring_your_own_population")
    assert {"jit_equals_eager", "sweeps", "in_a_round"} <= set(names["checked"])
    assert names["certificate"].settles and names["certificate"].contraction < 1
    np.testing.assert_array_less(names["history"]["distance_to_stable"][:, -1], 0.2)
    right = names["right"]
    assert right["trained once, deployed"] + 0.05 < right["trained as people react"] < right["trained once, on paper"]
    assert "Retraining converges: each step leaves" in told


@pytest.mark.slow
@pytest.mark.usefixtures("optimized_programs")
def test_your_own_network(run_example):
    names, told = run_example("bring_your_own_network")
    # 360 images: 90% has a standard error of 1.6 points, guessing reads 10%.
    assert all(share[-1] > 0.9 for share in names["shares"].values())
    assert "gradients in bfloat16" in names["history"].meta["compute"]
    assert "5 clients per round" in names["history"].meta["memory"]
    assert "the model is kept in float32" in told
