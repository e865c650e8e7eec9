"""Images whose classes are drawn by the clients' own losses (Jin et al. 2024, Section 4.3, Figure 3)."""

import os
from pathlib import Path

import jax
import numpy as np
import pytest

import performative as pf

BESIDE = Path(__file__).parents[3] / "shared" / "data"


def published(folder):
    """The folder with the published files; skips where this set is not there."""
    place = Path(os.environ.get("PERFORMATIVE_DATA") or BESIDE)
    if not (place / folder).is_dir():
        pytest.skip(f"no {folder} here: looked into PERFORMATIVE_DATA and {BESIDE}")
    return place


def learn(images, model, rounds, rate, offset, local_steps, batch, repeats=1):
    """P-FedAvg with momentum 0.5 and eta = rate / (1 + r / offset) in round r; the history, the first repeat's model.

    The paper's text gives no step; reports of it read 0.1 / (20 + ...). It deploys after every local step, which here
    would measure all held-out images as often; the model of a round is deployed once.
    """
    theta, network = model
    algorithm = pf.p_fedavg(
        rate=pf.schedules.harmonic(rate * offset * local_steps, offset * local_steps),
        local_steps=local_steps,
        batch=pf.Fixed(batch),
        deploy="round",
        estimator=pf.estimators.Preconditioned(pf.estimators.Minibatch(), pf.optimizers.Momentum(0.5)),
    )
    history = pf.run(
        images.problem(network),
        algorithm,
        rounds,
        theta=theta,
        record=pf.Record(theta="last", risks=False),
        repeats=repeats,
    )
    return history, jax.tree.map(lambda leaf: leaf[0], history.final)


def decay(history):
    """Mean distance of the last 20 rounds over that of the first 5 from one aggregation to the next.

    Row 0 is the start, and row 1 leads from even class weights to those of the untrained network.
    """
    distance = history["tv_distance"]
    return distance[:, -20:].mean(axis=1) / distance[:, 2:7].mean(axis=1)


@pytest.mark.slow
def test_digits_settle_unless_clients_react_too_strongly():
    model = pf.networks.mlp(64, 10, width=32)
    settings = {"rounds": 100, "rate": 0.5, "offset": 10, "local_steps": 5, "batch": 64, "repeats": 4}
    images = pf.cases.images("digits")
    history, theta = learn(images, model, **settings)
    assert np.all(decay(history) < 0.1)
    assert images.accuracy(model[1], theta) > 0.9
    # Each round all look at what the last model got wrong, and the next one gets wrong what they left.
    strong, _ = learn(pf.cases.images("digits", temperature=5.0), model, **settings)
    assert strong["tv_distance"][:, -20:].mean() > 20 * history["tv_distance"][:, -20:].mean()


def test_clients_have_images_of_their_own():
    images = pf.cases.images("digits", clients=4, each=10, held_out=5)
    part = images.population
    assert images.shape == (8, 8) and part.x.shape == (4, 100, 8, 8) and part.measured_x.shape == (4, 50, 8, 8)
    for labels, count in ((part.y, 10), (part.measured_y, 5)):
        assert all(np.array_equal(np.bincount(row), np.full(10, count)) for row in labels)
    assert part.x.dtype == np.uint8 and part.x.max() * float(part.scale) == 1.0
    everyone = [part.x.reshape(-1, 64), part.measured_x.reshape(-1, 64), images.test_x.reshape(-1, 64)]
    assert len(np.unique(np.concatenate(everyone), axis=0)) == 400 + 200 + 360  # the set has no two equal images
    # Each image has its own label.
    table = pf.data.digits()
    label = {row.astype(np.uint8).tobytes(): y for row, y in zip(table.x, table.y, strict=True)}
    assert all(label[row.tobytes()] == y for row, y in zip(everyone[0], part.y.ravel(), strict=True))
    assert all(label[row.tobytes()] == y for row, y in zip(everyone[1], part.measured_y.ravel(), strict=True))
    assert all(label[row.tobytes()] == y for row, y in zip(everyone[2], images.test_y, strict=True))
    other = pf.cases.images("digits", clients=4, each=10, held_out=5, seed=1)
    assert not np.array_equal(other.population.x, part.x)


def scores(theta, x):
    """Always says 3."""
    return theta + 0.0 * x.sum()


def test_accuracy_counts_test_images():
    images = pf.cases.images("digits")
    share = np.bincount(images.test_y) / 360
    assert images.accuracy(scores, np.eye(10)[3]) == pytest.approx(share[3])
    np.testing.assert_array_equal(images.class_accuracy(scores, np.eye(10)[3]), np.eye(10)[3])


def test_too_few_images_are_shared_out_and_said():
    with pytest.warns(
        UserWarning, match=r"digits has too few .* 5 clients with 20 \+ 10.*they get 18 \+ 9 of '0'.*too-few-images"
    ):
        images = pf.cases.images("digits", each=20, held_out=10)
    assert images.each.tolist() == [18, 20, 20, 18, 19, 19, 20, 20, 18, 18]
    assert images.held_out.tolist() == [9, 10, 10, 9, 9, 9, 10, 10, 9, 8]
    with pytest.raises(ValueError, match=r"too few for clients=100"):
        pf.cases.images("digits", clients=100)
    with pytest.raises(ValueError, match=r"data='fashionmnist' is not known. Did you mean 'fashion_mnist'"):
        pf.cases.images("fashionmnist")
    with pytest.raises(ValueError, match=r"each must be a whole number >= 1; got 0"):
        pf.cases.images("digits", each=0)


@pytest.mark.slow
@pytest.mark.usefixtures("optimized_programs")
def test_fashion_mnist_settles_and_its_worst_class_gains():
    path = published("fashion_mnist")
    model = pf.networks.mlp(784, 10, width=196)
    settings = {"rounds": 150, "rate": 0.1, "offset": 4, "local_steps": 20, "batch": 256}
    images = pf.cases.images("fashion_mnist", path=path)
    assert images.population.x.shape == images.population.measured_x.shape == (5, 5000, 28, 28)
    history, theta = learn(images, model, **settings)
    assert decay(history)[0] < 0.1
    assert images.accuracy(model[1], theta) > 0.8
    _, static = learn(pf.cases.images("fashion_mnist", temperature=0.0, path=path), model, **settings)
    assert images.class_accuracy(model[1], theta).min() > images.class_accuracy(model[1], static).min()


@pytest.mark.slow
@pytest.mark.usefixtures("optimized_programs")
def test_cifar_falls_a_little():
    """Photographs on which a small network learns little: the distance falls, by far less than on Fashion-MNIST."""
    path = published("cifar10")
    with pytest.warns(UserWarning, match=r"94 \+ 93 of 'dog'"):
        images = pf.cases.images("cifar10", path=path)
    assert images.shape == (32, 32, 3)
    model = pf.networks.mlp(3072, 10, width=64)
    history, theta = learn(images, model, rounds=60, rate=0.1, offset=4, local_steps=20, batch=128, repeats=4)
    decays = decay(history)
    assert decays.mean() + 3 * decays.std(ddof=1) / 2 < 1  # three standard errors of four runs
    assert np.all(decays > 0.1)
    assert images.accuracy(model[1], theta) > 0.3
