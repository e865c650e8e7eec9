"""`check_part`: finds the slot of a part and holds the part against the rules of that slot."""

from collections.abc import Collection

import jax
import jax.numpy as jnp

from performative._base.checks import check_fields
from performative.algorithm import Algorithm
from performative.facts import AbstractPart
from performative.problem import Problem
from performative.testing.cases import build_case, slot_of
from performative.testing.rules import EVERY_SLOT, broken
from performative.testing.slot_rules import SLOT_RULES
from performative.types import Theta, Unchecked


def check_part(
    part: Unchecked[AbstractPart],
    problem: Problem | None = None,
    *,
    theta: Theta | None = None,
    algorithm: Algorithm | None = None,
    seed: int = 0,
    skip: Collection[str] = (),
) -> tuple[str, ...]:
    """Raise AssertionError, naming the rule, where a part breaks the contract of its slot.

    The rules, by name:

    fields            whole numbers are declared by `pf.whole()` or `pf.number()`
    types_stay        memory keeps its structure, shapes and dtypes from call to call, in float32 and float64
    jit_equals_eager  compiled and step by step the results agree
    vmap_equals_loop  mapped over clients, repeats or settings, and one at a time, the results agree
    compiles_once     other numbers, other keys and the memory that came back do not compile again
    sweeps            numbers can be given a leading axis of settings
    saves             memory survives being written as plain arrays (no pickle) and read back
    padding           NaN in rows that do not count (spare, masked, past the end of a table) changes nothing
    relabeling       renaming the clients renames the result and changes nothing else
    sitting_out       an aggregator leaves its rows of absent clients bitwise as they were
    sums              an aggregator that says it needs sums only makes the same move of the sum, without the updates
    in_a_round        in two rounds of a gathered cohort the model stays finite and absent clients' memory bitwise as
                      it was; the part traces where everyone computes, and a population gives the same result there
    expectations      a population's `nodes` and its draws have the same expectations
    settling          a population's `settle` is a world that `deploy` leaves where it is, and that spells lead to;
                      skip it where data never come to rest: runs do not need it, stable points do
    and by slot       cohort (participation), nodes (population), projection (domain), step_size (schedule)

    A rule that does not apply (no memory to save, no numbers to sweep) is passed over; parts that see one
    client at a time cannot break `relabeling`. Without `problem` it is a tiny strategic one of seven clients.

    Args:
        part: a population, estimator, participation, channel, aggregator, batch, schedule or domain
        problem: a small problem that the part fits; for a population, one whose loss takes its samples
        theta: the model to start at; needed where the population fits any model
        algorithm: the record to put the part into, where it needs company (an aggregator that reads what one estimator
            sends)
        seed: of all that is drawn here
        skip: names of rules to leave out

    Returns the names of the rules that the part was checked against.
    """
    unknown = set(skip) - {*EVERY_SLOT, *(name for rules in SLOT_RULES.values() for name in rules)}
    if unknown:
        raise ValueError(f"skip names rules that there are not: {sorted(unknown)}.")
    slot = slot_of(part)
    try:
        check_fields(part)
    except ValueError as error:
        broken(part, "fields", AssertionError(str(error)))
    rules = {**EVERY_SLOT, **SLOT_RULES[slot]}
    checked = []
    with jax.enable_x64(True):
        try:
            case = build_case(slot, part, problem, theta, algorithm, seed, jnp.float64)
        except (ValueError, AssertionError):
            raise
        except Exception as error:
            broken(part, "init", error)
        for name, rule in rules.items():
            if name in skip:
                continue
            try:
                applies = rule(case)
            except Exception as error:  # whatever the part raised is what it broke the rule with
                broken(part, name, error)
            if applies is not False:
                checked.append(name)
    return tuple(checked)
