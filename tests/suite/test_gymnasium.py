"""The suite for those who have Gymnasium, and a clear word for those who have not."""

import importlib.util

import numpy as np
import pytest

import performative as pf

HERE = importlib.util.find_spec("gymnasium") is not None


@pytest.mark.skipif(HERE, reason="gymnasium is installed")
def test_without_gymnasium_it_says_so():
    with pytest.raises(ImportError, match=r'gymnasium is not installed; pip install "performative\[suite\]"'):
        pf.suite.gymnasium_env(pf.suite.make("gaussian-contracting-v1"))


def test_other_things_are_refused():
    with pytest.raises(ValueError, match=r"env must be a pf\.suite\.Environment"):
        pf.suite.gymnasium_env("gaussian-contracting-v1")


# It warns of data without bounds, which rows are, and of actions beyond [-1, 1].
@pytest.mark.filterwarnings("ignore:.*WARN.*:UserWarning")
@pytest.mark.skipif(not HERE, reason="gymnasium is not installed")
@pytest.mark.parametrize("id", ["gaussian-contracting-v1", "pricing-contribution-v1", "unequal-rare-v1"])
def test_gymnasium_accepts_it(id):
    from gymnasium.utils.env_checker import check_env

    env = pf.suite.make(id)
    made = pf.suite.gymnasium_env(env)
    check_env(made, skip_render_check=True)
    first, _ = made.reset(seed=3)
    again, _ = made.reset(seed=3)
    assert all(np.array_equal(first[name], again[name]) for name in first)
    total, over = env.score(env.start), False
    while not over:
        _, reward, ended, over, facts = made.step(np.asarray(env.start))
        total += reward
        assert not ended
    assert total == pytest.approx(env.score(env.start))
    assert min(facts["deployments_left"], facts["time_left"]) == 0 or facts["samples_left"] < env.rows * env.clients
