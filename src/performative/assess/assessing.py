"""`assess`: the questions of the demo, for one's own table."""

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

# Since nobody knows the strength: parts of the one that was given.
RANGE = (0.25, 0.5, 1.0, 2.0, 4.0)


@cites("perdomo2020performative", "hardt2016strategic")
@checked
def assess(
    people: Any,
    *,
    label: str,
    positive: Hashable = None,
    client: str | None = None,
    strategic: Unchecked[Sequence[str] | None] = None,
    strength: ArrayLike | Mapping[Hashable, float] = 1.0,
    group: str | None = None,
    who: str = "everyone",
    share: float | None = None,
    ignore: Unchecked[Sequence[str]] = (),
    scale: str = "auto",
    penalty: float | None = None,
    rows: int = 5000,
    seed: int = 0,
    progress: bool | None = None,
) -> Assessment:
    """Would it change my data, would retraining settle, what would ignoring it cost, and who would be hurt?

        people show x - strength theta on the `strategic` columns, in units of their spread

    Args:
        people: a frame, a .csv or .parquet file, or a database as `performative audit` names it: one row per person
        label: column of two classes. yes, true and 1 stand for themselves; else `positive` names what is 1, the class
            that people try not to be
        client: column that says whose row it is (a bank), None for one client
        strategic: columns that people can change, None for all numeric ones
        strength: how far they go per unit of the score's slope: one number or {client: number}. Nobody knows it, so all
            is asked for a quarter of it to four times as much
        group: column of a group, for rates by group; it is no feature then
        who: "everyone" responds, or only people of class 1 ("positive"), who have most to hide
        share: of people who are refused, None for the share of label 1; each model refuses so many on the data that it
            was learnt from
        ignore: columns to leave out
        scale: "auto" cuts columns whose scale a few people set at their 1 % and 99 % quantiles; "standard" never does;
            "robust" scales all by median and quartiles
        penalty: L2, None for 1 / (number of rows)
        rows: most rows that are used, drawn at random by `seed` from more

    One table cannot show *whether* people respond: that takes logs of several deployments (`pf.audit`). What is said is
    what follows if they do, for a linear model of the logistic loss, measured on the people that it is trained on.
    Verdicts on retraining are those of `pf.certify`, and so is what they do not know.
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
    return Assessment(
        name=name, rows=len(bad), clients=problem.clients, positive=made.positive, label=made.label, who=who,
        strategic=made.strategic, share=told.share, strength=size, scenarios=tuple(scenarios),
        features=features_of(problem, {name: getattr(asked_for, name) for name in MODELS}, size),
        certificate=asked_for,
        notes=made.notes,
    )  # fmt: skip


def stronger(population: Any, strength: ArrayLike, who: str) -> Any:
    """The same people with another strength; of class 1 alone where only they respond."""
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
