"""Lemma C.3: the sensitivity of a mixture."""

import numpy as np
import pytest
from scipy.stats import wasserstein_distance

from performative.theory import mixture_sensitivity

SLOPE = 0.1


def moved(gamma, low, high, scale=0.5, points=4001):
    """W_1 between two normals with shares 0.6 + SLOPE theta and the rest, under two models."""
    atoms = np.linspace(-4, 4, points)
    density = np.exp(-(atoms**2) / 2) / np.exp(-(atoms**2) / 2).sum()

    def law(theta):
        shares = (0.6 + SLOPE * theta, 0.4 - SLOPE * theta)
        values = [mean + gamma * theta + scale * atoms for mean in (1.0, 3.0)]
        return np.concatenate(values), np.concatenate([share * density for share in shares])

    (first, p), (second, q) = law(low), law(high)
    return wasserstein_distance(first, second, p, q)


def test_it_dominates_and_is_tight_for_fixed_groups():
    bound = mixture_sensitivity(0.0, distance=2.0, share_slope=SLOPE)
    found = moved(0.0, 0.5, 1.5)
    assert 0.99 * bound < found <= bound * (1 + 1e-9)


def test_it_dominates_where_groups_move_too():
    for gamma in (0.05, 0.3, -0.3):
        assert moved(gamma, 0.5, 1.5) <= mixture_sensitivity(abs(gamma), 2.0, SLOPE) * (1 + 1e-9)


@pytest.mark.parametrize("name", ["group_sensitivity", "distance", "share_slope"])
def test_numbers_that_are_none_are_refused(name):
    with pytest.raises(ValueError, match=f"{name} must be finite and not negative"):
        mixture_sensitivity(**{"group_sensitivity": 0.0, "distance": 1.0, "share_slope": 1.0, name: -1.0})
