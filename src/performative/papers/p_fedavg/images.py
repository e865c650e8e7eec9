"""Image classifiers whose clients look harder at the classes that they get wrong: Section 4.3.

The data come through `pf.data`: PERFORMATIVE_DATA, the cache, or a download; where none has them, its error says so.
"""

import warnings
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

import performative as pf
from performative.papers.outcome import Outcome, bars, lay_out
from performative.papers.runs import sweep


def reweighted(
    data: str, clients: int, each: int, held_out: int, temperatures: list[float], network: str, width: int,
    local_steps: int, batch: int, rate: float, offset: float, momentum: float, rounds: int, repeats: int, seed: int,
) -> Outcome:  # fmt: skip
    """Class weights w_k ~ exp(temperature * loss_k) at several temperatures; 0 is data that stay.

    eta = rate / (1 + r / offset) in round r. Class losses are measured on images held out, once a round.
    """
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message=".*too few images.*")  # the file's note says so
        images = pf.cases.images(data, clients, each, held_out, temperatures[0], seed=seed)
    theta, model = _network(network, images.shape, width)
    problem = images.problem(model)
    algorithm = pf.p_fedavg(
        rate=pf.schedules.harmonic(rate * offset * local_steps, offset * local_steps),
        local_steps=local_steps,
        batch=pf.Fixed(batch),
        deploy="round",
        estimator=pf.estimators.Preconditioned(pf.estimators.Minibatch(), pf.optimizers.Momentum(momentum)),
    )
    settings = {temperature: {"problem": _at(problem, temperature)} for temperature in temperatures}
    runs = sweep(problem, algorithm, settings, rounds, theta, seed, repeats, dtype=None)
    numbers: dict[str, float] = {}
    lines, worst = {}, {}
    for temperature, history in runs.items():
        moved = np.asarray(history["tv_distance"], np.float64)
        name = f"t{temperature:g}"
        # Row 0 is the start, and row 1 leads from even weights to those of the untrained network.
        early, late = moved[:, 2:7].mean(), moved[:, -max(1, rounds // 8) :].mean()
        numbers[f"early_{name}"], numbers[f"late_{name}"] = float(early), float(late)
        if temperature > 0:
            numbers[f"decay_{name}"] = float(late / early)
            lines[f"beta = {temperature:g}"] = (np.arange(2, rounds + 1), moved[:, 2:])
        finals = [jax.tree.map(lambda leaf, r=r: leaf[r], history.final) for r in range(repeats)]
        classes = np.asarray([images.class_accuracy(model, final) for final in finals])
        numbers[f"accuracy_{name}"] = float(np.mean([images.accuracy(model, final) for final in finals]))
        numbers[f"worst_class_{name}"] = float(classes.min(axis=1).mean())
        worst[f"beta = {temperature:g}"] = classes.min(axis=1)
    return Outcome(numbers, {"tv_distance": lay_out(lines), "worst_class": bars(worst)})


def _network(kind: str, shape: tuple[int, ...], width: int) -> Any:
    """A perceptron with one hidden layer ("mlp"), or two convolutions ("cnn"), for ten classes."""
    if kind == "mlp":
        return pf.networks.mlp(int(np.prod(shape)), 10, width=width)
    return pf.networks.cnn(shape, 10, channels=(width, 2 * width))


def _at(problem: pf.Problem, temperature: float) -> pf.Problem:
    """The same clients at another temperature."""
    population: Any = problem.population
    same = jnp.broadcast_to(jnp.asarray(temperature), jnp.shape(population.temperature))
    return eqx.tree_at(lambda p: p.population.temperature, problem, np.asarray(same))
