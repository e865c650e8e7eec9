"""What one does with a sweep: ties, axes, tables, files, pictures, and going on after an end."""

import dataclasses

import numpy as np
import pytest

import performative as pf
from performative.sweep import Sweep

PROBLEM = pf.Problem(pf.losses.squared, pf.populations.Gaussian(np.arange(4.0), 0.5, 1.0))
ALGORITHM = pf.p_fedavg(rate=0.1, local_steps=2)
GRID = {"rate": [0.05, 0.1, 0.2], "population.scale": [0.5, 1.0]}


@pytest.fixture(scope="module")
def found():
    return pf.sweep(PROBLEM, ALGORITHM, GRID, rounds=6, theta=0.0, repeats=3)


def test_the_best_says_who_is_tied_with_it(found):
    def by(values):
        return lambda history: np.asarray(values[history.meta["setting"]["rate"]])

    sweep = Sweep({"rate": GRID["rate"]}, found.settings[1::2], found.histories[1::2], 1)
    luck = np.asarray([5.0, -3.0, 9.0])  # shared by all, so it hides nothing
    noise = np.asarray([0.01, -0.02, 0.012])
    best = sweep.best(by({0.05: luck, 0.1: luck + 0.001 + noise, 0.2: luck + 2.0 + noise}))
    assert best.setting["rate"] == 0.05 and best.history is sweep.histories[0]
    assert [setting["rate"] for setting in best.tied] == [0.1]
    assert "tied with it: rate=0.1" in repr(best)


def test_a_table_has_one_row_for_each_setting_repeat_and_record(found):
    frame = found.to_frame()
    assert len(frame) == 6 * 3 * 7
    one = frame[(frame["rate"] == 0.2) & (frame["population.scale"] == 0.5) & (frame["repeat"] == 2)]
    np.testing.assert_array_equal(one["distance_to_stable"], found.histories[4]["distance_to_stable"][2])
    np.testing.assert_array_equal(one["round"], np.arange(7))


def test_axes_have_the_names_of_what_was_swept(found):
    data = found.to_xarray()
    assert dict(data["samples"].sizes) == {"rate": 3, "population.scale": 2, "repeat": 3, "round": 7}
    here = data.sel({"rate": 0.1, "population.scale": 1.0})
    np.testing.assert_array_equal(here["theta"], found.histories[3].theta)
    uneven = Sweep(found.over, found.settings[:3], found.histories[:3], 1)
    assert uneven.to_xarray().sizes["setting"] == 3


def test_it_is_the_same_after_saving(found, tmp_path):
    again = Sweep.load(found.save(tmp_path / "kept"))
    assert again.over == GRID and again.settings == found.settings and again.programs == found.programs
    for one, other in zip(again.histories, found.histories, strict=True):
        np.testing.assert_array_equal(one.theta, other.theta)
    assert again.best().setting == found.best().setting
    with pytest.raises(FileNotFoundError, match="there is no sweep"):
        Sweep.load(tmp_path)
    (tmp_path / "file").write_text("")
    with pytest.raises(ValueError, match="pass a folder"):
        found.save(tmp_path / "file")


def test_a_grid_in_another_order_gets_no_wrong_axes(found):
    order = [1, 0, 2, 3, 4, 5]
    mixed = Sweep(found.over, [found.settings[i] for i in order], [found.histories[i] for i in order], 1)
    assert not mixed.is_grid and mixed.to_xarray().sizes["setting"] == 6
    with pytest.raises(ValueError, match="grid of two names"):
        mixed.plot(kind="heatmap")


def test_runs_of_other_lengths_are_tied_too_and_odd_measures_are_not_known(found):
    short = dataclasses.replace(
        found.histories[0],
        rounds=found.histories[0].rounds[:4],
        records={name: values[:, :4] for name, values in found.histories[0].records.items()},
    )
    sweep = Sweep(found.over, found.settings, [short, *found.histories[1:]], 1)
    assert sweep.best().tied is not None
    assert found.best(lambda history: np.zeros(2)).tied is None


def test_a_file_that_is_no_sweep_is_named(tmp_path):
    (tmp_path / "sweep.json").write_text("{}")
    with pytest.raises(ValueError, match=r"sweep\.json is not what"):
        Sweep.load(tmp_path)


def test_pictures(found, tmp_path):
    lines = found.plot("distance_to_stable")
    assert len(lines.get_lines()) == 6 and lines.get_legend() is not None
    heat = found.plot(kind="heatmap")
    assert heat.get_ylabel() == "rate" and heat.get_xlabel() == "population.scale"
    np.testing.assert_allclose(heat.images[0].get_array(), found.scores().reshape(3, 2))
    heat.figure.savefig(tmp_path / "heat.png")
    with pytest.raises(ValueError, match="kind must be"):
        found.plot(kind="bars")
    with pytest.raises(ValueError, match="grid of two names"):
        Sweep({"rate": [0.05, 0.1]}, found.settings[:2], found.histories[:2], 1).plot(kind="heatmap")


def test_names_that_move_together():
    over = {("rate", "population.scale"): [(0.1, 1.0), (0.05, 2.0)], "population.sensitivity": [0.5, 0.6]}
    sweep = pf.sweep(PROBLEM, ALGORITHM, over, rounds=2, theta=0.0)
    assert [tuple(s.values()) for s in sweep.settings] == [
        (0.1, 1.0, 0.5), (0.1, 1.0, 0.6), (0.05, 2.0, 0.5), (0.05, 2.0, 0.6),
    ]  # fmt: skip
    assert sweep.best().tied is None and "unknown" in repr(sweep.best())  # one repeat shows nothing
    with pytest.raises(ValueError, match="rate is set twice"):
        pf.sweep(PROBLEM, ALGORITHM, {("rate", "population.scale"): [(0.1, 1.0)], "rate": [1.0]}, rounds=2, theta=0.0)
    with pytest.raises(ValueError, match="needs 2 values at a time"):
        pf.sweep(PROBLEM, ALGORITHM, {("rate", "local_steps"): [0.1]}, rounds=2, theta=0.0)


class Ends:
    """Gives up at the third look, as a machine does that is switched off."""

    every, looks = 2, 0

    def __call__(self, news):
        self.looks += 1
        if self.looks == 3:
            raise RuntimeError("the power is out")


def test_a_sweep_goes_on_where_it_was(found, tmp_path):
    def again(resume, callbacks=()):
        kept = pf.Checkpoint(tmp_path / "books", every=2, resume=resume)
        return pf.sweep(PROBLEM, ALGORITHM, GRID, rounds=6, theta=0.0, repeats=3, checkpoint=kept, callbacks=callbacks)

    with pytest.raises(RuntimeError, match="power"):
        again(False, [Ends()])
    with pytest.raises(ValueError, match="already contains a run"):
        again(False)
    resumed = again(True)
    for one, other in zip(resumed.histories, found.histories, strict=True):
        np.testing.assert_array_equal(one.theta, other.theta)
        np.testing.assert_array_equal(one["samples"], other["samples"])
    with pytest.raises(ValueError, match="belongs to another run"):
        kept = pf.Checkpoint(tmp_path / "books", every=2, resume=True)
        pf.sweep(PROBLEM, ALGORITHM, GRID, rounds=6, theta=0.0, seed=5, repeats=3, checkpoint=kept)
