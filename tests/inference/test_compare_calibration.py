"""`pf.compare` between equally good runs: p-values are uniform, or larger where few values are possible."""

import dataclasses
import sys

import jax
import numpy as np
import pytest
from scipy import stats

import performative as pf
from performative.compare import flipped, paired

EXPERIMENTS = 1000
M, EPS = np.linspace(0.5, 2.0, 4), np.linspace(0.1, 0.5, 4)


def mirrored(repeats, experiments, seed=0):
    """Two runs whose distances have one law, without being the same: a problem and its mirror image.

    Noise is the same in both, and so is the way from the start, up to its sign: |a + n| and |a - n|. Repeats of one
    long run are dealt out to the experiments.
    """
    runs = {}
    for name, sign in (("here", 1.0), ("mirror", -1.0)):
        problem = pf.Problem(pf.losses.squared, pf.populations.Gaussian(sign * M, EPS, 1.0))
        runs[name] = pf.run(
            problem, pf.p_fedavg(0.2, participation=pf.SchemeOne(2)), 8, 0.0, seed, repeats * experiments,
            record=pf.Record(risks=False, theta="last"), dtype="float64",
        )  # fmt: skip
    for number in range(experiments):
        yield {name: _some(history, slice(number * repeats, (number + 1) * repeats)) for name, history in runs.items()}


def _some(history, rows):
    """A history of some of the repeats."""
    return dataclasses.replace(
        history,
        theta=jax.tree.map(lambda leaf: leaf[rows], history.theta),
        records={name: values[rows] for name, values in history.records.items()},
        stopped_at=history.stopped_at[rows],
        participation=history.participation[rows],
    )


def distance(history):
    return history["distance_to_stable"][:, -1]


def skewed(history):
    return distance(history) ** 2


def counted(history):
    """How many halves away: a handful of values."""
    return np.floor(distance(history) / 0.5)


def near(history):
    return (distance(history) < 0.5).astype(float)


def p_values(metric, repeats, experiments=EXPERIMENTS):
    found = [pf.compare(pair, metric).differences[0] for pair in mirrored(repeats, experiments, seed=repeats)]
    return np.asarray([one.p_value for one in found]), np.asarray([one.verdict for one in found])


@pytest.mark.slow
@pytest.mark.parametrize("repeats", [5, 10, 40])
@pytest.mark.parametrize("metric", [distance, skewed])
def test_p_values_of_equally_good_runs_are_uniform(metric, repeats):
    p, verdicts = p_values(metric, repeats)
    found = stats.kstest(p, "uniform").pvalue
    print(f"{metric.__name__}, {repeats} repeats: KS p = {found:.3f}")
    assert found > 0.01
    assert np.mean(verdicts != "no difference shown") <= 0.05 + 3 * np.sqrt(0.05 * 0.95 / EXPERIMENTS)


@pytest.mark.slow
@pytest.mark.parametrize("repeats", [5, 10, 40])
@pytest.mark.parametrize("metric", [counted, near])
def test_p_values_of_counts_are_not_too_small(metric, repeats):
    p, verdicts = p_values(metric, repeats)
    found = stats.kstest(p, "uniform", alternative="greater").pvalue  # small where p-values are smaller than uniform
    print(f"{metric.__name__}, {repeats} repeats: one-sided KS p = {found:.3f}")
    assert found > 0.01
    assert np.mean(verdicts != "no difference shown") <= 0.05 + 3 * np.sqrt(0.05 * 0.95 / EXPERIMENTS)


def test_the_search_finds_counts_that_are_taken_for_normal(monkeypatch):
    """Differences of -1, 0 and 1 in five repeats: by Student's test p-values are too small, by ours they are not."""
    gaps = np.random.default_rng(0).choice([-1.0, 0.0, 1.0], (EXPERIMENTS, 5), p=[0.4, 0.2, 0.4])

    def smaller():
        found = [paired({"a": gap, "b": np.zeros(5)}, ("a", "b"), 0.05, {"a"}).p_value for gap in gaps]
        return stats.kstest(found, "uniform", alternative="greater").pvalue

    assert smaller() > 0.01
    monkeypatch.setattr(sys.modules["performative.compare"], "_DISTINCT", 0.0)
    assert smaller() < 1e-6


def test_signs_are_counted_exactly():
    assert flipped(np.asarray([1.0, 1.0, 1.0, 1.0, 0.0])) == pytest.approx(2 / 16)
    assert flipped(np.asarray([1.0, -1.0, 2.0])) == pytest.approx(6 / 8)
    assert flipped(np.zeros(4)) == 1.0
    many = np.ones(40)
    assert flipped(many) == pytest.approx(1 / (2**14 + 1))
    assert flipped(many * np.resize([1, -1], 40)) == 1.0


def test_few_counts_show_no_difference():
    """Four of five repeats better by 1: Student's test would say p = 0.016, the signs alone say 1/8."""
    values = {"here": np.asarray([1.0, 1.0, 1.0, 1.0, 0.0]), "mirror": np.zeros(5)}
    found = paired(values, ("here", "mirror"), 0.05, {"here", "mirror"})
    assert found.p_value == pytest.approx(1 / 8) and found.verdict == "no difference shown" and found.high == np.inf
    tiny = {"here": np.asarray([1.0, 2.0, 4.0, 8.0, 16.0]) * 1e-200, "mirror": np.zeros(5)}  # whose squares are 0
    assert paired(tiny, ("here", "mirror"), 0.05, {"here"}).p_value == pytest.approx(2 / 32)
