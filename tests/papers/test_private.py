"""Where clipped learning settles when the data react (Li, Yemini and Wai 2024, Figure 1)."""

import numpy as np
import pytest

import performative as pf
from performative.theory import ClippedQuadratic

ROUNDS, REPEATS = 50_000, 64
# The paper's gamma_t = 10 / (100 + t) starts at t = 1, ours at t = 0.
RATE = pf.schedules.harmonic(10.0, 101.0)

pytestmark = pytest.mark.usefixtures("optimized_programs")


def settle(algorithm, beta):
    """Where the repeats end: mean and its standard error."""
    problem = pf.cases.quadratic(beta, rows=1000)
    history = pf.run(
        problem,
        algorithm,
        ROUNDS,
        theta=5.0,
        repeats=REPEATS,
        record=pf.Record(theta="last", every=ROUNDS, risks=False),
    )
    ends = history.final
    return ends.mean(), ends.std(ddof=1) / np.sqrt(REPEATS)


def instance(beta):
    return ClippedQuadratic(p=0.1, a=10.0, b=1.0, beta=beta)


@pytest.mark.slow
@pytest.mark.parametrize("beta", [0.01, 0.05])
def test_pcsgd_settles_at_the_biased_point(beta):
    mean, error = settle(pf.pcsgd(RATE, clip=1.0, noise_multiplier=1.0), beta)
    biased = -0.1 * 1.0 / ((1 - 0.1) * (1 - 10 * beta))
    assert abs(mean - biased) < 4 * error
    assert abs(float(instance(beta).pcsgd_limit(1.0)) - biased) < 1e-12
    assert abs(mean - pf.stable_point(pf.cases.quadratic(beta))) > 100 * error


@pytest.mark.parametrize("beta", [pytest.param(0.01, marks=pytest.mark.slow), 0.05])
def test_dicesgd_settles_at_the_stable_point(beta):
    mean, error = settle(pf.dicesgd(RATE, clip=1.0, memory_clip=1.0, noise_multiplier=1.0), beta)
    assert abs(mean + 0.1 * 10 * 1 / (1 - 10 * beta)) < 4 * error


@pytest.mark.parametrize("beta", [pytest.param(0.01, marks=pytest.mark.slow), 0.05])
def test_too_small_a_memory_clip_is_flagged_and_biased(beta):
    algorithm = pf.dicesgd(RATE, clip=1.0, memory_clip=0.5, noise_multiplier=1.0)
    with pytest.warns(UserWarning) as said:
        mean, error = settle(algorithm, beta)
    words = " ".join(str(warning.message) for warning in said)
    assert "[memory-clip-too-small]" in words and "use memory_clip >= 0.8" in words  # before the run
    assert f"memory of {REPEATS} of {REPEATS} clients grows" in words  # after it
    biased = -(0.5 + 0.1 * 1.0) / ((1 - 0.1) * (1 - 10 * beta))
    assert abs(mean - biased) < 4 * error


@pytest.mark.slow
def test_a_federation_of_private_learners():
    """The same with many clients, local steps and partial participation: each client has its own memory."""
    problem = pf.cases.quadratic(0.05, clients=8, rows=1000)
    algorithm = pf.dicesgd(
        pf.schedules.harmonic(10.0, 200.0), clip=1.0, memory_clip=1.0, noise_multiplier=1.0,
        local_steps=2, participation=pf.SchemeTwo(4),
    )  # fmt: skip
    history = pf.run(
        problem, algorithm, 10_000, theta=0.0, repeats=32, record=pf.Record(theta="last", every=10_000, risks=False)
    )
    ends = history.final
    assert abs(ends.mean() + 2.0) < 4 * ends.std(ddof=1) / np.sqrt(32)
