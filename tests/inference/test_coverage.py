"""Intervals at 95% hold the truth in 94 to 96% of ten thousand runs: `docs/recipes/confidence.md` has the table."""

import pytest
from coverage_cases import CASES, coverage, line

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("optimized_programs")]


@pytest.mark.parametrize("name", CASES)
def test_coverage(name):
    found = coverage(CASES[name])
    print(line(name, found))
    assert all(94 <= share <= 96 for shares in found.values() for share in shares), found


def test_there_are_enough_problems():
    assert len(CASES) >= 12
