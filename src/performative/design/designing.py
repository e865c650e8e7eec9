"""`design`: the least exploration that reveals a reaction, or narrows its interval."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from performative._base.arguments import Count, Positive, Values, checked
from performative._base.checks import nearest
from performative.design.conditions import Conditions
from performative.design.outcome import Design
from performative.design.people import conditions_of
from performative.problem import Problem
from performative.types import Theta, Unchecked


@checked
def design(
    source: Unchecked[Problem | Conditions | str | Path],
    *,
    effect: Positive | None = None,
    power: float = 0.9,
    width: Positive | None = None,
    level: float = 0.95,
    deployments: Count | None = None,
    size: Positive | None = None,
    rows: Values = 100,
    clients: Sequence[str | int] | None = None,
    each: bool = False,
    column: str | int | None = None,
    parameters: Sequence[str | int] | None = None,
    theta: Theta = None,
    drift: str = "linear",
    seed: int = 0,
) -> Design:
    """Find the least exploration that detects a given reaction, or narrows its interval to a width; and its cost.

        theta_t = theta + size s_t,   s_t = + - - + + - - + ...;      se of the slope = sigma / (size sqrt(n T))

    The added deployed loss is T size^2 PR'' / 2 to leading order, and the information grows with n T size^2: few large
    steps and many small ones cost the same. So the time or the size must be limited: with `deployments` (20), or with
    `size`, in which case the cheapest clients and the shortest time are chosen.

    Args:
        source: a `Problem` (simulated people), `pf.design`'s `Conditions` (a summary of logs), or a folder of logs
        effect: the reaction to detect, in units of the column per unit of a parameter, with probability `power`; or
        width: the width of its interval, on average
        level: of the interval, and 1 - level of the test
        deployments: the most deployments (400 if `size` is given); multiples of 4 are used
        size: the largest step in a parameter that may be deployed
        rows: rows per client and deployment, for a `Problem`
        clients: where to explore; None for all, or, if `size` is given, for the cheapest that suffice
        each: whether each client's own slope is required, instead of one common slope
        column: the column that reacts; None for the noisiest
        parameters: which to move, each separately; None for all
        theta: the currently deployed model, for a `Problem`; None for its stable point
        drift: "none" or "linear": what the analysis removes, pf.audit.response(log, drift=drift,
            method="least squares")

    Valid if means respond linearly to the model over the step, and the noise does not change. For clients that react
    differently, the common slope is their mean weighted by precision.
    """
    if (effect is None) == (width is None):
        raise ValueError("design: pass exactly one of effect= (with power=) and width=.")
    for name, value in (("power", power), ("level", level)):
        if not 0 < value < 1:
            raise ValueError(f"design: {name} must lie between 0 and 1; got {value!r}.")
    if effect is not None and power <= 1 - level:
        raise ValueError(f"design: power = {power:g} is reached without exploring; it must exceed 1 - level.")
    if drift not in ("none", "linear"):
        raise ValueError(f"design: drift must be 'none' or 'linear'; got {drift!r}.")
    found = _conditions(source, rows, theta)
    j = _place(column, found.columns, "column", int(np.argmax(found.spread.max(axis=0))))
    chosen = range(len(found.theta)) if parameters is None else parameters
    explored = [_place(one, found.parameters, "parameters", 0) for one in chosen]
    who = None if clients is None else [_place(one, found.clients, "clients", 0) for one in clients]
    if not explored or (who is not None and not who):
        raise ValueError("design: parameters and clients must each name at least one.")
    from performative.design.choosing import Aim, choose

    return choose(found, Aim(effect, width, power, level, drift), j, explored, who, each, deployments, size, seed)


def _conditions(source: object, rows: object, theta: Theta) -> Conditions:
    if isinstance(source, Conditions):
        return source
    if isinstance(source, Problem):
        return conditions_of(source, rows, theta)
    if isinstance(source, (str, Path)):
        if not Path(source).is_dir():
            raise ValueError(f"design: source={str(source)!r} must be a folder of logs, and there is no such folder.")
        from performative.design.past import conditions_of_logs

        return conditions_of_logs(source)
    raise ValueError(
        f"design: source must be a Problem, Conditions or a folder of logs; got a {type(source).__name__}."
    )


def _place(name: str | int | None, names: tuple[str, ...], what: str, default: int) -> int:
    """The index of a name, or of an index given as a number."""
    if name is None:
        return default
    if isinstance(name, (int, np.integer)) and not isinstance(name, bool) and 0 <= name < len(names):
        return int(name)
    if name in names:
        return names.index(str(name))
    raise ValueError(f"design: {what} has no {name!r}.{nearest(str(name), names)}")
