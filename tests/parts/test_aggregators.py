"""Robust and extrapolated moves against loops in NumPy, and the points that they settle at."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import performative as pf
from performative._base.run_once import quickly_compiled
from performative.aggregators import ClusterVarp, Extrapolate, Krum, Mean, Median, TrimmedMean, Varp, mean_of_last_two
from performative.history import History
from performative.types import Cohort, Upload

PART_EXAMPLES = {
    "pf.aggregators.ClusterVarp": "clusters=[i % 3 for i in range(N)]",
    "pf.aggregators.Krum": (
        "byzantine=K // 4",
        {
            "arguments": "byzantine=1, multi=2",
            "beside": {"participation": "pf.SchemeTwo(5)"},
        },
    ),
    "pf.aggregators.TrimmedMean": "fraction=0.4",
    "pf.aggregators.Extrapolate": ("", "cap=3.0"),
}

ROWS, CLIENTS = 8, 12
SEEDS = st.integers(0, 10**6)
FEW = settings(max_examples=40, deadline=None, derandomize=True)


def uploads(delta):
    return jax.vmap(lambda d: Upload(d, jnp.asarray(1, jnp.int32), None, {}))(delta)


@quickly_compiled
def moved(part, delta, cohort, p, memory):
    zero = jax.tree.map(lambda leaf: jnp.zeros(leaf.shape[1:]), delta)
    return part.aggregate(zero, uploads(delta), cohort, p, memory)


def a_round(seed, present=None):
    """Updates [present, 3], how often each counts, and the rows that hold them, spoilt where nobody is."""
    rng = np.random.default_rng(seed)
    here = np.zeros(ROWS, bool)
    here[rng.permutation(ROWS)[: rng.integers(1, ROWS + 1) if present is None else present]] = True
    values = np.where(here[:, None], rng.normal(size=(ROWS, 3)), np.nan)
    times = np.where(here, rng.integers(1, 4, ROWS), 0)
    ids = np.where(here, rng.permutation(CLIENTS)[:ROWS], CLIENTS)
    delta = {"a": jnp.asarray(values[:, :2], jnp.float32), "b": jnp.asarray(values[:, 2], jnp.float32)}
    weight = jnp.asarray(times / times.sum(), jnp.float32)
    cohort = Cohort(jnp.asarray(ids, jnp.int32), weight, jnp.asarray(here))
    return values[here], times[here], delta, cohort


P = jnp.full(CLIENTS, 1 / CLIENTS)


def move_of(part, delta, cohort, p=P):
    move, _ = moved(jax.tree.map(jnp.asarray, part), delta, cohort, p, None)
    return np.append(move["a"], move["b"])


@FEW
@given(SEEDS)
def test_the_median_counts_a_client_as_often_as_it_was_drawn(seed):
    values, times, delta, cohort = a_round(seed)
    wanted = np.median(np.repeat(values, times, axis=0), axis=0)
    np.testing.assert_allclose(move_of(Median(), delta, cohort), wanted, rtol=1e-6)


@FEW
@given(SEEDS, st.sampled_from([0.0, 0.125, 0.25, 0.375]))
def test_the_trimmed_mean_drops_the_fraction_at_both_ends(seed, fraction):
    values, times, delta, cohort = a_round(seed)
    # Every client eight times as often: then an eighth of all is a whole number of entries.
    rows = np.sort(np.repeat(values, 8 * times, axis=0), axis=0)
    cut = round(fraction * len(rows))
    wanted = rows[cut : len(rows) - cut].mean(axis=0)
    np.testing.assert_allclose(move_of(TrimmedMean(fraction), delta, cohort), wanted, rtol=1e-4, atol=1e-6)


def krum(values, times, byzantine, multi):
    n, scores = len(values), []
    for k in range(n):
        apart = sorted(np.sum((values[k] - values[other]) ** 2) for other in range(n) if other != k)
        scores.append((sum(apart[: max(n - byzantine - 2, 1)]), sum(apart)))
    best = sorted(range(n), key=scores.__getitem__)[:multi]
    return np.average(values[best], axis=0, weights=times[best])


@FEW
@given(SEEDS, st.sampled_from([(0, 1), (1, 1), (2, 1), (2, 3)]))
def test_krum_takes_who_is_closest_to_most(seed, setting):
    values, times, delta, cohort = a_round(seed)
    wanted = krum(values, times, *setting)
    np.testing.assert_allclose(move_of(Krum(*setting), delta, cohort), wanted, rtol=1e-5, atol=1e-6)


@FEW
@given(SEEDS, st.sampled_from([-1e30, -100.0, -1.0, 0.0, 3.0, 1e5, 1e30]))
def test_hostile_clients_cannot_drag_the_move_past_the_honest_ones(seed, far):
    values, _, delta, cohort = a_round(seed, present=7)
    hostile = np.flatnonzero(np.asarray(cohort.active))[:2]
    delta = jax.tree.map(lambda leaf: leaf.at[hostile].set(far), delta)
    equal = Cohort(cohort.ids, jnp.where(cohort.active, 1 / 7, 0), cohort.active)
    honest = np.asarray(values[2:], np.float32)
    low, high = honest.min(axis=0), honest.max(axis=0)
    for part in (Median(), TrimmedMean(0.3)):
        move = move_of(part, delta, equal)
        slack = 1e-5 * np.abs(honest).max()
        assert np.all((low - slack <= move) & (move <= high + slack)), part
    chosen = move_of(Krum(2), delta, equal)
    assert np.any(np.all(chosen == honest, axis=1)) or abs(far) < 10, "Krum took a hostile update"


def test_clients_without_weight_have_no_say():
    delta = jnp.asarray([1.0, 2.0, 50.0, 60.0])
    cohort = Cohort(jnp.arange(4, dtype=jnp.int32), jnp.asarray([0.5, 0.5, 0.0, 0.0]))
    for part in (Median(), TrimmedMean(0.25)):
        assert float(moved(jax.tree.map(jnp.asarray, part), delta, cohort, P, None)[0]) == 1.5
    nobody = Cohort(cohort.ids, jnp.zeros(4))
    for part in (Median(), TrimmedMean(0.25), Krum(0), Extrapolate()):
        assert float(moved(jax.tree.map(jnp.asarray, part), delta, nobody, P, None)[0]) == 0.0


def test_krum_does_not_take_a_client_without_weight():
    delta = jnp.asarray([1.0, 1.2, 1.1, 1.6, 9.0])
    cohort = Cohort(jnp.arange(5, dtype=jnp.int32), jnp.asarray([0.4, 0.3, 0.0, 0.2, 0.1]))
    assert float(moved(Krum(0), delta, cohort, P, None)[0]) == np.float32(1.2)


def test_the_median_of_very_many():
    rows = 100_001
    delta = jnp.exp(jnp.linspace(-1.0, 1.0, rows))
    cohort = Cohort(jnp.arange(rows, dtype=jnp.int32), jnp.full(rows, 1 / rows))
    assert float(moved(Median(), delta, cohort, P, None)[0]) == float(delta[rows // 2])


def test_models_are_not_averaged_by_weights_that_do_not_sum_to_one():
    problem = pf.Problem(pf.losses.squared, pf.populations.Gaussian(np.arange(4.0), 0.5, 1.0))
    for who in (pf.Available(0.5), pf.LocalWork(pf.Available(0.5), [1, 2, 1, 2])):
        with pytest.raises(ValueError, match="do not sum to one, and the model does not converge"):
            pf.run(problem, pf.p_fedavg(0.1, participation=who, aggregator=Mean(of="models")), 2, theta=0.0)


def test_krum_tells_long_updates_apart_by_little():
    # Squares of 1e4 leave float32 no room for differences of 0.1; the differences themselves do.
    delta = 1e4 + jnp.asarray([0.0, 0.1, 0.2, 0.3, 9.0])
    cohort = Cohort(jnp.arange(5, dtype=jnp.int32), jnp.full(5, 0.2))
    assert float(moved(Krum(1), delta, cohort, P, None)[0]) in (float(delta[1]), float(delta[2]))


MEANS = np.asarray([1.0, 1.5, 2.5, 3.0, 4.5, 5.0, 900.0])
BETWEEN = np.sort(MEANS)[1:-1].mean()


@pytest.mark.parametrize(
    ("part", "middle"),
    [
        pytest.param(Median(), 3.0, id="Median"),
        pytest.param(TrimmedMean(1 / 7), BETWEEN, id="TrimmedMean", marks=pytest.mark.slow),
        pytest.param(Krum(1), krum(MEANS[:, None], np.ones(7), 1, 1)[0], id="Krum", marks=pytest.mark.slow),
    ],
)
def test_where_robust_moves_settle(part, middle):
    # delta_i = eta (m_i - (1 - eps) theta): the move vanishes at middle(m) / (1 - eps).
    problem = pf.Problem(pf.losses.squared, pf.populations.Gaussian(MEANS, 0.5, 0.0))
    history = pf.run(
        problem, pf.p_fedavg(0.8, aggregator=part), 60, theta=0.0, record=pf.Record(risks=False), dtype="float64"
    )
    assert float(history.final[0]) == pytest.approx(2 * middle, rel=1e-6)
    mean = np.mean(MEANS) * 2
    assert abs(float(history.final[0]) - mean) > 200, "one client of seven drags the mean that far"


@pytest.mark.parametrize(
    ("part", "participation", "says"),
    [
        (Krum(2), pf.SchemeTwo(6), r"Krum\(byzantine=2\) needs at least .* = 7 clients per round; SchemeTwo takes 6"),
        (Krum(1, multi=5), pf.SchemeOne(5), r"multi <= 4"),
        (TrimmedMean(0.1), pf.SchemeTwo(5), r"TrimmedMean\(fraction=0.1\) drops less than one of the 5 .* >= 0.2"),
        (TrimmedMean(0.4), pf.SchemeTwo(2), r"needs at least 3 clients per round; there are 2"),
        (Extrapolate(Krum(2)), pf.SchemeTwo(6), r"Krum\(byzantine=2\)"),
        (ClusterVarp([0, 1]), pf.Full(), r"cluster of 2 clients; there are 12"),
        (ClusterVarp([0, 2] * 6), pf.Full(), r"no client belongs to cluster 1"),
        (ClusterVarp(13), pf.Full(), r"only 12 clients"),
    ],
)
def test_what_a_cohort_cannot_serve_is_refused(part, participation, says):
    with pytest.raises(ValueError, match=says):
        part.check(np.asarray(P), participation)


def test_what_a_cohort_can_serve_is_taken():
    for part in (
        Krum(2),
        Krum(2, 5),
        TrimmedMean(0.2),
        TrimmedMean(0.0),
        Median(),
        ClusterVarp(12),
        ClusterVarp([0] * 12),
    ):
        part.check(np.asarray(P), pf.SchemeTwo(7))


@pytest.mark.parametrize(
    ("make", "says"),
    [
        (lambda: TrimmedMean(0.5), r"must lie in \[0, 0.5\); got 0.5"),
        (lambda: TrimmedMean(np.nan), "fraction must be finite"),
        (lambda: Krum(-1), "byzantine must be a whole number of clients >= 0; got -1"),
        (lambda: Krum(1, 0), "multi must be a whole number >= 1"),
        (lambda: Extrapolate(cap=0.5), "cap must be >= 1"),
        (lambda: Extrapolate(eps=0.0), "eps must be above 0"),
        (lambda: ClusterVarp(0), "clusters must be a whole number >= 1"),
        (lambda: ClusterVarp([0.5, 1.0]), "a list with the cluster"),
        (lambda: ClusterVarp([]), "a list with the cluster"),
        (lambda: ClusterVarp([-1, 0]), "a list with the cluster"),
    ],
)
def test_impossible_settings_are_refused(make, says):
    with pytest.raises(ValueError, match=says):
        make()


@quickly_compiled
def server_step(part, delta, cohort):
    return part.server_step(uploads(delta), cohort)


@FEW
@given(SEEDS, st.sampled_from([None, 1.5]), st.sampled_from([1e-3, 0.3]))
def test_the_server_step_of_fedexp(seed, cap, eps):
    values, times, delta, cohort = a_round(seed)
    share = times / times.sum()
    mean, spread = share @ values, share @ np.sum(values**2, axis=1)
    step = max(1.0, spread / (2 * (mean @ mean + eps)))
    step = step if cap is None else min(step, cap)
    part = Extrapolate(cap=cap, eps=eps)
    move = move_of(part, delta, cohort)
    np.testing.assert_allclose(move, step * mean, rtol=2e-4, atol=1e-5)
    if step > 1:
        assert np.linalg.norm(move) <= spread / (4 * np.sqrt(eps)) * (1 + 1e-5)
    assert float(server_step(jax.tree.map(jnp.asarray, part), delta, cohort)) == pytest.approx(step, rel=1e-4)


def extrapolated(mean, sensitivity, rate, rounds, cap, eps=1e-3):
    """FedExP with one local step on noise-free data that react at once."""
    theta, path = 0.0, [0.0]
    for _ in range(rounds):
        delta = rate * (mean - (1 - sensitivity) * theta)
        step = max(1.0, np.mean(delta**2) / (2 * (np.mean(delta) ** 2 + eps)))
        theta = theta + (step if cap is None else min(step, cap)) * np.mean(delta)
        path.append(theta)
    return np.asarray(path)


FEDEXP_MEAN, FEDEXP_EPS = np.asarray([1.0, 2.0, -1.0, 3.0]), np.asarray([1.95, 0.6, 0.6, 0.6])


def test_fedexp_without_a_cap_diverges_under_performative_shift():
    # Far out delta_i = -lambda_i theta, lambda = 1 - eps: eta_g lambda_bar -> mean(lambda^2) / (2 lambda_bar) = 2.8,
    # so theta grows by 1.8 a round, though FedAvg shrinks the distance to the stable point by 1 - lambda_bar = 0.94.
    slope = 1 - FEDEXP_EPS
    grows = abs(1 - np.mean(slope**2) / (2 * np.mean(slope)))
    stable = FEDEXP_MEAN.mean() / slope.mean()
    problem = pf.Problem(pf.losses.squared, pf.populations.Gaussian(FEDEXP_MEAN, FEDEXP_EPS, 0.0))
    paths = {}
    for cap in (1.0, 5.0, 1e9):
        algorithm = pf.p_fedavg(1.0, aggregator=Extrapolate(cap=cap))
        history = pf.run(problem, algorithm, 60, theta=0.0, record=pf.Record(risks=False, limit=1e40), dtype="float64")
        paths[cap] = np.asarray(history.theta)[0]
        np.testing.assert_allclose(paths[cap][:30], extrapolated(FEDEXP_MEAN, FEDEXP_EPS, 1.0, 29, cap), rtol=1e-6)
    assert abs(paths[1e9][-1] / paths[1e9][-2]) == pytest.approx(grows, rel=1e-6)
    assert abs(paths[1e9][-1]) > 1e10
    assert paths[5.0][-1] == pytest.approx(stable, rel=1e-6)
    assert abs(paths[5.0][-1] - stable) < 1e-4 * abs(paths[1.0][-1] - stable), "a larger step gets there sooner"


def history_of(theta, rounds):
    empty = np.zeros(0)
    return History(theta, np.asarray(rounds), {}, empty, {}, empty, None, np.full(len(theta), -1), {})


def test_the_model_that_fedexp_hands_out():
    theta = np.asarray([[0.0, 1.0, 5.0], [0.0, 2.0, 4.0]])
    np.testing.assert_array_equal(mean_of_last_two(history_of(theta, [0, 1, 2])), [3.0, 3.0])
    for rounds in ([0, 5, 10], [4]):
        with pytest.raises(ValueError, match='theta="all"'):
            mean_of_last_two(history_of(theta[:, : len(rounds)], rounds))


def test_extrapolate_hands_on_what_inner_keeps_and_says():
    theta = {"a": jnp.zeros(2), "b": jnp.zeros(())}
    _, _, delta, cohort = a_round(3)
    memory = Varp().init(theta, CLIENTS, {})
    inner, after = moved(Varp(), delta, cohort, P, memory)
    outer, after_too = moved(jax.tree.map(jnp.asarray, Extrapolate(Varp(), cap=1.0)), delta, cohort, P, memory)
    jax.tree.map(np.testing.assert_array_equal, (inner, after), (outer, after_too))
    assert Extrapolate(Mean()).broadcast(None) == {}


def cluster_loop(member, memory, values, times, ids, p):
    """One round of ClusterVarp, client by client."""
    weight = times / times.sum()
    move = sum(w * (v - memory[member[i]]) for w, v, i in zip(weight, values, ids, strict=True))
    move = move + sum(p[i] * memory[member[i]] for i in range(len(p)))
    after = memory.copy()
    for c in set(member):
        mine = [k for k, i in enumerate(ids) if member[i] == c]
        if mine:
            after[c] = np.average(values[mine], axis=0, weights=times[mine])
    return move, after


@pytest.mark.parametrize("clusters", [1, 3, [0, 2, 1, 1, 0, 2, 2, 2, 0, 1, 3, 3]], ids=["one", "modulo", "list"])
def test_cluster_varp_is_its_equation(clusters):
    part = ClusterVarp(clusters)
    member = np.arange(CLIENTS) % clusters if isinstance(clusters, int) else np.asarray(clusters)
    assert part.count == max(member) + 1
    p = np.random.default_rng(0).dirichlet(np.ones(CLIENTS))
    memory, known = part.init({"a": jnp.zeros(2), "b": jnp.zeros(())}, CLIENTS, {}), np.zeros((part.count, 3))
    for seed in range(6):
        values, times, delta, cohort = a_round(seed)
        ids = np.asarray(cohort.ids)[np.asarray(cohort.active)]
        move, memory = moved(part, delta, cohort, jnp.asarray(p, jnp.float32), memory)
        wanted, known = cluster_loop(member, known, values, times, ids, p)
        np.testing.assert_allclose(np.append(move["a"], move["b"]), wanted, rtol=1e-4, atol=1e-6)
        np.testing.assert_allclose(np.column_stack([memory["a"], memory["b"]]), known, rtol=1e-5, atol=1e-6)


def test_a_cluster_a_client_is_varp():
    memory = [
        part.init({"a": jnp.zeros(2), "b": jnp.zeros(())}, CLIENTS, {}) for part in (Varp(), ClusterVarp(CLIENTS))
    ]
    for seed in range(5):
        _, _, delta, cohort = a_round(seed)
        moves = []
        for at, part in enumerate((Varp(), ClusterVarp(CLIENTS))):
            move, memory[at] = moved(part, delta, cohort, P, memory[at])
            moves.append(move)
        jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-6), *moves)
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-6), memory[0].last, memory[1])
