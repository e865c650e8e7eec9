"""Intervals of causal designs hold the truth in 95 of 100 logs, or are not given; `cause_worlds` prints the table."""

import cause_worlds
import pytest
from cause_worlds import WORLDS, coverage

from performative.audit.causes.words import DESIGNS

QUICK = {"randomized clients": 200, "threshold, bending outcome": 100, "breaks, controls, drift": 100}


def judge(name, runs):
    """Each cell: covers within Monte-Carlo error, refuses, or stands in the table as broken without a trace."""
    world = WORLDS[name]
    cells = coverage(world, runs)
    for design in DESIGNS:
        cell = cells[design]
        if design in world.unseen:
            assert cell.held < 92.5, f"{name}, {design}: {cell}; the star is to go"
        elif cell.refused < 95:
            # 95 +- 2.5% for 1,000 answers, the same number of standard errors for fewer.
            assert abs(cell.held - 95) <= 2.5 * (1000 / cell.answers) ** 0.5, f"{name}, {design}: {cell}"
        if design in world.answers:
            assert cell.refused <= 12, f"{name}, {design} refuses sound logs: {cell}"
    return cells


@pytest.mark.parametrize("name", QUICK)
def test_intervals_hold_the_truth_or_are_not_given(name):
    judge(name, QUICK[name])


@pytest.mark.slow
@pytest.mark.parametrize("name", WORLDS)
def test_the_whole_table(name):
    judge(name, cause_worlds.RUNS)


def test_a_line_of_the_table_tells_what_is_refused_and_what_is_not_seen():
    world = WORLDS["breaks, a shock at the same time"]
    told = cause_worlds.line("a shock", world, coverage(world, 3))
    assert told.count("-") == 3 and told.count("*") == 1
