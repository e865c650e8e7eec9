"""Where clipped learning settles when the data react (Li, Yemini and Wai 2024, Figure 1)."""

import numpy as np
import pytest

import performative as pf
from performative.papers import catalog
from performative.papers.pcsgd.bounds import largest_share
from performative.papers.pcsgd.watching import ratio
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


@pytest.mark.parametrize("beta", [pytest.param(beta, marks=pytest.mark.slow) for beta in (0.01, 0.05)])
def test_dicesgd_settles_at_the_stable_point(beta):
    mean, error = settle(pf.dicesgd(RATE, clip=1.0, memory_clip=1.0, noise_multiplier=1.0), beta)
    assert abs(mean + 0.1 * 10 * 1 / (1 - 10 * beta)) < 4 * error


@pytest.mark.slow
@pytest.mark.parametrize("beta", [0.01, 0.05])
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


STATEMENTS = {
    "Definition": "2.1 2.2", "Example": "2.3", "Remark": "2.4", "Assumption": "3.1 3.2 3.3 4.1 4.2",
    "Theorem": "3.4 3.5 4.3", "Corollary": "3.6 3.7 3.8", "Lemma": "5.1 5.2 A.1 A.2", "Algorithm": "1",
    "Figure": "1 2 3 4",
}  # fmt: skip


def test_every_numbered_statement_has_a_row():
    wanted = {f"{kind} {number}" for kind, numbers in STATEMENTS.items() for number in numbers.split()}
    rows = [claim for name in catalog.names("pcsgd") for claim in catalog.find(name).claims]
    assert wanted == {one for row in rows for one in row.about}
    assert all(row.about for row in rows)


@pytest.mark.parametrize("paper", ["pcsgd", "ours"])
def test_no_limit_is_a_threshold_of_ours(paper):
    for name in catalog.names(paper):
        for claim in catalog.find(name).claims:
            for check in (claim.printed, claim.corrected):
                assert check is None or not check.threshold_of_ours(), f"{name}#{claim.id}"


def test_the_error_of_a_ratio_is_its_spread_over_samples():
    rng = np.random.default_rng(0)
    common = rng.standard_normal((400, 50))
    above, below = 6 + common + rng.standard_normal((400, 50)), 3 + common
    found, errors = np.asarray([ratio(*pair) for pair in zip(above, below, strict=True)]).T
    assert abs(found.mean() - 2) < 0.02
    assert np.mean(errors) == pytest.approx(found.std(), rel=0.1)


def test_the_largest_share_of_a_bound_is_that_of_its_worst_step():
    square = np.asarray([[9.0, 9.0], [1.0, 3.0], [4.0, 4.0], [0.5, 1.5]])
    assert largest_share(square, np.asarray([1.0, 10.0, 5.0, 2.0])) == (0.8, 0.0)
