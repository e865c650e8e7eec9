"""Clients chosen by loss, in turns, or because they are there; local work that follows the loss."""

import itertools
from math import erf

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import performative as pf
from performative.participation import AdaComm, Available, Cyclic, DayNight, PowerOfChoice, Selection
from performative.types import Cohort, Upload

PART_EXAMPLES = {
    "pf.PowerOfChoice": "k=K - 1, d=K",
    "pf.Cyclic": ("groups=[i % 2 for i in range(N)]", "groups=[[0, 1, 2], [3, 4], [5, 6]]"),
    "pf.Available": "probability=0.9",
    "pf.participation.DayNight": "period=4.0",
    "pf.participation.AdaComm": {"arguments": "first=2", "inside": "pf.LocalWork(pf.SchemeTwo(K), {})"},
}

pytestmark = pytest.mark.usefixtures("double_precision")

P = np.asarray([0.4, 0.3, 0.1, 0.15, 0.05])
LOSS = np.asarray([2.0, 5.0, 1.0, 4.0, 3.0])
DRAWS = 8000


def told(ids, key, samples=None):
    """Losses that clients are known to have."""
    return jnp.asarray(LOSS)[ids]


def asked(ids, key, samples=None):
    raise AssertionError("a client was asked for its loss.")


def select(scheme, weights=P, draws=DRAWS, measure=told, round=0):
    """Mean and standard error of the weights, [N], and the cohorts."""
    scheme.check(weights)
    tables = jax.tree.map(jnp.asarray, scheme.tables(weights))
    memory, clients = scheme.init(len(weights)), len(weights)

    def one(key):
        selection = Selection(jnp.asarray(weights), tables, jnp.asarray(round), jnp.zeros(()), measure)
        cohort, _ = scheme.select(key, selection, memory)
        return cohort, jnp.zeros(clients).at[cohort.ids].add(cohort.weight, mode="drop")

    many = jax.vmap(one) if draws == 1 else jax.jit(jax.vmap(one))  # what is called once need not be compiled
    cohorts, weight = many(jax.random.split(jax.random.key(0), draws))
    weight = np.asarray(weight)
    return cohorts, weight, weight.mean(axis=0), weight.std(axis=0) / np.sqrt(draws)


def upload(loss):
    """Rows of a round in which clients tell these losses."""
    return jax.vmap(lambda one: Upload(one, jnp.ones((), jnp.int32), {}, {}, None, one))(jnp.asarray(loss))


def succession(p, d):
    """Chances of each set of d that are drawn one after the other, in proportion to p among those left."""
    chances = {}
    for row in itertools.permutations(range(len(p)), d):
        chance, left = 1.0, 1.0
        for i in row:
            chance, left = chance * p[i] / left, left - p[i]
        key = tuple(sorted(row))
        chances[key] = chances.get(key, 0.0) + chance
    return chances


# Power of choice.


@pytest.mark.parametrize(
    ("weights", "d", "way"),
    [(P, 2, tuple), (P, 4, tuple), (np.asarray([0.98, 0.005, 0.004, 0.006, 0.005]), 2, np.ndarray)],
    ids=["few", "most", "one holds all"],
)
def test_candidates_are_drawn_in_proportion_without_replacement(weights, d, way):
    scheme = PowerOfChoice(d, d)
    assert isinstance(scheme.tables(weights), way)
    cohorts, *_ = select(scheme, weights)
    sets, counts = np.unique(np.sort(np.asarray(cohorts.ids), axis=1), axis=0, return_counts=True)
    found = dict(zip(map(tuple, sets.tolist()), counts / DRAWS, strict=True))
    for drawn, chance in succession(weights, d).items():
        # One more draw than none is always possible: 1 / DRAWS keeps rare sets from a zero error.
        error = np.sqrt(chance * (1 - chance) / DRAWS) + 1 / DRAWS
        assert abs(found.get(drawn, 0.0) - chance) < 4.5 * error
    np.testing.assert_array_equal(cohorts.weight, np.full((DRAWS, d), 1 / d))


def test_the_highest_and_the_lowest_of_the_candidates_are_taken():
    for prefer, best in (("high", [1, 3]), ("low", [0, 2])):
        cohorts, *_ = select(PowerOfChoice(2, 5, prefer), draws=1)
        np.testing.assert_array_equal(np.sort(cohorts.ids, axis=1), [best])
    # Two of three equally likely: the client of rank j (0 the highest) is left out only where all three are drawn
    # with two above. (C(4, 2) - C(j, 2)) / C(5, 3) / 2.
    _, _, mean, error = select(PowerOfChoice(2, 3), np.full(5, 0.2))
    rank = np.argsort(np.argsort(-LOSS))
    expected = (6 - rank * (rank - 1) / 2) / 20
    assert np.all(np.abs(mean - expected) <= 4 * error)


def test_with_as_many_candidates_as_are_chosen_losses_do_not_matter():
    _, _, mean, error = select(PowerOfChoice(2, 2), np.full(5, 0.2))
    assert np.all(np.abs(mean - 0.2) < 4 * error)


def test_equals_are_chosen_at_random_and_broken_losses_last():
    def equal(ids, key, samples=None):
        return jnp.ones(ids.shape)

    _, _, mean, error = select(PowerOfChoice(2, 5), measure=equal)
    assert np.all(np.abs(mean - 0.2) < 4 * error)

    def broken(ids, key, samples=None):
        return jnp.asarray([jnp.nan, 1.0, jnp.inf, 2.0, 3.0])[ids]

    for prefer in ("high", "low"):
        cohorts, *_ = select(PowerOfChoice(3, 5, prefer), draws=1, measure=broken)
        np.testing.assert_array_equal(np.sort(cohorts.ids, axis=1), [[1, 3, 4]])


def test_what_clients_last_reported_asks_nobody_and_meets_the_unseen_first():
    scheme = PowerOfChoice(2, 5, estimate="last")
    assert scheme.requires_loss and not PowerOfChoice(2, 5).requires_loss
    selection = Selection(jnp.asarray(P), None, jnp.asarray(0), jnp.zeros(()), asked)
    memory, seen = scheme.init(5), []
    choose = jax.jit(lambda key, memory: scheme.select(key, selection, memory))
    for r in range(3):
        cohort, memory = choose(jax.random.key(r), memory)
        memory = scheme.observe(cohort, upload(LOSS[np.asarray(cohort.ids)]), memory)
        seen += np.asarray(cohort.ids).tolist()
    # Five clients in three rounds of two: all are met, and beside the last one stands the highest loss so far.
    assert set(seen) == set(range(5)) and len(set(seen[:4])) == 4
    np.testing.assert_array_equal(memory, LOSS)
    cohort, memory = choose(jax.random.key(9), memory)
    assert set(np.asarray(cohort.ids).tolist()) == {1, 3}
    # Spare rows and broken clients report nothing; one that was never heard is not chosen for ever.
    fresh = scheme.init(5)
    cohort, chosen = choose(jax.random.key(0), fresh)
    silent = Cohort(cohort.ids, cohort.weight, jnp.asarray([True, False]))
    after = np.asarray(scheme.observe(silent, upload([7.0, np.nan]), chosen))
    first, second = np.asarray(cohort.ids)
    assert after[first] == 7.0 and after[second] == -np.inf and np.sum(np.isposinf(after)) == 3
    spare = Cohort(jnp.asarray([5, 5]), jnp.zeros(2), jnp.asarray([False, False]))
    np.testing.assert_array_equal(scheme.observe(spare, upload([1.0, 2.0]), fresh), fresh)


def heard(estimate, samples=None, rounds=9):
    """How often each of five clients is heard, in rounds: without noise, and with a step of 0."""
    still = pf.Problem(pf.losses.squared, pf.populations.Gaussian(np.asarray([0.0, 1.0, 3.0, 7.0, 10.0]), 0.5, 0.0))
    how = pf.p_fedavg(rate=0.0, participation=PowerOfChoice(2, 5, "high", estimate, samples))
    return np.round(rounds * pf.run(still, how, rounds, 4.0, dtype="float64").participation[0], 9)


@pytest.mark.slow
def test_a_draw_without_noise_is_the_exact_loss():
    # Losses at 4, where client i's data lie at m_i + 2: 4, 1, 1, 25, 64 over 2.
    for estimate in (("exact", None), ("batch", 1)):
        np.testing.assert_array_equal(heard(*estimate), [0, 0, 0, 4.5, 4.5])


def test_reports_of_a_model_that_stays_are_the_exact_losses():
    # Three rounds of two meet all five and, once more, the highest so far; the six others go to the two highest.
    found = heard("last")
    np.testing.assert_array_equal(found[:3], [0.5] * 3)
    assert sorted(found[3:]) == [3.5, 4.0]


@pytest.mark.slow
def test_a_batch_estimate_errs_as_its_samples_do():
    # Two clients, losses of one draw z^2/2 and (3 + z)^2/2: the second is higher unless |z_0| > |3 + z_1|.
    pair = pf.Problem(pf.losses.squared, pf.populations.Gaussian(np.asarray([0.0, 3.0]), 0.0, 1.0))
    how = pf.p_fedavg(rate=0.0, participation=PowerOfChoice(1, 2, "high", "batch", 1))
    done = pf.run(pair, how, 50, 0.0, repeats=100, dtype="float64")
    # z_0 and 3 + z_1 are independent: |z_0| < |3 + z_1| exactly where their sum and difference (each N(3, 2) and
    # N(3, 2), independent) have the same sign.
    right = 0.5 * (1 + erf(3 / 2))  # P(N(3, 2) > 0) = Phi(3 / sqrt 2)
    chance = right**2 + (1 - right) ** 2
    assert abs(done.participation[:, 1].mean() - chance) < 4 * np.sqrt(chance * (1 - chance) / 5000)


# Groups in turn.


def test_groups_take_turns_with_weights_of_their_own():
    for groups in ([[3, 0], [1], [4, 2]], [0, 1, 2, 0, 2]):
        scheme = Cyclic(groups)
        assert scheme.size(5) == 2 and scheme.sums_to_one
        for round, ids in enumerate([(0, 3), (1,), (2, 4), (0, 3)]):
            cohorts, weight, *_ = select(scheme, draws=1, round=round)
            expected = np.zeros(5)
            expected[list(ids)] = P[list(ids)] / P[list(ids)].sum()
            np.testing.assert_allclose(weight[0], expected, rtol=1e-12)
            assert np.asarray(cohorts.active).sum() == len(ids)
            assert set(np.asarray(cohorts.ids)[0].tolist()) == set(ids) | ({5} if len(ids) == 1 else set())
    for round in range(4):
        cohorts, weight, *_ = select(Cyclic(2), np.full(6, 1 / 6), draws=1, round=round)
        assert cohorts.active is None
        np.testing.assert_allclose(weight[0], np.repeat([1 - round % 2, round % 2], 3) / 3, rtol=1e-12)


def test_a_count_of_groups_runs_as_the_groups_it_stands_for():
    """A count in a field that is traced was refused as soon as an algorithm was made of it."""
    problem = pf.Problem(pf.losses.squared, pf.populations.Gaussian([1.0, 2.0, 3.0, 4.0], 0.2, 1.0))
    ends = [
        pf.run(problem, pf.p_fedavg(0.1, participation=scheme), 3, theta=0.0, record=pf.Record(risks=False)).theta
        for scheme in (Cyclic(2), Cyclic([[0, 1], [2, 3]]))
    ]
    np.testing.assert_array_equal(*ends)


def test_a_draw_within_the_group_is_unbiased_for_the_group():
    scheme = Cyclic([[3, 0], [1, 4, 2]], k=2)
    assert scheme.size(5) == 2 and not scheme.sums_to_one
    _, weight, mean, error = select(scheme, round=1)
    expected = np.asarray([0, 0.3, 0.1, 0, 0.05]) / 0.45
    assert np.all(np.abs(mean - expected) <= 4 * error)
    assert np.all(np.sum(weight > 0, axis=1) == 2)


# Who is there.


@pytest.mark.parametrize("k", [None, 2])
def test_availability_is_unbiased_or_renormalized(k):
    chance = np.asarray([0.9, 0.3, 0.5, 0.7, 0.2])
    cohorts, weight, mean, error = select(Available(chance, k))
    assert np.all(np.abs(mean - P) < 4 * error)
    assert np.any(~np.any(np.asarray(cohorts.active), axis=1))  # nobody there: (1 - q) multiply to 0.0084
    assert np.asarray(cohorts.active).sum(axis=1).max() == (5 if k is None else 2)
    # Every set of clients has its chance: present for themselves.
    expected, total = np.zeros(5), 0.0
    for here in itertools.product([False, True], repeat=5):
        likely = np.prod(np.where(here, chance, 1 - chance))
        present = np.flatnonzero(here)
        crowds = [list(crowd) for crowd in itertools.combinations(present, min(k or 5, len(present))) if crowd]
        for crowd in crowds:
            expected[crowd] += likely / len(crowds) * P[crowd] / P[crowd].sum()
            total += likely / len(crowds)
    _, weight, mean, error = select(Available(chance, k, "renormalized"))
    assert np.all(np.abs(mean - expected) < 4 * error)
    sums = weight.sum(axis=1)
    np.testing.assert_allclose(sums[sums > 0], 1, rtol=1e-12)
    assert abs(np.mean(sums > 0) - total) < 4 * np.sqrt(total * (1 - total) / DRAWS)
    assert np.abs(expected - P).max() > 0.05  # biased


def test_day_and_night():
    pattern = DayNight(6.0, [0.0, 3.0, 1.5], 0.8, [0.0, 0.1, 0.2])
    chances = np.stack([pattern.at(jnp.asarray(r)) for r in range(12)])
    first = [0.8] * 3 + [0.0] * 3
    np.testing.assert_array_equal(chances[:6, 0], first)
    np.testing.assert_array_equal(chances[:6, 1], [0.1] * 3 + [0.8] * 3)
    np.testing.assert_array_equal(chances[:6, 2], [0.8, 0.8, 0.2, 0.2, 0.2, 0.8])
    np.testing.assert_array_equal(chances[6:], chances[:6])
    weights = np.asarray([0.5, 0.3, 0.2])
    for round in (0, 4):
        _, _, mean, error = select(Available(pattern), weights, round=round)
        expected = np.where(chances[round] > 0, weights, 0)
        assert np.all(np.abs(mean - expected) <= 4 * error)


def test_a_round_with_nobody_moves_nothing():
    where = pf.Problem(pf.losses.squared, pf.populations.Gaussian(np.arange(1.0, 4.0), 0.5, 1.0))
    how = pf.p_fedavg(rate=0.1, participation=Available(DayNight(4.0, 0.0, 1.0, 0.0)))
    path = pf.run(where, how, 8, 0.0, dtype="float64").theta[0]
    moved = np.diff(path) != 0
    np.testing.assert_array_equal(moved, [True, True, False, False] * 2)
    assert np.all(np.isfinite(path))


# Local work that follows the loss.


def test_adacomm_follows_the_loss():
    work, cohort = AdaComm(10, least=2), Cohort(jnp.arange(2), jnp.asarray([0.25, 0.75]))
    memory = work.init()

    def tau(memory):
        steps = work.draw(jax.random.key(0), cohort.ids, memory)
        assert steps.shape == (2,) and steps[0] == steps[1]
        return int(steps[0])

    assert tau(memory) == 10
    #   losses of a round        mean            tau = ceil(10 sqrt(mean / 16)), within 2..10
    for losses, expected in (
        ([16.0, 16.0], 10),
        ([16.0, 0.0], 5),  # 4
        ([4.0, 4.1], 6),  # 4.075: just above 5 is 6
        ([40.0, 40.0], 10),
        ([0.01, 0.01], 2),
        ([np.nan, 4.0], 5),  # one report is no number
        ([-1.0, -1.0], 2),
    ):
        memory = work.observe(cohort, upload(losses), memory)
        assert tau(memory) == expected
    nobody = Cohort(cohort.ids, jnp.zeros(2), jnp.asarray([False, False]))
    np.testing.assert_array_equal(work.observe(nobody, upload([9.0, 9.0]), memory), memory)
    for start in (0.0, -3.0):
        memory = work.observe(cohort, upload([start, start]), work.init())
        assert tau(work.observe(cohort, upload([1.0, 1.0]), memory)) == 10


def test_adacomm_in_a_run():
    # Without noise and with theta far off the loss is a known sequence: all clients alike, so that tau is exact.
    where = pf.Problem(pf.losses.squared, pf.populations.Gaussian(np.zeros(3), 0.0, 0.0))
    work = pf.LocalWork(pf.SchemeTwo(2), AdaComm(6))
    how = pf.p_fedavg(rate=0.05, participation=work)
    assert how.steps == 6 and work.requires_loss
    done = pf.run(where, how, 12, 8.0, dtype="float64")
    theta, tau, first, expected = 8.0, 6, None, [8.0]
    for _ in range(12):
        steps = theta * 0.95 ** np.arange(tau + 1)
        loss = np.mean(steps[:-1] ** 2) / 2
        first = loss if first is None else first
        theta, tau = steps[-1], int(np.clip(np.ceil(np.sqrt(loss / first) * 6), 1, 6))
        expected.append(theta)
    np.testing.assert_allclose(done.theta[0], expected, rtol=1e-12)
    assert tau < 6


# What is refused.


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (lambda: PowerOfChoice(3, 2), "d must be a whole number of candidates, d >= k = 3"),
        (lambda: PowerOfChoice(0, 2), "k >= 1"),
        (lambda: PowerOfChoice(1, 2, "worst"), 'prefer must be "high" or "low"'),
        (lambda: PowerOfChoice(1, 2, estimate="guess"), "estimate must be"),
        (lambda: PowerOfChoice(1, 2, estimate="batch"), "needs `samples`"),
        (lambda: PowerOfChoice(1, 2, samples=3), "leave it out"),
        (lambda: PowerOfChoice(1, 4).check(np.asarray([0.5, 0.5, 0.0, 0.0])), "2 of 4 have a weight above 0"),
        (lambda: Cyclic([[0, 1], [1, 2]]), "each client 0 to 3 once"),
        (lambda: Cyclic([[0, 1], []]), "an empty group"),
        (lambda: Cyclic([0, 2]), "none left out"),
        (lambda: Cyclic(0), "whole number >= 1 of equal groups"),
        (lambda: Cyclic(2).check(np.full(5, 0.2)), "5 clients cannot form 2 groups"),
        (lambda: Cyclic([[0], [1, 2]], k=2), "from a group of 1"),
        (lambda: Cyclic(2, k=3).check(np.full(4, 0.25)), "from a group of 2"),
        (lambda: Cyclic([[0], [1]]).check(np.full(3, 1 / 3)), "contains 2 clients, but there are 3"),
        (lambda: Cyclic([[0], [1]]).check(np.asarray([1.0, 0.0])), "group 1 have total weight 0"),
        (lambda: Available(1.5), "must lie in 0..1"),
        (lambda: Available([0.5, 0.0]), "above 0"),
        (lambda: Available(0.5, weigh="fair"), "weigh must be"),
        (lambda: Available([0.5, 0.5]).check(np.full(3, 1 / 3)), "for 3 clients"),
        (lambda: Available(0.5, k=4).check(np.full(3, 1 / 3)), "1 <= k <= 3"),
        (lambda: DayNight(0.0), "period"),
        (lambda: DayNight(4.0, high=1.2), "high is a probability"),
        (lambda: AdaComm(2, 3), "1 <= least <= first"),
    ],
)
def test_refusals_say_what_to_do(make, said):
    with pytest.raises(ValueError) as refused:
        make()
    assert said in str(refused.value)


def test_a_choice_by_loss_needs_someone_to_ask():
    with pytest.raises(ValueError, match="has no `measure`"):
        select(PowerOfChoice(1, 2), measure=None, draws=1)
