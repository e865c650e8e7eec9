"""Image classifiers whose clients reweight classes: Section 4.3.

The data come through `pf.data` (PERFORMATIVE_DATA, the cache, or a download), which raises if none has them.
"""

import dataclasses
import warnings
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

import performative as pf
from performative.history import History
from performative.papers.outcome import Outcome, bars, lay_out, mean
from performative.papers.p_fedavg.instance import ratio
from performative.papers.runs import given, sweep, word


@dataclasses.dataclass(frozen=True)
class Setting:
    """P-FedAvg with momentum; eta = rate / (1 + r / offset) in round r.

    Class weights follow the loss or accuracy on held-out images, once per round or after each local step.
    """

    data: str
    clients: int
    each: int
    held_out: int
    network: str
    width: int
    local_steps: int
    batch: int
    rate: float
    offset: float
    momentum: float
    rounds: int
    repeats: int
    seed: int

    def make(self, by: str) -> tuple[pf.cases.Images, Any, Any]:
        """The images, and a model with its network."""
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", message=".*too few images.*")  # the file's note says so
            images = pf.cases.images(self.data, self.clients, self.each, self.held_out, 0.5, by, seed=self.seed)
        if self.network == "mlp":
            return images, *pf.networks.mlp(int(np.prod(images.shape)), 10, width=self.width)
        if self.network == "resnet18":
            return images, *pf.networks.resnet18(images.shape, 10, width=self.width)
        return images, *pf.networks.cnn(images.shape, 10, channels=(self.width, 2 * self.width))

    def run(self, problem: pf.Problem, theta: Any, temperatures: list[float], deploy: str) -> dict[float, History]:
        """One history for each temperature; 0 means static data."""
        steps = self.offset * self.local_steps
        algorithm = pf.p_fedavg(
            rate=pf.schedules.harmonic(self.rate * steps, steps),
            local_steps=self.local_steps,
            batch=pf.Fixed(self.batch),
            deploy=deploy,
            estimator=pf.estimators.Preconditioned(pf.estimators.Minibatch(), pf.optimizers.Momentum(self.momentum)),
        )
        settings = {temperature: {"problem": _at(problem, temperature)} for temperature in temperatures}
        return sweep(problem, algorithm, settings, self.rounds, theta, self.seed, self.repeats, dtype=None)


@given(Setting)
def reweighted(s: Setting, temperatures: list[float], variants: list[list[str]], trained: int) -> Outcome:
    """Class weights w_k ~ exp(temperature * a_k), with a_k the loss, or the accuracy on a model that is `trained`.

    `variants` are pairs of what is measured and when ("round" or "step"); the first is run at all temperatures, the
    others at the first temperature. An untrained network gets only a class or two right, so runs by accuracy start from
    a model trained for `trained` rounds on static data.
    """
    numbers: dict[str, Any] = {}
    lines, worst = {}, {}
    for by, deploy in variants:
        images, theta, model = s.make(by)
        if by == "accuracy":
            first = dataclasses.replace(s, rounds=trained, repeats=1)
            still = first.run(images.problem(model), theta, [0.0], "round")[0.0]
            theta = jax.tree.map(lambda leaf: leaf[0], still.final)
        whole = [by, deploy] == variants[0]
        runs = s.run(images.problem(model), theta, temperatures if whole else temperatures[:1], deploy)
        for temperature, history in runs.items():
            moved = np.asarray(history["tv_distance"], np.float64)
            name = f"{by}, each {deploy}, beta = {temperature:g}"
            key = word(name).replace("_=", "")
            if temperature > 0:
                # Row 0 is the start; row 1 goes from uniform weights to those of the first model.
                early, late = moved[:, 2:7].mean(axis=1), moved[:, -max(1, s.rounds // 8) :].mean(axis=1)
                step = 1 / (1 + np.arange(s.rounds) / s.offset)
                fewer = step[1:6].mean() / step[-max(1, s.rounds // 8) :].mean()
                numbers |= {f"decay_{key}": ratio(late, early), f"early_{key}": mean(early)}
                numbers[f"decay_per_step_{key}"] = ratio(late * fewer, early)
                lines[name] = (np.arange(2, s.rounds + 1), moved[:, 2:])
            finals = [jax.tree.map(lambda leaf, r=r: leaf[r], history.final) for r in range(s.repeats)]
            classes = np.asarray([images.class_accuracy(model, final) for final in finals])
            numbers[f"accuracy_{key}"], worst[name] = mean(classes.mean(axis=1)), classes.min(axis=1)
        if 0.0 in runs:
            least = [worst[f"{by}, each {deploy}, beta = {t:g}"] for t in (temperatures[0], 0.0)]
            numbers["worst_class_gain"] = mean(least[0] - least[1])
    return Outcome(numbers, {"tv_distance": lay_out(lines), "worst_class": bars(worst)})


def _at(problem: pf.Problem, temperature: float) -> pf.Problem:
    """The same clients at another temperature."""
    population: Any = problem.population
    same = jnp.broadcast_to(jnp.asarray(temperature), jnp.shape(population.temperature))
    return eqx.tree_at(lambda p: p.population.temperature, problem, np.asarray(same))
