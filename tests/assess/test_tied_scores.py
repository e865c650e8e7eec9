"""Columns of few values: many people have the same score, and a limit refuses all of them or none."""

import sys

import numpy as np
import pandas as pd
import pytest

import performative as pf
from performative.assess.measuring import cut


def test_the_limit_refuses_the_nearest_share_that_there_is():
    scores = np.repeat([0.1, 0.2, 0.3], [40, 50, 10])
    assert [np.mean(scores > cut(scores, share)) for share in (0.05, 0.39, 0.8, 0.1)] == [0.1, 0.6, 0.6, 0.1]
    jittered = scores * (1 + 1e-16 * np.arange(100))  # sums in another order
    assert np.mean(jittered > cut(jittered, 0.39)) == 0.6
    same = np.full(5, 0.3)
    assert not np.any(same > cut(same, 0.5))
    many = np.random.default_rng(0).normal(size=1001)
    assert cut(many, 0.3) == np.quantile(many, 0.7)


def test_one_column_of_zeros_and_ones(monkeypatch):
    """All with a 1 are refused, and all of them are accepted once they have moved it by more than half its step."""
    monkeypatch.setattr(sys.modules["performative.assess.assessing"], "RANGE", (1.0,))
    late = np.repeat([1, 0], [180, 120])
    default = np.concatenate([np.arange(180) % 10 < 6, np.arange(120) % 20 < 3]).astype(int)
    people = pd.DataFrame({"late": late, "default": default})
    with pytest.raises(ValueError, match=r"no numeric column that people could change other than 'late' \(0 or 1\)"):
        pf.assess(people, label="default", progress=False)
    found = pf.assess(people, label="default", strategic=["late"], strength=2.0, progress=False)
    static = found.scenario.models["static"]
    assert found.share == pytest.approx(0.6)
    assert static.expected_caught == pytest.approx(108 / 126) and static.expected_wrongly == pytest.approx(72 / 174)
    assert any("not 42.0% but 60.0% are refused" in note for note in found.notes)
    (slope, _) = np.asarray(found.certificate.static)
    # In spreads of the column, people move it by strength * slope; 0 and 1 lie 1 / sd apart.
    moves = 2.0 * slope > 0.5 / late.std()
    assert found.scenario.changed == pytest.approx(0.6 if moves else 0.0)
    assert static.caught == pytest.approx(0.0 if moves else 108 / 126)
