"""Every name that is no longer used still works, and says what it is now."""

import importlib
import sys
from typing import Any

import jax
import numpy as np
import pandas
import pytest

import performative as pf
from performative import _deprecated
from performative.facts import AbstractPart


@pytest.mark.parametrize(("old", "new"), _deprecated.OLD_MODULES.items())
def test_modules(old, new):
    sys.modules.pop(old, None)
    with pytest.warns(DeprecationWarning, match=rf"{old} is now {new}"):
        found = importlib.import_module(old)
    today = importlib.import_module(new)
    for name in getattr(today, "__all__", ["PerformativeWarning"]):
        assert getattr(found, name) is getattr(today, name)


def test_a_record_of_a_theory_module_that_moved():
    """What such a module held is found there still, under a name that was changed since, too."""
    sys.modules.pop("performative.theory.stability", None)
    with pytest.warns(DeprecationWarning, match=r"theory\.stability is now performative\.theory"):
        from performative.theory.stability import proposition_2_9
    assert proposition_2_9 is pf.theory.jin2024.proposition_2_9
    with pytest.warns(DeprecationWarning, match=r"PointGap is now performative\.theory\.Bound"):
        from performative.theory.stability import PointGap
    assert PointGap is pf.theory.Bound
    assert callable(pf.theory.p_fedavg)


@pytest.mark.parametrize(
    ("module", "old", "new"),
    [(module, old, new) for module, names in _deprecated.OLD_NAMES.items() for old, new in names.items()],
)
def test_names(module, old, new):
    with pytest.warns(DeprecationWarning, match=rf"{old} is now {new}"):
        found = getattr(importlib.import_module(module), old)
    assert found is _deprecated.find(new)


def test_a_name_that_never_was():
    with pytest.raises(AttributeError, match="no attribute 'optimizer'"):
        pf.optimizer  # noqa: B018


def test_keywords():
    family = pf.families.Location()
    with pytest.warns(DeprecationWarning, match="estimate= is now family="):
        assert pf.estimators.Performative(5, estimate=family).family is family
    with pytest.warns(DeprecationWarning, match="centre= is now center="):
        assert pf.cases.house_pricing(centre=1.0).clients == pf.cases.house_pricing(center=1.0).clients
    with pytest.raises(TypeError, match="pass only the new one"):
        pf.estimators.Performative(5, family=family, estimate=family)


def test_a_keyword_of_frames():
    frame = pandas.DataFrame({"bank": ["a", "a", "b", "b"], "x": [0.0, 1.0, 2.0, 5.0], "late": [0, 1, 0, 1]})
    with pytest.warns(DeprecationWarning, match="standardise= is now standardize="):
        old = pf.Problem.from_frame(frame, client="bank", label="late", standardise=False)
    new = pf.Problem.from_frame(frame, client="bank", label="late", standardize=False)
    assert np.array_equal(old.population.x, new.population.x)


def test_values():
    with pytest.warns(DeprecationWarning, match="absent='moves' is now absent='reacts'"):
        assert pf.p_fedavg(0.1, absent="moves").absent == "reacts"


def test_attributes_and_records():
    with pytest.warns(DeprecationWarning, match="licence is now license"):
        assert pf.data.iris().licence == pf.data.iris().license
    problem = pf.Problem(pf.losses.squared, pf.populations.Gaussian(np.zeros(2), 0.1, 1.0))
    history = pf.run(problem, pf.p_fedavg(0.1), 2, theta=0.0)
    with pytest.warns(DeprecationWarning, match="'broken_updates' is now 'nonfinite_updates'"):
        assert np.array_equal(history["broken_updates"], history["nonfinite_updates"])


def test_what_authors_of_parts_define():
    """A part that was written for the old names works as before."""
    with pytest.warns(DeprecationWarning, match="everyone is now is_full"):

        class All(pf.participation.AbstractParticipation):
            @property
            def everyone(self):
                return True

    assert All.is_full is All.everyone
    assert issubclass(All, AbstractPart)


def test_populations_whose_hooks_take_theta_and_loss():
    with pytest.warns(DeprecationWarning, match="init, deploy, settle now take a scene"):

        class Trailing(pf.populations.AbstractPopulation):
            mean: Any = pf.per_client()

            def init(self, theta, loss):
                return theta

            def deploy(self, world, theta, loss):
                return world + 0.5 * (theta - world)

            def settle(self, theta, loss):
                return self.deploy(self.init(theta, loss), theta, loss)

            def sample(self, noise, world, theta):
                return self.mean + 0.4 * world + jax.random.normal(noise, (), theta.dtype)

    mean = np.array([1.0, 2.0])
    old = pf.Problem(pf.losses.squared, Trailing(mean))
    new = pf.Problem(
        pf.losses.squared, pf.populations.Sluggish(pf.populations.Gaussian(mean, np.full(2, 0.4), np.ones(2)), 0.5)
    )
    ends = [pf.run(problem, pf.p_fedavg(0.05), 300, np.zeros(()), repeats=20).final.mean() for problem in (old, new)]
    np.testing.assert_allclose(*ends, atol=0.1)
