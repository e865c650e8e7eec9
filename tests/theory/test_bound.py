"""One record for what theorems say: its sum, its causes by name, what is unmet, and the names that it once had."""

import copy
import math

import numpy as np
import pytest

from performative import theory
from performative.theory import Bound, ClippedAssumptions, FederatedAssumptions, fedavg, optimal_step, pcsgd

GIVEN = FederatedAssumptions(L=1.0, sigma=1.0, sigma_g=0.5, gap=2.0, clients=10)


def test_the_total_is_the_sum_of_the_terms():
    found = fedavg(GIVEN, 0.01, 4, 1000, 5)
    assert found.total == sum(found.terms.values()) > 0 and found.holds
    assert found.drift == found.terms["drift"] > 0 and set(found.terms) > {"participation", "noise"}
    path = pcsgd(ClippedAssumptions(1.0, 1.0, 0.1, 3.0, 16.0), 1.0, [0.1, 0.1])
    assert path.total.shape == (3,) and path.total[0] == 16.0
    np.testing.assert_array_equal(path.total, path.transient + path.noise + path.clipping)


def test_what_is_unmet_makes_it_infinite_and_says_why():
    found = fedavg(GIVEN, 1.0, 4, 1000)
    assert not found.holds and found.total == found.drift == math.inf
    assert str(found).startswith("Bound(inf = inf transient + ") and "unmet: eta tau L <= 1/2: it is 4; " in str(found)
    path = Bound.nothing("a b", ("why",), steps=3)
    assert path.total.shape == (4,) and np.all(np.isinf(path.total)) and Bound.nothing("a", ("why",)).a == math.inf


def test_it_reads_as_a_sum():
    assert repr(Bound.by("start noise", 1.5, np.array([9.0, 0.25]))) == "Bound(1.75 = 1.5 start + 0.25 noise)"
    chosen = optimal_step(ClippedAssumptions(1.0, 1.0, 0.1, 3.0, 16.0), 1.0, 100)
    assert f", step {chosen.step:.6g}, clip 1" in repr(chosen) and chosen.step == chosen.details["step"]


def test_a_name_that_it_does_not_have():
    found = Bound.by("start noise", 1.5, 0.25)
    with pytest.raises(AttributeError, match="no 'drift'; it has start, noise"):
        found.drift  # noqa: B018
    assert copy.deepcopy(found).noise == 0.25
    with pytest.raises(AttributeError):
        found.optimisation  # noqa: B018
    with pytest.raises(ValueError, match="zip"):
        Bound.by("start noise", 1.5)


def test_old_names_work_and_warn():
    for name in ("Choice", "ErrorBound", "GradientBound", "PointGap", "RiskBound", "SelectionBound"):
        with pytest.warns(DeprecationWarning, match=rf"theory\.{name} is now performative\.theory\.Bound"):
            assert getattr(theory, name) is Bound
    found = fedavg(GIVEN, 0.01, 4, 1000)
    for old, new in {"optimisation": "transient", "bound": "total"}.items():
        with pytest.warns(DeprecationWarning, match=f"Bound.{old} is now Bound.{new}"):
            assert getattr(found, old) == getattr(found, new)
    with pytest.raises(AttributeError, match="no attribute 'Nothing'"):
        theory.Nothing  # noqa: B018
