"""Learners of other libraries against the black box: the examples."""

import importlib.util
import runpy
from pathlib import Path

import numpy as np
import pytest

import performative as pf

EXAMPLES = Path(__file__).parents[2] / "examples"
TORCH = importlib.util.find_spec("torch") is not None
GYMNASIUM = importlib.util.find_spec("gymnasium") is not None


def numpy_fit(theta, rows, steps=10, rate=0.3, penalty=0.04):
    """What `torch_fit` does, by hand."""
    x, y = rows["x"].reshape(-1, rows["x"].shape[-1]), rows["y"].ravel()
    free = np.append(np.ones(len(theta) - 1), 0.0)
    for _ in range(steps):
        slope = x.T @ (1 / (1 + np.exp(-x @ theta)) - y) / len(y)
        theta = theta - rate * (slope + penalty * free * theta)
    return theta


@pytest.fixture(scope="module")
def example():
    return runpy.run_path(str(EXAMPLES / "pytorch_learner.py"))


@pytest.mark.slow
def test_the_loop_of_the_example_spends_the_budget_and_settles(example):
    env = pf.suite.make("credit-strategic-v1")
    score = env.score(example["learn"](env, 0, numpy_fit))
    assert env.spent.deployments == env.budget.deployments and env.refusals == 0
    assert abs(score - env.score(env.stable.theta)) < 0.1


@pytest.mark.skipif(not TORCH, reason="torch is not installed")
def test_torch_fits_what_numpy_does(example):
    rng = np.random.default_rng(0)
    rows = {"x": rng.standard_normal((2, 30, 3)), "y": rng.integers(0, 2, (2, 30))}
    theta = rng.standard_normal(3)
    np.testing.assert_allclose(example["torch_fit"](theta, rows), numpy_fit(theta, rows), rtol=1e-8)


@pytest.mark.skipif(TORCH, reason="torch is installed")
def test_without_torch_the_example_says_so(capsys):
    runpy.run_path(str(EXAMPLES / "pytorch_learner.py"), run_name="__main__")
    assert "skipped: PyTorch is not installed" in capsys.readouterr().out


@pytest.mark.skipif(GYMNASIUM, reason="gymnasium is installed")
def test_without_gymnasium_the_example_says_so(capsys):
    runpy.run_path(str(EXAMPLES / "gymnasium_learner.py"), run_name="__main__")
    assert "skipped: Gymnasium is not installed" in capsys.readouterr().out


@pytest.mark.skipif(not GYMNASIUM, reason="gymnasium is not installed")
def test_rewards_add_up_to_what_is_gained():
    play = runpy.run_path(str(EXAMPLES / "gymnasium_learner.py"))["play"]
    env = pf.suite.make("gaussian-federation-v1")
    theta, total = play(pf.suite.gymnasium_env(env), env.start, seed=0)
    assert total == pytest.approx(env.score(theta) - env.score(env.start))
    assert env.score(theta) > env.score(env.start)


def test_the_peer_is_left_out_with_a_reason_where_it_is_absent():
    if importlib.util.find_spec("performative_gym") is not None:
        pytest.skip("performative_gym is installed")
    from performative.cli.benchmarks import find_benchmarks

    row = find_benchmarks()["gym"]()
    assert "performative_gym) is not installed" in row["note"] and "ratio" not in row


@pytest.mark.slow
def test_the_peers_interface_goes_to_the_stable_point():
    """With a stand-in that takes the arguments of their optimizer, and steps by hand."""
    from performative.cli.benchmarks import find_benchmarks

    find_benchmarks()
    from benchmarks import peers

    class Descent:
        def __init__(self, params, lr, loss_fn):
            self.lr = lr

        def step(self, params, x, y):
            assert x.shape == (200, 1) and y is None
            return params - self.lr * (params - x.mean(axis=0))

    env = pf.suite.make(peers.ENV)
    end = peers._theirs(env, lambda params: Descent(params, lr=peers.RATE, loss_fn=peers._squared))
    assert env.spent.deployments == env.budget.deployments
    # AR(1) with factor 0.75 and noise 0.5 / sqrt(200): a standard deviation of 0.053.
    assert abs(float(end[0]) - float(env.stable.theta)) < 4 * 0.053
