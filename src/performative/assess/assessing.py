"""`assess`: the questions of the demo, for your own table."""

import dataclasses
from collections.abc import Hashable, Mapping, Sequence
from typing import Any

import numpy as np

from performative._base.arguments import checked
from performative._base.bars import progress_bar
from performative._base.checks import check_finite, check_rule, is_one_of
from performative.assess.outcome import Assessment
from performative.facts import cites
from performative.types import ArrayLike, Unchecked

# The true strength is unknown: multiples of the given one.
RANGE = (0.25, 0.5, 1.0, 2.0, 4.0)
# A share of refusals that differs from the requested one by more than this is reported in a note.
_TIED = 0.005


@cites("perdomo2020performative", "hardt2016strategic")
@checked
def assess(
    people: Any,
    *,
    label: Hashable,
    positive: Hashable = None,
    client: Hashable = None,
    strategic: Unchecked[Sequence[Hashable] | None] = None,
    strength: ArrayLike | Mapping[Hashable, float] = 1.0,
    group: Hashable = None,
    who: str = "everyone",
    share: float | None = None,
    ignore: Unchecked[Sequence[Hashable]] = (),
    scale: str = "auto",
    penalty: float | None = None,
    rows: int = 5000,
    seed: int = 0,
    progress: bool | None = None,
) -> Assessment:
    """Would it change my data, would retraining settle, what would ignoring it cost, and who would be hurt?

        people show x - strength theta on the `strategic` columns, in units of their spread

    Args:
        people: a table as for `Problem.from_frame`, a .csv or .parquet file, or a database as in `performative audit`:
            one row per person
        label: column with two classes. yes, true and 1 mean 1; otherwise `positive` names the class that is 1, the one
            that people try to avoid
        client: column with the client each row belongs to (a bank), None for one client
        strategic: columns that people can change, None for all numeric ones but those of 0 and 1
        strength: how far they move per unit of the score's slope: one number or {client: number}. It is unknown, so
            everything is computed for strengths from a quarter of it to four times as much
        group: column with a group, for rates by group; it is then not used as a feature
        who: "everyone" responds, or only people of class 1 ("positive"), who have the most to gain
        share: fraction of people who are refused, None for the share of label 1; each model refuses this fraction on
            the data it was trained on
        ignore: columns to leave out
        scale: "auto" clips columns whose scale is set by a few people at their 1% and 99% quantiles, or, if these are
            as extreme, 3 interquartile ranges beyond the quartiles; "standard" never does; "robust" scales all by
            median and quartiles
        penalty: L2, None for 1 / (number of rows)
        rows: maximum number of rows to use; larger tables are subsampled at random with `seed`

    A single table cannot show *whether* people respond: that requires logs of several deployments (`pf.audit`). The
    result is what follows if they do, for a linear model with the logistic loss, measured on the people it is trained
    on. Verdicts on retraining, and their limits, are those of `pf.certify`.
    """
    from performative.assess.features import features_of
    from performative.assess.measuring import MODELS, People, flat, measure
    from performative.assess.problems import problem_of_people

    _check(who, share)
    problem, made, name = problem_of_people(
        people, label=label, positive=positive, client=client, strategic=strategic, strength=strength, group=group,
        ignore=ignore, scale=scale, penalty=penalty, rows=rows, seed=seed,
    )  # fmt: skip
    base: Any = problem.population
    first = np.asarray(base.strength, np.float64)
    order = np.concatenate(list(made.frame.groupby(made.client, sort=True).indices.values()))
    bad = made.frame[made.label].to_numpy()[order] == 1
    told = People(
        problem, flat(problem, base.x), bad, None if made.group is None else made.group[order],
        float(np.mean(bad)) if share is None else share,
    )  # fmt: skip
    size = float(np.average(np.broadcast_to(first, (problem.clients,)), weights=problem.client_weights))
    scenarios, certificates = [], []
    with progress_bar("assess", len(RANGE), progress, "strengths") as update:
        for number, part in enumerate(RANGE):
            update(number, lambda part=part: f"strength {part * size:g}")  # type: ignore[misc]  # bound here
            asked = dataclasses.replace(problem, population=stronger(base, first * part, who))
            scenario, found = measure(told, asked, part * size)
            scenarios.append(scenario)
            certificates.append(found)
    asked_for = certificates[RANGE.index(1.0)]
    usual = scenarios[RANGE.index(1.0)].models["static"]
    refused = float(np.where(bad, usual.expected_caught, usual.expected_wrongly).mean())
    tied = abs(refused - told.share) > _TIED
    return Assessment(
        name=name, rows=len(bad), clients=problem.clients, positive=made.positive, label=made.label, who=who,
        strategic=made.strategic, share=refused, strength=size, scenarios=tuple(scenarios),
        features=features_of(problem, {name: getattr(asked_for, name) for name in MODELS}, size),
        certificate=asked_for,
        notes=(*made.notes, *(coarse(told.share, refused) for _ in range(tied))),
    )  # fmt: skip


def coarse(share: float, refused: float) -> str:
    return (
        f"Many people have the same score, so not {100 * share:.1f}% but {100 * refused:.1f}% are refused: "
        "the nearest share that a threshold on the score can give."
    )


def stronger(population: Any, strength: ArrayLike, who: str) -> Any:
    """The same people with another strength; for class 1 alone if only they respond."""
    if who == "positive":
        own = np.broadcast_to(np.asarray(strength, np.float64), (population.clients,))
        strength = np.stack([np.zeros_like(own), own], axis=1)
    return dataclasses.replace(population, strength=np.asarray(strength, np.float64))


def _check(who: str, share: float | None) -> None:
    if not is_one_of(who, "everyone", "positive"):
        raise ValueError(f'assess: who must be "everyone" or "positive"; got {who!r}.')
    if share is not None:
        check_finite("assess", share=share)
        check_rule("assess", "must lie between 0 and 1", share=share)
