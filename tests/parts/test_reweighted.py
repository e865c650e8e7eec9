"""Class weights that follow what a client measures on held-out rows, and really reweight what is sampled."""

import itertools

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from client_samples import DRAWS, one_client, samples
from scipy.stats import chisquare

import performative as pf
from performative.populations import Reweighted
from performative.tables import Packed
from performative.types import Scene

PART_EXAMPLES = {
    "pf.populations.Reweighted": (
        {
            "arguments": "x=X, y=Y, temperature=0.5",
            "loss": "pf.losses.logistic(0.1)",
            "theta": "np.zeros(X.shape[-1])",
        },
        {
            "arguments": "x=X, y=Y + (X[..., 0] > 0), temperature=2.0",
            "loss": "pf.losses.cross_entropy(pf.losses.linear_scores)",
            "theta": "np.zeros((3, 3))",
        },
    ),
}

RNG = np.random.default_rng(0)
N, M, APART, K, D = 2, 9, 7, 3, 4
X, HELD_X = RNG.integers(0, 256, (N, M, D), np.uint8), RNG.integers(0, 256, (N, APART, D), np.uint8)
Y = np.asarray([[2, 0, 1, 0, 2, 1, 0, 0, 1], [0, 0, 2, 0, 2, 2, 0, 0, 0]])  # client 1 has no class 1
HELD_Y = np.asarray([[0, 1, 2, 2, 1, 1, 1], [2, 0, 1, 0, 2, 2, 0]])
THETA = RNG.standard_normal((K, D))
LOSS = pf.losses.cross_entropy(pf.losses.linear_scores)

pytestmark = pytest.mark.usefixtures("double_precision")


def reweighted(temperature=2.0, **options):
    return Reweighted(X, Y, temperature, held_out=(HELD_X, HELD_Y), scale=1 / 255, **options)


@eqx.filter_jit
def settle(mine, theta, loss):
    """The weights of one client under theta."""
    return mine.settle(Scene(theta, loss))


def measured(client, values):
    """Mean of `values(scores, labels)` over each class of a client's held-out rows."""
    each = values(HELD_X[client] / 255 @ THETA.T, HELD_Y[client])
    return np.asarray([each[HELD_Y[client] == k].mean() for k in range(K)])


def entropy(scores, labels):
    return np.log(np.exp(scores).sum(axis=1)) - scores[np.arange(len(labels)), labels]


def hits(scores, labels):
    return (scores.argmax(axis=1) == labels).astype(float)


def softmax(client, values):
    """Over the classes that a client has rows of to train on; the others weigh 0."""
    powers = np.exp(values) * (np.bincount(Y[client], minlength=K) > 0)
    return powers / powers.sum()


@pytest.mark.parametrize("client", range(N))
def test_weights_follow_the_losses_of_held_out_rows_and_samples_follow_the_weights(client):
    mine = one_client(reweighted([2.0, 0.5]), client)
    world = settle(mine, jnp.asarray(THETA), LOSS)
    expected = softmax(client, [2.0, 0.5][client] * measured(client, entropy))
    np.testing.assert_allclose(world, expected, rtol=1e-10)
    x, y = samples(mine, jnp.asarray(THETA), world)
    # Only rows that are not held out are drawn, each with its label, and within a class evenly.
    rows = np.argmax(np.all(np.isclose(x[:, None], X[client] / 255), axis=2), axis=1)
    np.testing.assert_allclose(x, X[client][rows] / 255, rtol=1e-12)
    np.testing.assert_array_equal(Y[client][rows], y)
    share = (expected / np.maximum(np.bincount(Y[client], minlength=K), 1))[Y[client]]
    assert chisquare(np.bincount(rows, minlength=M), DRAWS * share).pvalue > 1e-4
    present = expected > 0
    assert chisquare(np.bincount(y, minlength=K)[present], DRAWS * expected[present]).pvalue > 1e-4


def test_weights_by_accuracy():
    for client in range(N):
        world = settle(one_client(reweighted(-1.5, by="accuracy"), client), jnp.asarray(THETA), LOSS)
        np.testing.assert_allclose(world, softmax(client, -1.5 * measured(client, hits)), rtol=1e-10)


def test_accuracy_of_a_logistic_model():
    theta, y = jnp.asarray(THETA[0]), Y % 2
    mine = one_client(Reweighted(X / 255 - 0.5, y, 3.0, by="accuracy"), 0)
    hit = (((X[0] / 255 - 0.5) @ THETA[0] > 0) == y[0]).astype(float)
    powers = np.exp([3.0 * hit[y[0] == k].mean() for k in range(2)])
    np.testing.assert_allclose(settle(mine, theta, pf.losses.logistic()), powers / powers.sum(), rtol=1e-10)


def test_blocks_change_nothing():
    whole, *parts = (settle(one_client(reweighted(block=rows), 0), jnp.asarray(THETA), LOSS) for rows in (None, 1, 3))
    for part in parts:
        np.testing.assert_allclose(part, whole, rtol=1e-12)


def test_bytes_stay_bytes_and_are_scaled_as_they_are_sampled():
    small, large = reweighted(), Reweighted(X / 255, Y, 2.0, held_out=(HELD_X / 255, HELD_Y))
    assert small.x.dtype == small.measured_x.dtype == np.uint8
    for client in range(N):
        bytes_, floats = one_client(small, client), one_client(large, client)
        assert bytes_.x.dtype == bytes_.measured_x.dtype == jnp.uint8
        theta = jnp.asarray(THETA)
        world = settle(bytes_, theta, LOSS)
        np.testing.assert_allclose(world, settle(floats, theta, LOSS), rtol=1e-12)
        drawn, other = samples(bytes_, theta, world, draws=50), samples(floats, theta, world, draws=50)
        np.testing.assert_allclose(drawn[0], other[0], rtol=1e-12)
    single = X.astype(np.float32)
    assert Reweighted(single, Y, 2.0).x.dtype == np.float32
    ordered = np.sort(Y, axis=1)
    assert Reweighted(X, ordered, 2.0).x is X  # rows that are in order are not copied
    table = Reweighted(Packed(X, 1 / 255), ordered, 2.0, held_out=(Packed(HELD_X, 1 / 255), HELD_Y))
    np.testing.assert_allclose(settle(one_client(table, 0), theta, LOSS), settle(one_client(small, 0), theta, LOSS))


def test_memory_of_measuring_is_bounded():
    """A hundred thousand held-out images: 78 MB of bytes that are gone through in blocks."""
    many, size = 100_000, 784
    images, labels = np.broadcast_to(X[:1, :1, :1], (1, many, size)), np.zeros((1, many), int)
    own = np.zeros((1, 4, size), np.uint8), np.zeros((1, 4), int)
    theta, network = pf.networks.mlp(size, 2, width=8)
    loss = pf.losses.cross_entropy(network)

    def temporary(block):
        part = Reweighted(*own, 1.0, held_out=(images, labels), block=block)
        assert part.measured_x is images
        mine = one_client(eqx.tree_at(lambda p: p.measured_x, part, own[0]), 0)

        def deploy(rows, theta):
            return eqx.tree_at(lambda p: p.measured_x, mine, rows).deploy(jnp.ones(1), Scene(theta, loss))

        rows = jax.ShapeDtypeStruct((many, size), np.uint8)
        return jax.jit(deploy).lower(rows, theta).compile().memory_analysis().temp_size_in_bytes

    assert temporary(None) < 20e6
    assert temporary(many) > many * size


# A loss whose gradient is the class of the sample: what a step does to theta counts who was sampled.
def chosen(theta, z):
    return theta[z[1]]


@pytest.mark.parametrize("deploy", ["round", pytest.param("never", marks=pytest.mark.slow)])
def test_a_run_trains_on_classes_as_often_as_their_weights_say(deploy):
    batch, rounds, start = 2000, 4, np.asarray([0.0, 1.0, 2.0])
    problem = pf.Problem(chosen, Reweighted(X, np.tile(np.arange(M) % K, (N, 1)), 1.5))
    algorithm = pf.p_fedavg(rate=1.0, batch=pf.Fixed(batch), deploy=deploy)
    history = pf.run(problem, algorithm, rounds, theta=start, dtype="float64", record=pf.Record(risks=False))
    models = history.theta[0]
    drawn = np.rint(-np.diff(models, axis=0) * N * batch)
    felt = models[:-1] if deploy == "round" else np.repeat(start[None], rounds, axis=0)
    weights = np.exp(1.5 * felt) / np.exp(1.5 * felt).sum(axis=1, keepdims=True)
    assert chisquare(drawn.ravel(), (N * batch * weights).ravel(), ddof=rounds - 1).pvalue > 1e-4
    # The recorded distances are those of the weights, the first from the shares of the rows.
    weights = np.concatenate([[np.full(K, 1 / K)], weights])
    expected = 0.5 * np.abs(np.diff(weights, axis=0)).sum(axis=1)
    np.testing.assert_allclose(history["tv_distance"][0], [np.nan, *expected], atol=1e-12)


@pytest.mark.slow
def test_tv_distance_is_the_mean_over_clients():
    algorithm = pf.p_fedavg(rate=0.5, local_steps=2, batch=pf.Fixed(4), deploy="round")
    problem = pf.Problem(LOSS, reweighted([4.0, 1.0]))
    history = pf.run(problem, algorithm, 3, theta=THETA, dtype="float64", record=pf.Record(risks=False))
    each = []
    for client in range(N):
        mine = one_client(reweighted([4.0, 1.0]), client)
        worlds = [mine.init(Scene(jnp.asarray(THETA), LOSS))]
        worlds += [settle(mine, jnp.asarray(model), LOSS) for model in history.theta[0][:-1]]
        each.append([float(mine.world_metrics(a, b)["tv_distance"]) for a, b in itertools.pairwise(worlds)])
    np.testing.assert_allclose(history["tv_distance"][0][1:], np.mean(each, axis=0), rtol=1e-9)
    assert np.all(np.diff(each, axis=0) != 0)


def refused(message, x=X, **options):
    with pytest.raises(ValueError, match=message):
        Reweighted(x, Y, 0.5, **options)


def test_bad_input():
    refused(r'by must be "loss" or "accuracy"; got .margin.', by="margin")
    refused(r"scale must be one number; got shape \(2,\)", scale=[1.0, 2.0])
    refused(r"x is a Packed, whose rows cannot be reordered.*sort each client's rows", x=Packed(X, 1 / 255))
    refused(r"scale must be finite", scale=np.nan)
    refused(r"block must be a whole number >= 1; got 0", block=0)
    refused(r"held_out must be \(x, y\) or \(x, y, count\); got ndarray", held_out=HELD_X)
    refused(r"held_out's x must be \[clients, rows, ...\]", held_out=(HELD_X, HELD_Y[:, :3]))
    refused(r"same clients, shape and dtype as x, uint8 \[2, ..., 4\]; got float64", held_out=(HELD_X / 255, HELD_Y))
    refused(r"same clients, shape and dtype as x", held_out=(HELD_X[..., :2], HELD_Y))
    refused(r"same clients, shape and dtype as x", held_out=(HELD_X[:1], HELD_Y[:1]))
    refused(r"held_out's y contains class 3, but there are 3 classes", held_out=(HELD_X, HELD_Y + 1))
    without = np.where(HELD_Y == 2, 0, HELD_Y)
    refused(r"client 0 has 2 rows of class 2 but none in held_out", held_out=(HELD_X, without))
