"""Drift, per-client models and asynchrony: seconds per round relative to P-FedAvg with the same work."""

import jax
import numpy as np

import performative as pf
from benchmarks.core import LAST, QUIET, alternate

LATENCY = pf.participation.Exponential(1.0)


def _problems() -> dict[str, tuple[pf.Problem, dict, int, int]]:
    """(a) and (b) of the core: problem, arguments of the algorithm, rounds, cohort of an asynchronous move."""
    random = np.random.default_rng(0)
    mean, sensitivity = random.uniform(5, 15, 25), random.uniform(0.5, 0.9, 25)
    x = random.standard_normal((10, 1000, 10))
    y = (random.uniform(size=(10, 1000)) < 1 / (1 + np.exp(-x[..., 0]))).astype(np.int32)
    people = {
        "a": pf.Problem(pf.losses.squared, pf.populations.Gaussian(mean, sensitivity, 1.0)),
        "b": pf.Problem(pf.losses.logistic(0.1), pf.populations.Strategic(x, y, random.uniform(0.9, 1.1, 10))),
    }
    return {
        "a": (people["a"], {"rate": 0.01, "local_steps": 5}, 2000, 5),
        "b": (people["b"], {"rate": 0.01, "local_steps": 5, "batch": pf.Fixed(4)}, 1000, 5),
    }


def _ratios(name: str, repeats: int) -> dict:
    problem, how, rounds, k = _problems()[name]
    drifting = pf.Problem(problem.loss, pf.populations.Drifting(problem.population, pf.paths.Linear(1e-3)))
    loops: dict[str, list[float]] = {}

    def ours(label: str, problem: pf.Problem, **more) -> None:
        algorithm = pf.p_fedavg(**how, **more)

        def run():
            history = pf.run(problem, algorithm, rounds, repeats=repeats, record=LAST, **QUIET)
            loops.setdefault(label, []).append(history.meta["seconds"])
            return history.final

        runs[label] = run

    runs: dict = {}
    ours("one model", problem)
    ours("drifting", drifting)
    for sharing in (
        pf.sharing.PerClient(),
        pf.sharing.Ditto(1.0),
        pf.sharing.PFedMe(1.0),
        pf.sharing.Interpolated(0.5),
    ):
        ours(type(sharing).__name__, problem, sharing=sharing)
    ours(f"{k} at random", problem, participation=pf.SchemeTwo(k))
    ours(f"a buffer of {k}", problem, participation=pf.Asynchronous(k, latency=LATENCY))
    alternate(runs, 5)
    best = {label: min(seconds[1:]) for label, seconds in loops.items()}
    some = f"{k} at random"
    ratios = {label: best[label] / best["one model"] for label in best if label not in ("one model", some)}
    ratios[f"a buffer of {k}"] = best[f"a buffer of {k}"] / best[some]
    return {
        "benchmark": f"w{name}: drift, per-client models, asynchrony on ({name}), {repeats} repeats",
        "ours_s": best["one model"],
        "ratio": max(ratios.values()),
        "note": ", ".join(f"{label} {ratio:.2f}" for label, ratio in ratios.items())
        + f"; relative to one model, the buffer relative to {some}",
    }


def million_own_models() -> dict:
    """A million clients, each with its own model of ten parameters; 1,000 of them per round, and all of them."""
    clients, d = 1_000_000, 10
    random = np.random.default_rng(0)
    problem = pf.Problem(pf.losses.squared, pf.populations.Gaussian(random.standard_normal((clients, d)), 0.3, 1.0))
    seconds: dict[str, float] = {}
    for sharing in (pf.sharing.OneModel(), pf.sharing.PerClient()):
        for label, participation, rounds in (("1000", pf.SchemeTwo(1000), 300), ("all", pf.Full(), 5)):
            algorithm = pf.p_fedavg(0.1, participation=participation, sharing=sharing)
            runs = [pf.run(problem, algorithm, rounds, record=LAST, **QUIET).meta["seconds"] for _ in range(3)]
            seconds[f"{type(sharing).__name__} {label}"] = min(runs[1:]) / rounds
    own = seconds["PerClient all"]
    return {
        "benchmark": f"wn: {clients:,} clients, each with its own model of {d} numbers",
        "ours_s": own,
        "ratio": own / seconds["OneModel all"],
        "client_steps_per_s": clients / own,
        "note": f"a round of all; {4 * d} bytes per client besides its data; with 1,000 clients "
        f"{seconds['PerClient 1000'] / seconds['OneModel 1000']:.2f} times one model; "
        f"on {jax.devices()[0].device_kind}",
    }


BENCHMARKS = {
    "wa": lambda: _ratios("a", 1),
    "wa_many": lambda: _ratios("a", 256),
    "wb": lambda: _ratios("b", 1),
    "wn": million_own_models,
}
