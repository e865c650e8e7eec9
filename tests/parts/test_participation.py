"""Who takes part: unbiased weights, latencies, unequal work."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import performative as pf
from performative.participation import Exponential, LogNormal, Selection, UniformLatency, UniformSteps

PART_EXAMPLES = {
    "pf.FirstK": (
        "k=K, latency=pf.participation.Exponential()",
        "k=K, latency=pf.participation.Exponential(np.arange(1.0, N + 1))",
    ),
    "pf.LocalWork": (
        "inner=pf.SchemeTwo(K), steps=[1 + i % 2 for i in range(N)]",
        "inner=pf.SchemeOne(K), steps=[1, 2, 3, 2, 1, 3, 1]",
    ),
    "pf.participation.Weighted": "k=K, chance=np.arange(1.0, N + 1)",
    "pf.participation.UniformSteps": {"arguments": "lo=1, hi=2", "inside": "pf.LocalWork(pf.SchemeTwo(K), {})"},
}

P = np.asarray([0.4, 0.3, 0.1, 0.1, 0.1])
DRAWS = 20_000


def select(scheme, weights=P, draws=DRAWS):
    """Many cohorts of one scheme, in float64."""
    with jax.enable_x64(True):
        tables = jax.tree.map(jnp.asarray, scheme.tables(weights))
        selection = Selection(jnp.asarray(weights), tables, jnp.asarray(0), jnp.zeros(()))
        many = jax.jit(jax.vmap(lambda key: scheme.select(key, selection, scheme.init(len(weights)))[0]))
        return jax.tree.map(np.asarray, many(jax.random.split(jax.random.key(0), draws)))


def by_client(cohorts, rows, clients=5):
    """Rows of cohorts as [draws, clients]; spare rows carry the id N and fall off the end."""
    out = np.zeros((len(rows), clients + 1))
    np.put_along_axis(out, cohorts.ids, rows, axis=1)
    return out[:, :clients]


@pytest.mark.parametrize(
    "scheme",
    [pf.SchemeOne(3), pf.SchemeTwo(2), pf.FirstK(2, Exponential(3.0))],
    ids=lambda scheme: type(scheme).__name__,
)
def test_weights_are_unbiased(scheme):
    cohorts = select(scheme)
    weight = by_client(cohorts, cohorts.weight)
    error = weight.std(axis=0) / np.sqrt(DRAWS)
    assert np.all(np.abs(weight.mean(axis=0) - P) < 4 * error)
    total = weight.sum(axis=1)
    if scheme.sums_to_one:
        np.testing.assert_allclose(total, 1.0, rtol=1e-12)
        np.testing.assert_allclose(weight * 3, np.round(weight * 3), atol=1e-12)
    else:
        # Var(sum of weights) = (N-K)(N sum p^2 - 1)/(K(N-1)): what makes averaging models diverge.
        expected = (5 - 2) * (5 * np.sum(P**2) - 1) / (2 * 4)
        fourth = np.mean((total - total.mean()) ** 4)
        assert abs(total.var() - expected) < 4 * np.sqrt((fourth - expected**2) / DRAWS)


def test_the_first_k_of_equal_clients_are_scheme_two():
    cohorts = select(pf.FirstK(3, UniformLatency(10.0)))
    present = by_client(cohorts, np.ones_like(cohorts.weight))
    together = present.T @ present / DRAWS
    for pair in np.argwhere(~np.eye(5, dtype=bool)):
        assert abs(together[tuple(pair)] - 0.3) < 4 * np.sqrt(0.3 * 0.7 / DRAWS)  # K(K-1)/(N(N-1)) = 6/20
    # The third of five uniform times on (0, 10) is 10 Beta(3, 3): mean 10 K/(N+1), variance 100 * 9/(36 * 7).
    assert abs(cohorts.elapsed.mean() - 10 * 3 / 6) < 4 * np.sqrt(100 * 9 / 252 / DRAWS)


def test_the_server_waits_for_the_kth_answer():
    latency, key = LogNormal(np.arange(1.0, 7.0), 0.5), jax.random.key(3)
    with jax.enable_x64(True):
        selection = Selection(jnp.full(6, 1 / 6), None, jnp.asarray(0), jnp.zeros(()))
        cohort, _ = pf.FirstK(4, latency).select(key, selection, None)
        time = np.asarray(latency.draw(jax.random.split(key)[0], 6))
    assert float(cohort.elapsed) == np.sort(time)[3]
    assert set(np.asarray(cohort.ids).tolist()) == set(np.argsort(time)[:4].tolist())


def test_fast_clients_are_heard_more_often():
    cohorts = select(pf.FirstK(2, Exponential([1.0, 1.0, 1.0, 1.0, 9.0])), draws=4000)
    heard = by_client(cohorts, np.ones_like(cohorts.weight)).mean(axis=0)
    assert heard[4] < heard[:4].min() / 3


@pytest.mark.parametrize(
    ("latency", "mean", "variance"),
    [
        (Exponential([1.0, 2.0, 5.0]), [1.0, 2.0, 5.0], [1.0, 4.0, 25.0]),
        # exp(s Z) has mean exp(s^2/2) and variance exp(s^2)(exp(s^2) - 1).
        (LogNormal(2.0, 0.5), [2 * np.exp(0.125)] * 3, [4 * np.exp(0.25) * (np.exp(0.25) - 1)] * 3),
        (UniformLatency(6.0), [3.0] * 3, [3.0] * 3),
    ],
    ids=lambda value: type(value).__name__,
)
def test_latencies_have_the_stated_means(latency, mean, variance):
    keys = jax.random.split(jax.random.key(1), DRAWS)
    times = np.asarray(jax.vmap(lambda key: latency.draw(key, 3))(keys), np.float64)
    assert times.min() > 0 or isinstance(latency, UniformLatency)
    assert np.all(np.abs(times.mean(axis=0) - mean) < 4 * np.sqrt(np.asarray(variance) / DRAWS))


def test_local_work_goes_with_the_client():
    taus = np.asarray([1, 2, 3, 4, 5])
    cohorts = select(pf.LocalWork(pf.SchemeOne(3), taus), draws=500)
    real = cohorts.active
    assert not np.all(real)
    np.testing.assert_array_equal(cohorts.steps[real], taus[cohorts.ids[real]])
    drawn = select(pf.LocalWork(pf.Full(), UniformSteps(2, 4)))
    counts = np.stack([np.sum(drawn.steps == tau, axis=0) for tau in (2, 3, 4)])
    assert counts.sum() == drawn.steps.size
    assert np.all(np.abs(counts - DRAWS / 3) < 4 * np.sqrt(DRAWS * 2 / 9))
    # Clients draw their work by themselves.
    pairs = np.corrcoef(drawn.steps.T)[~np.eye(5, dtype=bool)]
    assert np.all(np.abs(pairs) < 4.5 / np.sqrt(DRAWS))


def test_local_work_sets_the_largest_number_of_steps():
    work = pf.LocalWork(pf.Full(), [1, 3, 2])
    assert pf.p_fedavg(rate=0.1, participation=work).steps == 3
    assert pf.p_fedavg(rate=0.1, participation=work, local_steps=3).steps == 3
    assert pf.p_fedavg(rate=0.1, participation=pf.LocalWork(pf.Full(), UniformSteps(1, 6))).steps == 6
