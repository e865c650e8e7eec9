"""Image classifiers whose clients sample the classes they get wrong more often (Jin et al. 2024, Section 4.3)."""

import functools
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Float, Int

from performative import data as sets
from performative._base.arguments import checked
from performative._base.checks import check_counts, nearest
from performative._base.messages import warn
from performative.data import Table
from performative.facts import cites
from performative.losses import cross_entropy
from performative.populations import Reweighted
from performative.problem import Problem
from performative.types import Theta

# Images per class that a client trains on and holds out. Digits: the most for five clients if a fifth is for testing.
_SIZES = {"fashion_mnist": (500, 500), "cifar10": (100, 100), "digits": (13, 13)}
# Test images scored at once.
_BLOCK = 500


@dataclass(frozen=True, eq=False, repr=False)
class Images:
    """Returned by `pf.cases.images`: clients with their own images, and test images that no client has.

        theta, network = pf.networks.mlp(784, 10)
        history = pf.run(images.problem(network), algorithm, rounds=100, theta=theta)
        images.accuracy(network, jax.tree.map(lambda leaf: leaf[0], history.final))

    Attributes:
        population: the clients
        test_x: uint8 [m, ...], test_y: [m]
        classes: names of the classes
        each: images per class that a client trains on; held_out: images per class that it evaluates on

    A network is anything that maps (theta, x) to class scores, x being ONE image with pixels in 0..1, of shape `shape`:
    (height, width), or (height, width, channels).
    """

    population: Reweighted
    test_x: np.ndarray
    test_y: np.ndarray
    classes: tuple[str, ...]
    each: Int[np.ndarray, " C"]
    held_out: Int[np.ndarray, " C"]

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of one image."""
        return self.test_x.shape[1:]

    def problem(self, network: Callable[[Theta, Any], Any]) -> Problem:
        """The cross-entropy problem of this network on these clients."""
        return Problem(cross_entropy(network), self.population)

    def accuracy(self, network: Callable[[Theta, Any], Any], theta: Theta) -> float:
        """Accuracy of one model on the test images."""
        return float(np.mean(self._right(network, theta)))

    def class_accuracy(self, network: Callable[[Theta, Any], Any], theta: Theta) -> Float[np.ndarray, " C"]:
        """Accuracy on the test images of each class."""
        right = np.bincount(self.test_y, self._right(network, theta), minlength=len(self.classes))
        return right / np.bincount(self.test_y, minlength=len(self.classes))

    def _right(self, network: Any, theta: Theta) -> np.ndarray:
        theta = jax.tree.map(jnp.asarray, theta)
        return np.asarray(_predict(network, theta, self.test_x, np.float32(self.population.scale))) == self.test_y

    def __repr__(self) -> str:
        clients, m = self.population.y.shape
        return f"Images({clients} clients, {m} + {int(self.held_out.sum())} images each, {len(self.test_y)} for tests)"


@cites("jin2024performative")
@checked
def images(
    data: str = "fashion_mnist",
    clients: int = 5,
    each: int | None = None,
    held_out: int | None = None,
    temperature: Any = 0.5,
    by: str = "loss",
    seed: int = 0,
    *,
    path: str | Path | None = None,
) -> Images:
    """Images of ten classes on clients that draw classes with weights w_k ~ exp(temperature * loss_k). Figure 3.

    Args:
        data: "fashion_mnist", "cifar10", or "digits" (8x8, from scikit-learn, needs no download)
        each, held_out: images per class that a client trains on, and on which it measures loss_k. None for 500 + 500
            (Fashion-MNIST), 100 + 100 (CIFAR-10) or 13 + 13 (digits). No image is used twice
        temperature: a number, or one per client; 0 is the static baseline
        by: "loss" or "accuracy"; see `pf.populations.Reweighted`
        seed: for assigning images to clients
        path: the folder with the data, as in `pf.data`

    If a class has too few images, all clients get the same number of it, in the same proportion, with a warning
    (CIFAR-10's first batch alone does not have 200 dogs for each of five clients). Test images are the official ones;
    for digits, every fifth image.
    Differs from the authors' code, which keeps the sampling unchanged and rescales the learning rate.
    """
    if data not in _SIZES:
        raise ValueError(f"images: data={data!r} is not known.{nearest(str(data), _SIZES)}")
    train, test, brightest = _load(data, path)
    each, held_out = (
        default if given is None else given for given, default in zip((each, held_out), _SIZES[data], strict=True)
    )
    check_counts(clients=clients, each=each, held_out=held_out)
    rng = np.random.default_rng(seed)
    rows: tuple[list[np.ndarray], list[np.ndarray]] = ([], [])
    short = []
    for k, name in enumerate(train.classes):
        mine = rng.permutation(np.flatnonzero(train.y == k))
        there = len(mine) // clients
        learn, measure = _share(each, held_out, there)
        if not (learn and measure):
            raise ValueError(
                f"images: {data} has {len(mine)} training images of class {name!r}, too few for clients={clients} "
                f"with at least one to train on and one to hold out; use fewer clients."
            )
        if (learn, measure) != (each, held_out):
            short.append(f"{learn} + {measure} of {name!r}")
        hands = mine[: clients * (learn + measure)].reshape(clients, learn + measure)
        rows[0].append(hands[:, :learn])
        rows[1].append(hands[:, learn:])
    if short:
        warn(
            "too-few-images",
            f"images: {data} has too few images for {clients} clients with {each} + {held_out} of each class; "
            f"they get {', '.join(short)}.",
        )
    own, apart = (np.concatenate(hands, axis=1) for hands in rows)
    population = Reweighted(
        train.x[own], train.y[own], temperature, classes=len(train.classes),
        held_out=(train.x[apart], train.y[apart]), by=by, scale=1 / brightest,
    )  # fmt: skip
    counts = (np.asarray([hands.shape[1] for hands in part]) for part in rows)
    return Images(population, test.x, test.y, train.classes, *counts)


def _share(each: int, held_out: int, there: int) -> tuple[int, int]:
    """How many images to train on and to hold out if at most `there` are available."""
    if each + held_out <= there:
        return each, held_out
    learn = min(max(1, -(-there * each // (each + held_out))), there - 1)
    return learn, there - learn


def _load(name: str, path: str | Path | None) -> tuple[Table, Table, int]:
    """Training and test images as uint8, and the maximum pixel value."""
    if name == "digits":
        table = sets.digits()
        pixels = Table(
            name, table.x.astype(np.uint8).reshape(-1, 8, 8), table.y, (), table.classes, table.source, table.license
        )
        tests = np.arange(len(table)) % 5 == 0
        return pixels.take(~tests), pixels.take(tests), 16
    load = {"fashion_mnist": sets.fashion_mnist, "cifar10": sets.cifar10}[name]
    train, test = (load(split, path=path) for split in ("train", "test"))
    return train, test, 255


@functools.partial(jax.jit, static_argnums=0)
def _predict(network: Any, theta: Theta, x: Any, scale: Any) -> Any:
    """The class with the highest score for each image."""
    dtype = jnp.result_type(*jax.tree.leaves(theta))

    def one(image: Any) -> Any:
        return jnp.argmax(network(theta, image.astype(dtype) * scale.astype(dtype)))

    return jax.lax.map(one, x, batch_size=_BLOCK)
