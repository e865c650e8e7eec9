"""Pictures show what was recorded."""

import ast
import inspect
from pathlib import Path

import numpy as np
import pytest
from matplotlib.figure import Figure

import performative as pf
from performative.history import History

RNG = np.random.default_rng(0)


def made(records=None, risks=None, repeats=6):
    """A history made by hand: plotting needs no run."""
    records = {name: np.asarray(values) for name, values in (records or {}).items()}
    length = next(iter(records.values())).shape[1] if records else 5
    return History(
        theta=np.zeros((repeats, length)),
        rounds=10 * np.arange(length),
        records=records,
        risk_rounds=np.array([20, 40]),
        risks=risks or {},
        weights=np.ones(1),
        participation=None,
        stopped_at=np.full(repeats, -1),
        meta={"algorithm": "p_fedavg"},
    )


DISTANCE = np.exp(RNG.normal(size=(6, 5)))


def test_line_is_the_mean_and_band_the_middle_80_percent():
    ax = made({"distance_to_stable": DISTANCE}).plot()
    (line,), (band,) = ax.get_lines(), ax.collections
    np.testing.assert_array_equal(line.get_xdata(), [0, 10, 20, 30, 40])
    np.testing.assert_allclose(line.get_ydata(), DISTANCE.mean(axis=0))
    corners = band.get_paths()[0].vertices
    at_20 = corners[corners[:, 0] == 20, 1]
    np.testing.assert_allclose([at_20.min(), at_20.max()], np.quantile(DISTANCE[:, 2], [0.1, 0.9]))
    assert ax.get_yscale() == "log"
    assert (ax.get_xlabel(), ax.get_ylabel()) == ("round", "distance to the stable point")
    assert line.get_label() == "p_fedavg"


def test_first_choice_goes_down_the_list():
    risk = np.full((6, 2), 0.5)
    consensus = np.concatenate([np.full((6, 1), np.nan), DISTANCE[:, 1:]], axis=1)
    assert made({"consensus": consensus}, {"performative_risk": risk}).plot().get_ylabel() == "performative risk"
    ax = made({"consensus": consensus}).plot()
    assert ax.get_ylabel() == "consensus error"
    drawn = np.isfinite(ax.get_lines()[0].get_ydata())
    assert ax.get_lines()[0].get_xdata()[drawn][0] == 10  # nothing was sent in round 0
    with pytest.raises(ValueError, match="none of distance_to_stable"):
        made({"time": DISTANCE}).plot()


def test_risks_have_rounds_of_their_own_and_stay_linear():
    ax = made({"time": DISTANCE}, {"performative_risk": np.full((6, 2), 0.5)}).plot("performative_risk")
    np.testing.assert_array_equal(ax.get_lines()[0].get_xdata(), [20, 40])
    assert ax.get_yscale() == "linear"
    assert made({"time": np.cumsum(100 * DISTANCE, axis=1)}).plot("time").get_yscale() == "linear"


def test_several_histories_share_axes_and_get_a_legend():
    first = made({"distance_to_stable": DISTANCE})
    ax = first.plot(label="one")
    assert first.plot(ax=ax, label="two") is ax
    assert [text.get_text() for text in ax.get_legend().get_texts()] == ["one", "two"]
    assert ax.figure.canvas.manager is None  # no window, nothing registered anywhere


def test_values_that_left_the_numbers_are_left_out():
    broken = DISTANCE.copy()
    broken[0, 3:], broken[:, 4] = np.inf, np.nan
    line = made({"distance_to_stable": broken}).plot().get_lines()[0]
    np.testing.assert_allclose(line.get_ydata(), [*DISTANCE.mean(axis=0)[:3], DISTANCE[1:, 3].mean()])


def test_unknown_name_lists_what_is_there():
    with pytest.raises(ValueError, match=r"Did you mean 'distance_to_stable'.*Recorded: distance_to_stable, time"):
        made({"distance_to_stable": DISTANCE, "time": DISTANCE}).plot("distance_to_stabel")
    with pytest.raises(ValueError, match=r"'foo' was not recorded\. Choose one of: distance_to_stable, time\.$"):
        made({"distance_to_stable": DISTANCE, "time": DISTANCE}).plot("foo")


def test_everything_that_draws_takes_axes():
    """Methods `plot` wherever they stand, and the functions of `pf.plotting`."""
    drawers = {name: inspect.getsource(getattr(pf.plotting, name)) for name in pf.plotting.__all__}
    for path in Path(pf.__file__).parent.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.FunctionDef) and node.name == "plot":
                drawers[f"{path.parent.name}/{path.name}"] = ast.unparse(node)
    assert len(drawers) >= 7
    assert not [name for name, source in drawers.items() if "ax: Any=None" not in source.replace(" = ", "=")]


def test_axes_that_are_handed_in_are_returned():
    people = pf.populations.Gaussian([0.0, 1.0], 0.2, 1.0)
    problem, method = pf.Problem(pf.losses.squared, people), pf.p_fedavg(0.1)
    swept = pf.sweep(problem, method, over={"rate": [0.1, 0.2]}, rounds=3, theta=0.0, repeats=2)
    chart = pf.stability(problem, method, {"rate": [0.5, 1.0, 3.0]})
    labels = np.array([0, 1, 0, 1])
    drawn = {
        "history": lambda ax: made({"distance_to_stable": DISTANCE}).plot(ax=ax),
        "sweep": lambda ax: swept.plot(ax=ax),
        "stability": lambda ax: chart.plot(ax=ax),
        "partition": lambda ax: pf.plotting.plot_partition(labels, [[0, 1], [2, 3]], ax=ax),
    }
    for name, draw in drawn.items():
        ax = Figure().subplots()
        assert draw(ax) is ax, name
