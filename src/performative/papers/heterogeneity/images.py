"""Image classifiers on clients with few classes each: the slides' methods compared, and cyclic groups."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import performative as pf
from performative import data as sets
from performative.aggregators import ClusterVarp, Extrapolate, Mean, ServerOpt, Varp
from performative.optimizers import Adagrad
from performative.papers.outcome import Outcome, mean, over
from performative.papers.runs import sweep, word


def methods(
    data: str, network: str, clients: int, k: int, rows: int, alpha: float, temperature: float, tau: int, batch: int,
    rates: list[float], cap: float, server_rates: list[float], clusters: int, which: list[str], rounds: int, every: int,
    repeats: int, seed: int,
) -> Outcome:  # fmt: skip
    """k clients per round; each method at its best rate.

    temperature = 0: static data; above 0, clients upweight classes they get wrong. If FedExP is among the methods, all
    are evaluated at the mean of their last two models, as its authors do.
    """
    x, y, test = load(data)
    kinds, hands = deal(y, clients, rows, alpha, seed)
    theta, model = make(network, x.shape[1:], seed)
    if temperature:
        population: Any = pf.populations.Reweighted(x[hands], y[hands], temperature, classes=10)
    else:
        population = pf.populations.Static(x[hands], y[hands])
    problem = pf.Problem(pf.losses.cross_entropy(model), population)
    common: dict[str, Any] = {
        "local_steps": tau, "batch": pf.Fixed(batch), "participation": pf.SchemeTwo(k), "deploy": "round"
    }  # fmt: skip
    groups = np.unique(kinds % clusters, return_inverse=True)[1]  # the same most frequent class: one memory
    parts: dict[str, list[Any]] = {
        "FedAvg": [Extrapolate(cap=1.0) if "FedExP" in which else Mean()],
        "FedExP": [Extrapolate(cap=cap)],
        "FedAdagrad": [ServerOpt(Mean(), Adagrad(1e-6), step) for step in server_rates],
        "FedVARP": [Varp()],
        "ClusterFedVARP": [ClusterVarp(groups)],
    }

    def made(name: str, rate: float) -> list[Any]:
        if name == "SCAFFOLD":
            return [pf.scaffold(rate, **common)]
        return [pf.p_fedavg(rate, aggregator=part, **common) for part in parts[name]]

    settings = {(name, rate, i): {"algorithm": one} for name in which for rate in rates
                for i, one in enumerate(made(name, rate))}  # fmt: skip
    two = "FedExP" in which
    first = next(iter(settings.values()))["algorithm"]
    how: dict[str, Any] = {"theta": "all", "every": 1 if two else every, "dtype": "float32"}
    runs = sweep(problem, first, settings, rounds, theta, seed, repeats, **how)
    right = best(model, runs, test, every if two else 0)
    end = {name: late(values) for name, values in right.items()}
    numbers: dict[str, Any] = {word(name): mean(values) for name, values in end.items()}
    for one in which:
        numbers |= {f"{word(one)}_over_{word(other)}": mean(end[one] - end[other]) for other in which if other != one}
        turns = np.abs(np.diff(right[one][:, right[one].shape[1] // 2 :], axis=1)).mean(axis=1)
        numbers[f"{word(one)}_wobble"] = mean(turns)
    at = np.arange(every if two else 0, rounds + 1, every)
    return Outcome(numbers, {"accuracy": over(at, right)})


def turns(
    data: str, network: str, clients: int, k: int, counts: list[int], rows: int, alpha: float, tau: int, batch: int,
    rates: list[float], rounds: int, every: int, repeats: int, seed: int,
) -> Outcome:  # fmt: skip
    """k clients per round from one of K-bar groups in turn, with GD, SGD and shuffled SGD; K-bar = 1 draws from all.

    A group contains clients with the same most frequent classes, as might happen within one time zone.
    """
    x, y, test = load(data)
    kinds, hands = deal(y, clients, rows, alpha, seed)
    hands = hands[np.argsort(kinds, kind="stable")]
    theta, model = make(network, x.shape[1:], seed)
    problem = pf.Problem(pf.losses.cross_entropy(model), pf.populations.Static(x[hands], y[hands]))
    who = {c: pf.SchemeTwo(k) if c == 1 else pf.Cyclic(c, k=None if c * k == clients else k) for c in counts}
    solvers: dict[str, Any] = {"GD": pf.Whole(), "local SGD": pf.Fixed(batch), "shuffled SGD": pf.Shuffled(batch)}
    settings = {((solver, c), rate): {"participation": who[c], "batch": solvers[solver], "rate": rate}
                for solver in solvers for c in counts for rate in rates}  # fmt: skip
    algorithm = pf.fedavg(rates[0], local_steps=tau, batch=pf.Whole(), participation=who[counts[0]])
    how: dict[str, Any] = {"theta": "all", "every": every, "dtype": "float32"}
    right = best(model, sweep(problem, algorithm, settings, rounds, theta, seed, repeats, **how), test)
    end = {name: late(values) for name, values in right.items()}
    most = counts[-1]
    numbers: dict[str, Any] = {f"gain_{word(s)}": mean(end[s, most] - end[s, counts[0]]) for s in solvers}
    at = np.arange(0, rounds + 1, every)
    panels = {word(s): over(at, {f"$\\bar K = {c}$": right[s, c] for c in counts}) for s in solvers}
    return Outcome(numbers, panels)


def best(model: Any, runs: dict[Any, Any], test: Any, pairs_every: int = 0) -> dict[Any, np.ndarray]:
    """From runs by (name, rate, ...): {name: accuracy at its best rate [repeats, records]}.

    `pairs_every`: evaluate the mean of two successive models instead, every that many rounds; needs all rounds
        recorded.
    """
    right: dict[Any, np.ndarray] = {}
    score = scorer(model, *test)
    for (name, *_), history in runs.items():
        theta = jax.tree.map(lambda leaf: _of_two(leaf, pairs_every), history.theta) if pairs_every else history.theta
        found = score(theta)
        if name not in right or late(found).mean() > late(right[name]).mean():
            right[name] = found
    return right


def _of_two(leaf: Any, every: int) -> np.ndarray:
    """(theta_t + theta_{t-1}) / 2 every `every` rounds, from [repeats, rounds, ...]."""
    leaf = np.asarray(leaf)
    return (leaf[:, every::every] + leaf[:, every - 1 : -1 : every]) / 2


def load(data: str) -> tuple[np.ndarray, np.ndarray, tuple[np.ndarray, np.ndarray]]:
    """Training images with pixels in 0..1 and their labels, and up to 2,000 test images (digits: every fifth)."""
    if data == "digits":
        table = sets.digits()
        pixels, tests = (table.x / 16.0).reshape(-1, 8, 8).astype(np.float32), np.arange(len(table)) % 5 == 0
        return pixels[~tests], table.y[~tests], (pixels[tests], table.y[tests])
    read = {"fashion_mnist": sets.fashion_mnist, "cifar10": sets.cifar10}[data]
    train, held = read("train"), read("test")
    x, away = (np.asarray(t.x, np.float32) / 255 for t in (train, held))
    return x, train.y, (away[:2000], held.y[:2000])


def deal(y: np.ndarray, clients: int, rows: int, alpha: float, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Each client's mix of classes ~ Dirichlet(alpha): its most frequent class [N], and its row numbers [N, rows]."""
    rng = np.random.default_rng(seed)
    places = [rng.permutation(np.flatnonzero(y == c)) for c in range(10)]
    mix = rng.dirichlet(np.full(10, alpha), clients)
    hands = np.empty((clients, rows), np.int64)
    for i in range(clients):
        drawn = np.bincount(rng.choice(10, rows, p=mix[i]), minlength=10)
        hands[i] = np.concatenate([rng.choice(places[c], n) for c, n in enumerate(drawn)])
    return mix.argmax(axis=1), hands


def make(network: str, shape: tuple[int, ...], seed: int) -> Any:
    """theta and the model. "cnn" is a small one, "vgg" three 3x3 convolutions, each halved by max-pooling."""
    nets = pf.networks
    if network == "mlp":
        return nets.mlp(int(np.prod(shape)), 10, width=32, seed=seed)
    if network in ("cnn", "vgg"):
        channels, width = {"cnn": ((4, 8), 32), "vgg": ((16, 32, 64), 64)}[network]
        return nets.cnn(shape, 10, channels=channels, width=width, seed=seed)
    # Half the channels of the original: a quarter of the multiplications.
    return nets.lenet5(shape, 10, seed) if network == "lenet5" else nets.resnet18(shape, 10, width=32, seed=seed)


def scorer(model: Any, x: np.ndarray, y: np.ndarray) -> Callable[[Any], np.ndarray]:
    """Models [repeats, records, ...] -> test accuracy. Compiled once for all methods."""

    def one(weights: Any) -> Any:
        scores = jax.vmap(model, in_axes=(None, 0))(weights, x)
        return jnp.mean(jnp.argmax(scores, axis=1) == y)

    @jax.jit
    def shares(theta: Any) -> Any:
        return jax.lax.map(lambda run: jax.lax.map(one, run), theta)

    return lambda theta: np.asarray(shares(theta), np.float64)


def late(values: np.ndarray) -> np.ndarray:
    """The mean over the last third of the records, one per repeat."""
    return values[:, -max(1, values.shape[1] // 3) :].mean(axis=1)
