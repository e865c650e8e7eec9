"""How far local steps pull the model away from a point at which it should stay."""

import dataclasses
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from performative._base.arguments import checked
from performative._base.checks import check_counts
from performative._engine.run import run
from performative.aggregators import Mean, Scaffold
from performative.algorithm import Algorithm
from performative.callbacks import Progress
from performative.channels import Plain
from performative.facts import chain, cites
from performative.participation import AbstractParticipation, Full, LocalWork
from performative.problem import Problem
from performative.record import Record
from performative.types import Theta

__all__ = ["Drift", "average_drift"]


class Drift(NamedTuple):
    """An estimate and its standard error: 0 if nothing is random, NaN with a single repeat."""

    value: float
    standard_error: float


@cites("wang2022unreasonable")
@checked
def average_drift(problem: Problem, algorithm: Algorithm, theta: Theta, repeats: int = 1, seed: int = 0) -> Drift:
    """The average drift at a point, usually the stable point or the optimum.

        rho = | sum_i p_i (theta_i - theta) | / sum_e eta_e,      theta_i the model of client i after its local steps

    The clients' updates may differ a lot and still cancel: FedAvg is slowed by rho, not by the dissimilarity of the
    gradients, and rho is 0 with a single local step at a stable point. All clients participate, and their updates are
    averaged, whatever the algorithm's server and channel would do; estimator, local steps, batch and deployment are the
    algorithm's. Client memory is as before the first round, so control variates have not been learned yet.

    Args:
        repeats: number of draws of the data over which updates are averaged. Noise leaves about one standard error in
            rho.

    Wang, Das, Joshi, Kale, Xu and Zhang 2022, "On the unreasonable effectiveness of federated averaging with
    heterogeneous data"; there the data do not react.
    """
    check_counts(repeats=repeats)
    everyone: AbstractParticipation = Full()
    if isinstance(algorithm.participation, LocalWork):
        everyone = LocalWork(Full(), algorithm.participation.steps)
    # Clients with control variates need what Scaffold broadcasts; it averages too.
    server = Scaffold() if any(isinstance(part, Scaffold) for part in chain(algorithm.aggregator)) else Mean()
    plain = dataclasses.replace(algorithm, participation=everyone, aggregator=server, channel=Plain())
    history = run(
        problem,
        plain,
        rounds=1,
        theta=theta,
        seed=seed,
        repeats=repeats,
        dtype="float64",
        record=Record(risks=False, consensus=False),
        callbacks=[Progress(False)],
    )
    moves = [leaf[:, 1] - leaf[:, 0] for leaf in jax.tree.leaves(history.theta)]
    each = np.concatenate([move.reshape(repeats, -1) for move in moves], axis=1)
    with jax.enable_x64(True):
        steps = sum(float(algorithm.rate(jnp.asarray(e))) for e in range(algorithm.steps))
    if not steps > 0:
        raise ValueError("average_drift: the rate of the first round is 0, so there is no drift to measure.")
    spread = np.linalg.norm(np.std(each, axis=0, ddof=1)) / np.sqrt(repeats) if repeats > 1 else np.nan
    return Drift(float(np.linalg.norm(each.mean(axis=0))) / steps, float(spread) / steps)
