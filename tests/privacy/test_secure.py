"""Noise from the system's entropy: its law, and that every executor uses it."""

import numpy as np
import pytest
from scipy import stats

import performative as pf
from performative._base.noise import GRID
from performative.privacy import discrete_gaussian
from performative.privacy.secure import _table

PROBLEM = pf.Problem(pf.losses.squared, pf.populations.Gaussian(np.zeros(4), 0.0, 0.0))


@pytest.mark.parametrize("sigma", [1, 3, 40])
def test_the_table_is_the_distribution_function(sigma):
    high, _ = _table(sigma)
    reach = (len(high) - 1) // 2
    k = np.arange(-reach, reach + 1)
    weight = np.exp(-(k.astype(float) ** 2) / (2 * sigma**2))
    np.testing.assert_allclose(high.astype(float) / 2.0**64, np.cumsum(weight) / weight.sum(), atol=1e-14)


@pytest.mark.parametrize("sigma", [1, 3])
def test_draws_follow_the_law(sigma):
    drawn = discrete_gaussian(sigma, (200_000,))
    k = np.arange(-3 * sigma, 3 * sigma + 1)
    weight = np.exp(-(np.arange(-50 * sigma, 50 * sigma + 1) ** 2) / (2 * sigma**2))
    chance = np.exp(-(k**2) / (2 * sigma**2)) / weight.sum()
    seen = np.asarray([np.sum(drawn == i) for i in k])
    rest = np.append(seen, drawn.size - seen.sum()), np.append(chance, 1 - chance.sum()) * drawn.size
    assert stats.chisquare(*rest).pvalue > 1e-6  # drawn anew each time: once in a million runs this is bad luck


def test_draws_never_repeat():
    first, second = (discrete_gaussian(GRID, (1000,)) for _ in range(2))
    assert np.mean(first == second) < 0.01
    assert abs(np.std(first) / GRID - 1) < 6 / np.sqrt(2000)


def test_what_is_refused():
    with pytest.raises(ValueError, match="sigma must be a whole number"):
        discrete_gaussian(0, (3,))


@pytest.mark.parametrize(
    "executor", ["dense", *(pytest.param(name, marks=pytest.mark.slow) for name in ("gather", "loop"))]
)
def test_every_executor_takes_it(executor):
    algorithm = pf.pcsgd(1.0, clip=1.0, noise_multiplier=1.0, local_steps=2, participation=pf.SchemeTwo(3))
    privacy = pf.Privacy(1e-5, noise="secure")

    def walk():
        return pf.run(
            PROBLEM, algorithm, 3, theta=0.0, executor=executor, record=pf.Record(every=2, risks=False), privacy=privacy
        )

    first, second = walk(), walk()
    assert not np.any(first.theta[:, 1:] == second.theta[:, 1:])  # the seed does not decide it
    assert np.all(first["consensus"][:, 1:] > 0)  # clients do not share it
    assert "entropy" in first.meta["privacy"]["noise"]


def test_it_has_the_size_of_the_fast_noise():
    channel = pf.channels.ClippedNoise(0.5, 2.0)
    history = pf.run(
        PROBLEM,
        pf.p_fedavg(0.0, channel=channel),
        1,
        theta=0.0,
        repeats=4000,
        record=pf.Record(risks=False),
        privacy=pf.Privacy(1e-5, noise="secure"),
    )
    expected = 2.0 * 0.5 / 4
    assert abs(np.std(history.theta[:, -1]) - expected) < 5 * expected / np.sqrt(2 * 4000)
