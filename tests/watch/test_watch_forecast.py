"""Where retraining leads, from the models."""

import numpy as np
import pytest

import performative as pf


def models(slope, looks=80, noise=0.3, d=1, seed=0):
    rng = np.random.default_rng(seed)
    watch = pf.watch(drift="none")
    theta = np.ones(d) * 2
    for t in range(looks):
        told = {f"p{i}": float(value) for i, value in enumerate(theta)}
        watch.update({"x": rng.normal(size=10)}, theta=told, time=t)
        theta = slope @ theta + noise * rng.normal(size=d)
    return watch.report().forecast


def test_a_contraction_settles():
    found = models(np.array([[0.4]]), looks=150)
    assert found.verdict == "settles" and found.low <= 0.4 <= found.high < 1
    assert found.contraction == pytest.approx(0.4, abs=0.2)


def test_an_expansion_runs_away():
    found = models(np.array([[1.3]]), looks=30)
    assert found.verdict == "runs away" and 1 < found.low <= 1.3 <= found.high


@pytest.mark.slow
def test_a_turn_of_two_parameters_is_bounded():
    found = models(np.array([[0.2, -0.3], [0.3, 0.2]]), looks=400, d=2)
    assert found.low <= np.hypot(0.2, 0.3) <= found.high < 1 and found.verdict == "settles"


def test_few_models_say_nothing():
    found = models(np.array([[0.4]]), looks=5)
    assert found.verdict == "unknown" and found.high == np.inf


def test_retraining_without_noise_is_no_error():
    found = models(np.array([[0.5]]), looks=40, noise=0.0)
    assert found.verdict in ("settles", "unknown") and found.low <= 0.5 <= found.high
