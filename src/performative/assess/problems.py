"""Convert a user's table to a problem with people who respond."""

import warnings
from collections.abc import Hashable, Mapping, Sequence
from typing import Any

import numpy as np

from performative._base.checks import check_counts, check_rule, is_one_of
from performative._base.messages import PerformativeWarning
from performative.assess.preparing import Prepared, prepare
from performative.assess.reading import read_people
from performative.problem import Problem
from performative.types import ArrayLike, Unchecked


def problem_of_people(
    people: Any,
    *,
    label: Hashable,
    positive: Hashable = None,
    client: Hashable = None,
    strategic: Unchecked[Sequence[Hashable] | None] = None,
    strength: ArrayLike | Mapping[Hashable, float] = 1.0,
    group: Hashable = None,
    ignore: Unchecked[Sequence[Hashable]] = (),
    scale: str = "auto",
    penalty: float | None = None,
    rows: int = 5000,
    seed: int = 0,
) -> tuple[Problem, Prepared, str]:
    """Return the problem, the prepared table, and its name. Arguments as in `pf.assess`."""
    listed = [strategic] if isinstance(strategic, str) else strategic
    if listed is not None and not isinstance(listed, (list, tuple)):
        raise ValueError(f"assess: strategic must be a list of column names, or None for all; got {strategic!r}.")
    left_out = [ignore] if isinstance(ignore, str) else ignore
    if not isinstance(left_out, (list, tuple)):
        raise ValueError(f"assess: ignore must be a list of column names; got {ignore!r}.")
    if not is_one_of(scale, "auto", "standard", "robust"):
        raise ValueError(f'assess: scale must be "auto", "standard" or "robust"; got {scale!r}.')
    check_counts(**{"assess: rows": rows})
    frame, name = read_people(people, None if client is None else str(client))
    if not len(frame):
        raise ValueError(f"{name}: there are no rows.")
    made = prepare(
        frame, label=label, positive=positive, client=client, strategic=listed, group=group, ignore=left_out, rows=rows,
        scale=scale, seed=seed,
    )  # fmt: skip
    with warnings.catch_warnings():
        # "auto" has already fixed what it can, and "standard" was requested explicitly.
        warnings.simplefilter("ignore", PerformativeWarning)
        problem = Problem.from_frame(
            made.frame, client=made.client, label=made.label, strategic=list(made.strategic), strength=_named(strength),
            penalty=penalty, standardize="robust" if scale == "robust" else True,
        )  # fmt: skip
    population: Any = problem.population
    check_rule("assess", "must not be negative", strength=np.asarray(population.strength))
    return problem, made, name


def _named(strength: Any) -> Any:
    """Clients are strings here, whatever they are in the table."""
    return {str(name): value for name, value in strength.items()} if isinstance(strength, Mapping) else strength
