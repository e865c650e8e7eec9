"""Image classifiers on clients with few classes each: the slides' methods side by side, and unequal local work."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import performative as pf
from performative import data as sets
from performative.aggregators import ClusterVarp, Extrapolate, Mean, Nova, Scaffold, ServerOpt, Varp
from performative.estimators import ControlVariate, Minibatch, Preconditioned, Prox
from performative.optimizers import Adagrad, Momentum
from performative.papers.outcome import Outcome, bars, mean, over
from performative.papers.runs import sweep


def methods(
    data: str, network: str, clients: int, k: int, rows: int, alpha: float, temperature: float, tau: int, batch: int,
    rates: list[float], cap: float, server_rates: list[float], clusters: int, which: list[str], rounds: int, every: int,
    repeats: int, seed: int,
) -> Outcome:  # fmt: skip
    """k of the clients a round; each method with the best of its rates.

    temperature = 0: data stay; above, clients look harder at classes they get wrong.
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
    groups = _numbered(kinds % clusters)  # clients with the same most frequent class share a memory
    made: dict[str, Any] = {
        "FedAvg": lambda rate: [pf.p_fedavg(rate, aggregator=Extrapolate(cap=1.0), **common)],
        "FedExP": lambda rate: [pf.p_fedavg(rate, aggregator=Extrapolate(cap=cap), **common)],
        "SCAFFOLD": lambda rate: [pf.scaffold(rate, **common)],
        "FedAdagrad": lambda rate: [
            pf.p_fedavg(rate, aggregator=ServerOpt(Mean(), Adagrad(1e-6), step), **common) for step in server_rates
        ],
        "FedVARP": lambda rate: [pf.p_fedavg(rate, aggregator=Varp(), **common)],
        "ClusterFedVARP": lambda rate: [pf.p_fedavg(rate, aggregator=ClusterVarp(groups), **common)],
    }
    settings = {
        (name, rate, i): {"algorithm": one}
        for name in which
        for rate in rates
        for i, one in enumerate(made[name](rate))
    }
    first = next(iter(settings.values()))["algorithm"]
    runs = sweep(problem, first, settings, rounds, theta, seed, repeats, theta="all", every=every, dtype="float32")
    right, rate_of = _best(model, runs, test)
    at = next(iter(runs.values())).rounds
    numbers: dict[str, Any] = {f"{name.lower()}_rate": rate for name, rate in rate_of.items()}
    for name in made:
        word = name.lower()
        numbers[word] = mean(_late(right[name])) if name in right else float("nan")
        wobble = np.abs(np.diff(right[name][:, len(at) // 2 :], axis=1)) if name in right else np.asarray(np.nan)
        numbers[f"{word}_wobble"] = float(wobble.mean())
    numbers["best_of_the_others"] = max((numbers[n.lower()][0] for n in right if n != "FedExP"), default=float("nan"))
    return Outcome(numbers, {"accuracy": over(at, right)})


def unequal(
    data: str, network: str, clients: int, rows: int, alpha: float, epochs: int, batch: int, rates: list[float],
    decay: float, pull: float, reduced: bool, rounds: int, every: int, repeats: int, seed: int,
) -> Outcome:  # fmt: skip
    """FedAvg and FedNova with plain, momentum, proximal and (if `reduced`) variance-reduced clients.

        n_i by Dirichlet(alpha) over clients for each class,      tau_i = epochs * n_i / batch,      p_i = n_i / n

    Each with the best of its rates.
    """
    x, y, test = load(data)
    theta, model = make(network, x.shape[1:], seed)
    x, y, count = pf.partition.tables(x, y, pf.partition.dirichlet(y[:rows], clients, alpha, seed, least=batch))
    population = pf.populations.Static(x, y, count)
    problem = pf.Problem(pf.losses.cross_entropy(model), population, weights=count / count.sum())
    tau = np.ceil(epochs * count / batch)
    names: dict[tuple[str, str], dict[str, Any]] = {}
    for rule, alone, inner in (("FedAvg", Mean(), Scaffold()), ("FedNova", Nova(), Nova(Scaffold()))):
        for solver, (m, mu) in {"vanilla": (0.0, 0.0), "momentum": (decay, 0.0), "proximal": (0.0, pull)}.items():
            estimator: Any = Prox(Preconditioned(Minibatch(), Momentum(m)), mu)
            names[rule, solver] = {"aggregator": alone, "estimator": estimator, "rate": 1 - m}
        for solver, m in (("VR", 0.0), ("momentum VR", decay)) if reduced else ():
            estimator = Preconditioned(ControlVariate(Minibatch()), Momentum(m))
            names[rule, solver] = {"aggregator": inner, "estimator": estimator, "rate": 1 - m}
    first: Any = names["FedAvg", "vanilla"]["estimator"]
    work = pf.LocalWork(pf.Full(), tau)
    algorithm = pf.fedavg(rates[0], batch=pf.Fixed(batch), participation=work, estimator=first)
    settings = {(name, rate): parts | {"rate": rate * parts["rate"]} for name, parts in names.items() for rate in rates}
    runs = sweep(problem, algorithm, settings, rounds, theta, seed, repeats, theta="all", every=every, dtype="float32")
    right, rate_of = _best(model, runs, test)
    late = {name: _late(values) for name, values in right.items()}
    numbers: dict[str, Any] = {"least_steps": float(tau.min()), "most_steps": float(tau.max())}
    numbers |= {f"{'_'.join(name).lower().replace(' ', '_')}_rate": rate for name, rate in rate_of.items()}
    for solver in ("vanilla", "momentum", "proximal", "VR", "momentum VR"):
        word = solver.replace(" ", "_")
        for rule in ("FedAvg", "FedNova"):
            there = (rule, solver) in late
            numbers[f"{rule.lower()}_{word}"] = mean(late[rule, solver]) if there else float("nan")
        both = ("FedNova", solver) in late
        gain = late["FedNova", solver] - late["FedAvg", solver] if both else np.asarray([np.nan])
        numbers[f"gain_{word}"] = mean(gain)
    at = next(iter(runs.values())).rounds
    shown = {f"{rule}, {s}": right[rule, s] for rule, s in right if s in ("vanilla", "momentum")}
    panels = {
        "accuracy": over(at, shown),
        "table": bars({f"{rule}, {s}": late[rule, s] for rule, s in sorted(late, key=lambda n: n[1])}),
    }
    return Outcome(numbers, panels)


def _best(model: Any, runs: dict[Any, Any], test: Any) -> tuple[dict[Any, Any], dict[Any, float]]:
    """Of runs by (name, rate, ...): {name: accuracy at its best rate [repeats, records]} and {name: that rate}."""
    right: dict[Any, np.ndarray] = {}
    rate_of: dict[Any, float] = {}
    for (name, rate, *_), history in runs.items():
        found = accuracy(model, history.theta, *test)
        if name not in right or _late(found).mean() > _late(right[name]).mean():
            right[name], rate_of[name] = found, rate
    return right, rate_of


def load(data: str) -> tuple[np.ndarray, np.ndarray, tuple[np.ndarray, np.ndarray]]:
    """Images with pixels in 0..1 and labels to train on, and 2,000 (digits: every fifth) to test on."""
    if data == "digits":
        table = sets.digits()
        pixels, tests = (table.x / 16.0).reshape(-1, 8, 8).astype(np.float32), np.arange(len(table)) % 5 == 0
        return pixels[~tests], table.y[~tests], (pixels[tests], table.y[tests])
    train, held = sets.fashion_mnist("train"), sets.fashion_mnist("test")
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
    """theta and the model: a small network, fully connected or convolutional."""
    if network == "mlp":
        return pf.networks.mlp(int(np.prod(shape)), 10, width=32, seed=seed)
    return pf.networks.cnn(shape, 10, channels=(4, 8), width=32, seed=seed)


def accuracy(model: Any, theta: Any, x: np.ndarray, y: np.ndarray) -> np.ndarray:
    """Share of test images that are got right, [repeats, records]."""

    @jax.jit
    def one(weights: Any) -> Any:
        scores = jax.vmap(model, in_axes=(None, 0))(weights, x)
        return jnp.mean(jnp.argmax(scores, axis=1) == y)

    repeats, records = jax.tree.leaves(theta)[0].shape[:2]
    flat = jax.tree.map(lambda leaf: jnp.asarray(leaf).reshape(repeats * records, *leaf.shape[2:]), theta)
    return np.asarray(jax.lax.map(one, flat), np.float64).reshape(repeats, records)


def _late(values: np.ndarray) -> np.ndarray:
    """The mean over the last third of the records, one a repeat."""
    return values[:, -max(1, values.shape[1] // 3) :].mean(axis=1)


def _numbered(kinds: np.ndarray) -> np.ndarray:
    """0, 1, ... without gaps."""
    return np.unique(kinds, return_inverse=True)[1]
