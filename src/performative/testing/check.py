"""`check_part`: find the slot of a part and check the part against the rules of that slot."""

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
    """Raise AssertionError, naming the rule, if a part breaks the contract of its slot.

    The rules, by name:

    fields            whole numbers are declared by `pf.whole()` or `pf.number()`
    types_stay        memory keeps its structure, shapes and dtypes across calls, in float32 and float64
    jit_equals_eager  compiled and eager results agree
    vmap_equals_loop  results mapped over clients, repeats or settings agree with those of a loop
    compiles_once     other numbers, other keys and the returned memory do not trigger recompilation
    sweeps            numbers can be given a leading axis of settings
    saves             memory survives being written as plain arrays (no pickle) and read back
    padding           NaN in rows that do not count (spare, masked, past the end of a table) changes nothing
    relabeling        renaming the clients renames the result and changes nothing else
    sitting_out       an aggregator leaves its rows of absent clients bitwise unchanged
    sums              an aggregator that declares it needs only sums makes the same move from the sum alone
    in_a_round        in two rounds of a gathered cohort the model stays finite and absent clients' memory is bitwise
                      unchanged; the part can be traced with all clients computing, where a population has the same
                      result
    expectations      a population's `quadrature` and its draws have the same expectations
    settling          a population's `settle` is a fixed point of `deploy`, to which repeated deployment converges;
                      skip it if data never settle: runs do not need it, stable points do
    and by slot       cohort (participation), nodes (population), projection (domain), step_size (schedule)

    A rule that does not apply (no memory to save, no numbers to sweep) is skipped; parts that see one client at a time
    cannot break `relabeling`. Without `problem`, a tiny strategic problem with seven clients is used.

    Args:
        part: a population, estimator, participation, channel, aggregator, sharing, batch, schedule or domain
        problem: a small problem that the part fits; for a population, one whose loss accepts its samples
        theta: the model to start at; required if the population fits any model
        algorithm: the algorithm to put the part into, if it needs specific other parts (an aggregator that reads what
            one estimator sends)
        seed: for all random draws
        skip: names of rules to skip

    Returns the names of the rules that the part was checked against.
    """
    unknown = set(skip) - {*EVERY_SLOT, *(name for rules in SLOT_RULES.values() for name in rules)}
    if unknown:
        raise ValueError(f"skip names unknown rules: {sorted(unknown)}.")
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
            except Exception as error:  # any exception of the part breaks the rule
                broken(part, name, error)
            if applies is not False:
                checked.append(name)
    return tuple(checked)
