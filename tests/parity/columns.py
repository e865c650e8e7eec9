"""The parts of each slot of an algorithm, as columns of the covering array: all that the package exports."""

import collections
import functools
from typing import Any

from part_examples import Example, first_examples, scope

from performative.deploy import _NAMED
from performative.facts import chain

CLIENTS = 7
# Cohorts large enough for rules that outvote some clients, and a model that is one number.
NAMES = scope(CLIENTS, rows=6, features=1, cohort=5)
SLOTS = ("estimator", "aggregator", "participation", "channel", "batch", "deploy", "sharing")


def fits(example: Example) -> bool:
    """Whether any population will do."""
    return not (example.population or example.loss)


def held_parts() -> dict[type, list[Any]]:
    """{class of a holder: one for each part that it can hold}."""
    found: dict[type, list[Any]] = {}
    for example in first_examples():
        for holder in example.holders:
            if holder != "{}" and fits(example):
                whole = eval(holder.format(example.call), NAMES)
                found.setdefault(type(whole), []).append(whole)
    return found


def columns() -> dict[str, dict[str, list[Any]]]:
    """{slot: {class: [its example, then one for each part that it can hold]}}."""
    held, table = held_parts(), {slot: dict[str, list[Any]]() for slot in SLOTS}
    table["deploy"] = {name: [name] for name in _NAMED}
    for example in first_examples(*SLOTS):
        if fits(example):
            part = example.made(NAMES)
            table[example.slot][example.word] = [part, *held.get(type(part), ())]
    return table


@functools.cache
def company() -> dict[tuple[str, str], dict[str, type]]:
    """{(slot, class): {another slot: a class that must be in it}}."""
    return {
        (example.slot, example.word): {slot: type(eval(text, NAMES)) for slot, text in example.beside.items()}
        for example in first_examples(*SLOTS)
        if example.beside
    }


def has_company(row: dict[str, str], table: dict[str, dict[str, list[Any]]]) -> bool:
    """Whether every part of a row has beside it what it cannot work without, in the slots that the row has."""
    for pair in row.items():
        for slot, kind in company().get(pair, {}).items():
            if slot not in row:
                continue
            there = table[slot][row[slot]][0]
            if isinstance(there, str) or not any(type(part) is kind for part in chain(there)):
                return False
    return True


def turns_of(rows: list[dict[str, str]]) -> list[dict[str, int]]:
    """For each row and slot how often its part was in the rows before: of several examples the next one is due."""
    seen: collections.Counter[tuple[str, str]] = collections.Counter()
    turns = []
    for row in rows:
        turns.append({slot: seen[slot, name] for slot, name in row.items()})
        seen.update(row.items())
    return turns
