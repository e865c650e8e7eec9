"""Fields of parts of one's own, and domains: what would end in a message of JAX is refused in ours."""

from typing import Any

import equinox as eqx
import jax.numpy as jnp
import numpy as np
import pytest

import performative as pf
from performative.testing import check_part


class Powers(pf.populations.AbstractPopulation):
    """z = sum of theta^k for k below a whole number."""

    level: Any = pf.per_client()
    terms: int = 3

    def sample(self, noise, world, theta):
        return self.level + sum(theta**k for k in range(self.terms))


class Declared(pf.populations.AbstractPopulation):
    level: Any = pf.per_client()
    terms: int = pf.whole(default=3)

    def sample(self, noise, world, theta):
        return self.level + 0.1 * sum(theta**k for k in range(self.terms))


class Stairs(pf.schedules.AbstractSchedule):
    steps: int

    def __call__(self, t):
        return jnp.asarray(0.1) * jnp.sum(jnp.arange(self.steps))


class Loss(eqx.Module):
    powers: list

    def __call__(self, theta, z):
        return sum(jnp.square(theta - z) ** k for k in self.powers)


PLAIN = r"= pf\.whole\(\) if it sets a shape or controls a Python branch, or as = pf\.number\(\).*\[field-not-static\]"


@pytest.mark.parametrize(
    ("make", "says"),
    [
        (lambda: pf.Problem(pf.losses.squared, Powers([1.0, 2.0])), "Powers: terms = 3 is an integer"),
        (
            lambda: pf.Problem(pf.losses.squared, pf.populations.Sluggish(Powers([1.0, 2.0], np.int64(5)), 0.5)),
            "Powers: terms = 5",
        ),
        (lambda: pf.Problem(Loss([1, 2]), Declared([1.0])), "Loss: powers = 1"),
        (lambda: pf.p_fedavg(Stairs(4)), "Stairs: steps = 4"),
    ],
)
def test_whole_numbers_in_plain_fields(make, says):
    with pytest.raises(ValueError, match=rf"{says}.*{PLAIN}"):
        make()


def test_check_part_says_so_too():
    with pytest.raises(AssertionError, match=rf"Powers breaks the rule fields: Powers: terms.*{PLAIN}"):
        check_part(Powers([1.0, 2.0]), theta=0.0)


def test_a_declared_whole_number_is_part_of_the_program():
    problem = pf.Problem(pf.losses.squared, Declared([1.0, 2.0], terms=np.int64(2)))
    history = pf.run(
        problem, pf.p_fedavg(0.1), 2, theta=0.0, record=pf.Record(risks=False), callbacks=[pf.callbacks.Progress(False)]
    )
    # theta <- theta - 0.1 (theta - 1.5 - 0.1 (1 + theta)), from 0: the mean of both clients.
    np.testing.assert_allclose(history.theta[0], [0.0, 0.16, 0.16 - 0.1 * (0.16 - 1.5 - 0.1 * 1.16)], rtol=1e-6)


@pytest.mark.parametrize(
    ("domain", "theta", "says"),
    [
        (pf.Box(0.0, 1.0), 2.5, r"domain Box\(lo=0\., hi=1\.\); theta is 2\.5, the nearest point of the domain has 1"),
        (pf.Ball(1.0), 3.0, r"domain Ball\(radius=1\.\); theta is 3, the nearest point of the domain has 1"),
    ],
)
def test_a_start_outside_of_the_domain(domain, theta, says):
    problem = pf.Problem(pf.losses.squared, pf.populations.Gaussian([1.0, 2.0], 0.1, 1.0), domain=domain)
    with pytest.raises(ValueError, match=rf"{says}.*Start at problem\.domain\.project\(theta\)"):
        pf.run(problem, pf.p_fedavg(0.1), 1, theta=theta)


def test_the_coordinate_that_lies_outside_is_named():
    population = pf.populations.Gaussian(np.zeros((2, 3)), 0.1, 1.0)
    problem = pf.Problem(pf.losses.squared, population, domain=pf.Box([0.0, 0.0, 0.0], [1.0, 2.0, 3.0]))
    with pytest.raises(ValueError, match=r"Box\(lo=\[0\., 0\., 0\.\], hi=\[1\., .*\]\); theta\[1\] is 9, .* has 2"):
        pf.run(problem, pf.p_fedavg(0.1), 1, theta=np.asarray([0.5, 9.0, 4.0]))


@pytest.mark.parametrize(
    ("make", "says"),
    [
        (lambda: pf.Box(None, 1.0), r"Box: lo must contain numbers \(np.inf for no bound\); got None"),
        (lambda: pf.Box(0.0, "1"), "Box: hi must contain numbers"),
        (lambda: pf.Box(np.zeros(2), np.ones(3)), r"lo and hi need the same shape; got \(2,\) and \(3,\)"),
        (lambda: pf.Ball(None), "Ball: radius must contain numbers"),
        (lambda: pf.Ball("far"), "Ball: radius must contain numbers"),
    ],
)
def test_bounds_that_are_no_numbers(make, says):
    with pytest.raises(ValueError, match=says):
        make()


def test_a_box_of_another_shape_than_a_model_of_ones_own():
    problem = pf.Problem(pf.losses.squared, Declared([1.0, 2.0]), domain=pf.Box(np.zeros(2), np.ones(2)))
    with pytest.raises(ValueError, match=r"lo of the Box has shape \(2,\), but theta has shape \(\)"):
        pf.run(problem, pf.p_fedavg(0.1), 1, theta=0.5)


def test_no_bound_is_infinity():
    assert str(pf.Box(-np.inf, 1.0)) == "Box(lo=-inf, hi=1.)"
