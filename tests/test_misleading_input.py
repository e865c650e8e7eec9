"""Input that would run and mislead: refused, with the reason."""

import jax.numpy as jnp
import numpy as np
import pandas as pd
import pytest

import performative as pf
from performative.types import Estimate

PROBLEM = pf.Problem(pf.losses.squared, pf.populations.Gaussian(np.arange(4.0), 0.5, 1.0))
FRAME = pd.DataFrame({"bank": ["a", "a", "b", "b"], "income": [1.0, 2.0, 3.0, 4.0], "default": [0, 1, 0, 1]})


def refused(message, call, *arguments, **options):
    """The call raises ValueError with this message."""
    with pytest.raises(ValueError, match=message):
        call(*arguments, **options)


def test_what_no_machine_can_hold_is_refused():
    with pytest.raises(ValueError, match=r"credit_table: banks=1000000000 would take .* GiB.*far-too-large"):
        pf.cases.credit(banks=10**9)
    problem = pf.Problem(pf.losses.squared, pf.populations.Gaussian([1.0], 0.1, 1.0))
    with pytest.raises(ValueError, match=r"run: repeats=10000000000 need about .*far-too-large"):
        pf.run(problem, pf.p_fedavg(0.1), 2, theta=0.0, repeats=10**10)
    with pytest.raises(ValueError, match=r"records of the run: rounds=1000000000, .*record less often.*far-too-large"):
        pf.run(problem, pf.p_fedavg(0.1), 10**9, theta=0.0, repeats=10**5)
    whole = pf.Problem(pf.losses.squared, pf.populations.Gaussian([[1.0]], 0.1, 1.0))
    with pytest.raises(ValueError, match=r"theta: parameters=100000000000 would take .* GiB; .*far-too-large"):
        pf.run(whole, pf.p_fedavg(0.1), 2, theta=np.broadcast_to(np.float32(0), (10**11,)))


def test_tables_that_would_mislead():
    double = pd.concat([FRAME, FRAME[["income"]]], axis=1)
    refused("'income'.* occur more than once", pf.Problem.from_frame, double, client="bank", label="default")
    refused("nothing to learn", pf.Problem.from_frame, FRAME.assign(default=0), client="bank", label="default")
    dated = FRAME.assign(when=pd.Timestamp("2024-01-01"))
    refused(r"encode or drop the columns \['when'\]", pf.Problem.from_frame, dated, client="bank", label="default")
    strength = {"a": 1.0, "b": 1.0, "c": 1.0}
    refused("not in the table", pf.Problem.from_frame, FRAME, client="bank", label="default", strength=strength)


def test_labels_and_parameters_of_the_logistic_loss():
    x, y = np.ones((2, 3, 2)), np.asarray([[-1, 1, 1], [1, 1, -1]])
    refused("needs labels 0 and 1", pf.Problem, pf.losses.logistic(0.1), pf.populations.Strategic(x, y, 0.1))
    refused("penalty must not be negative", pf.losses.logistic, -1.0)
    refused("class_weight must be", pf.losses.logistic, 0.1, [1.0, 2.0, 3.0])


def test_shapes_clocks_and_nests_that_do_not_fit():
    outlier = pf.populations.Gaussian(np.zeros((4, 2)), 0.0, 1.0)
    mixed = pf.Problem(pf.losses.squared, pf.populations.Contaminated(PROBLEM.population, 0.1, outlier))
    refused("outlier's samples have shape", pf.run, mixed, pf.p_fedavg(rate=0.1), 2, theta=0.0)
    refused("compute must not be negative", pf.Clock, -1.0, 0.0)
    refused(
        "stable must be finite", pf.run, PROBLEM, pf.p_fedavg(rate=0.1), 2, theta=0.0, record=pf.Record(stable=np.nan)
    )
    refused("LocalWork inside LocalWork", pf.LocalWork, pf.LocalWork(pf.Full(), [1, 1, 1, 1]), [1, 1, 1, 1])
    x, y = np.ones((2, 4, 1)), np.asarray([[0, 1, 0, 1], [1, 0, 1, 0]])
    moved = pf.Problem(pf.losses.logistic(0.1), pf.populations.Reweighted(x, y, 1.0))
    refused("vary the whole population", pf.sweep, moved, pf.p_fedavg(rate=0.1), {"population.y": [y]}, 2, np.zeros(1))


class Tall(pf.aggregators.AbstractAggregator):
    """A move of shape (1,), which would broadcast."""

    def aggregate(self, theta, upload, cohort, weights, memory):
        return jnp.sum(upload.delta)[None], memory


class Pair(pf.channels.AbstractChannel):
    def send(self, noise, delta, broadcast, memory):
        return (delta, delta), memory


class Column(pf.estimators.AbstractEstimator):
    def estimate(self, noise, theta, batch, local, memory):
        return Estimate((theta - batch.z.mean())[None], memory, {})


def test_updates_of_another_shape_are_never_averaged():
    for part, message in (
        ({"aggregator": Tall()}, r"the move of Tall must have the shape of theta, \(\); got \(1,\)"),
        ({"channel": Pair()}, "what Pair sends must have the structure of theta"),
        ({"estimator": Column()}, r"the direction of Column must have the shape of theta, \(\); got \(1,\)"),
    ):
        refused(message, pf.run, PROBLEM, pf.p_fedavg(rate=0.1, **part), 2, theta=0.0)
