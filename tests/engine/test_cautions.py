"""What a run says where its answer does not mean what it seems to: one coded line, with the remedy."""

import warnings

import jax.numpy as jnp
import numpy as np
import pytest

import performative as pf
from performative._engine.settling import settling_rate
from performative.sweep.names import set_by_name

RNG = np.random.default_rng(0)
X, Y = RNG.standard_normal((2, 7, 2)), RNG.integers(0, 2, (2, 7))
TABLES = pf.Problem(pf.losses.logistic(0.1), pf.populations.Strategic(X, Y, 0.5, count=[7, 4]))


def gaussian(eps, **options):
    return pf.Problem(pf.losses.squared, pf.populations.Gaussian([1.0, 2.0], eps, 0.1), **options)


@pytest.mark.slow
def test_a_batch_beyond_every_table():
    says = r"Fixed\(8\) draws 8 rows per step with replacement from tables of at most 7 rows.*\[batch-exceeds-table\]"
    with pytest.warns(UserWarning, match=says) as said:
        pf.run(
            TABLES,
            pf.p_fedavg(0.1, batch=pf.Fixed(8)),
            1,
            record=pf.Record(risks=False),
            callbacks=[pf.callbacks.Progress(False)],
        )
    assert len(said) == 1
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        pf.run(
            TABLES,
            pf.p_fedavg(0.1, batch=pf.Fixed(7)),
            1,
            record=pf.Record(risks=False),
            callbacks=[pf.callbacks.Progress(False)],
        )


@pytest.mark.parametrize(
    ("eps", "options", "says"),
    [
        # The gradient is (1 - eps) theta - m: plain steps settle below 2 / (1 - eps).
        (0.5, {"rate": 6.0}, r"near the stable point rates below 4 converge on average; yours is 6\."),
        (1.5, {"rate": 1.0}, r"no rate converges near the stable point"),
        (0.5, {"rate": 6.0, "estimator": pf.estimators.Prox(pf.estimators.Minibatch(), 0.1)}, "try a rate below 6"),
    ],
)
def test_divergence_comes_with_a_rate(eps, options, says):
    with pytest.warns(
        UserWarning, match=rf"3 of 3 repeats diverged, the first at .*; .*{says}.*\[run-diverged"
    ) as said:
        history = pf.run(
            gaussian(eps),
            pf.p_fedavg(**options),
            200,
            theta=5.0,
            repeats=3,
            record=pf.Record(risks=False),
            callbacks=[pf.callbacks.Progress(False)],
        )
    assert history.status == "diverged" and len(said) == 1


def test_risk_that_grows_because_steps_are_too_long():
    """Features of a hundred: logistic steps are bounded, so nothing diverges, and the model is worthless."""
    far = pf.Problem(pf.losses.logistic(0.001), pf.populations.Strategic(100 * X, Y, 0.0))
    with pytest.warns(UserWarning, match=r"performative risk ended at \d+.*up from 0.693.*\[rate-too-large\]"):
        history = pf.run(
            far,
            pf.p_fedavg(1.0, batch=pf.batches.Whole()),
            5,
            record=pf.Record(risks=1),
            callbacks=[pf.callbacks.Progress(False)],
        )
    assert history.status == "completed"
    limit = settling_rate(far, pf.p_fedavg(1.0), np.zeros(2), 1.0)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        slow = pf.run(
            far,
            pf.p_fedavg(0.9 * limit, batch=pf.batches.Whole()),
            5,
            record=pf.Record(risks=1),
            callbacks=[pf.callbacks.Progress(False)],
        )
    assert slow["performative_risk"][0, -1] < 0.7 < history["performative_risk"][0, -1]


def test_updates_that_were_left_out():
    def half(theta, z):
        """Not finite for the client whose data lie high."""
        return jnp.where(z > 50, jnp.nan, 1.0) * jnp.square(theta - z) / 2

    problem = pf.Problem(half, pf.populations.Gaussian([1.0, 100.0], 0.1, 0.1))
    with pytest.warns(UserWarning, match=r"5 of 10 updates were non-finite and were left out.*\[nonfinite-updates\]"):
        history = pf.run(
            problem,
            pf.p_fedavg(0.1),
            5,
            theta=0.0,
            record=pf.Record(risks=False),
            callbacks=[pf.callbacks.Progress(False)],
        )
    assert history.status == "completed" and history.final[0] < 1.2


def test_a_run_in_which_nobody_takes_part_has_failed():
    nobody = pf.participation.Available([1e-9, 1e-9])
    with pytest.warns(UserWarning, match=r"no client took part in any of the 3 rounds.*\[nothing-was-learned\]"):
        history = pf.run(
            gaussian(0.5), pf.p_fedavg(0.1, participation=nobody), 3, theta=5.0, record=pf.Record(risks=False)
        )
    assert history.status == "failed"


def test_sweeps_keep_what_classes_are_measured_on():
    """`held_out` was dropped where a sweep made the population anew with another temperature."""
    population = pf.populations.Reweighted(X, Y, 1.0, 2, held_out=(3 * X, Y))
    problem = pf.Problem(pf.losses.logistic(0.1), population)
    again = set_by_name(problem, pf.p_fedavg(0.1), "population.temperature", 2.0)[0].population
    assert again.temperature == 2.0
    np.testing.assert_array_equal(again.measured_x, population.measured_x)
    np.testing.assert_array_equal(again.measured, population.measured)


def test_what_a_part_does_not_keep_cannot_be_swept():
    class Forgetful(pf.populations.AbstractPopulation):
        shift: object = pf.number()

        def __init__(self, shift, sign=1.0):
            self.shift = np.asarray(shift * sign)

        def sample(self, noise, world, theta):
            return self.shift

    problem = pf.Problem(pf.losses.squared, Forgetful(1.0, -1.0))
    with pytest.raises(ValueError, match="Forgetful does not store its argument 'sign'"):
        set_by_name(problem, pf.p_fedavg(0.1), "population.shift", 2.0)
