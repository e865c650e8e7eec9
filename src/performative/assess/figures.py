"""Figures of an assessment."""

from performative.assess.assessed import AbstractAssessment
from performative.assess.tables import NAMES
from performative.report.curves import digits
from performative.report.figure import Mark, Series, View

_STRENGTH = "strength of the response"


def pictures(found: AbstractAssessment) -> dict[str, View]:
    """By name: decisions that flip, losses, columns, and groups if there are any."""
    views = {"change": change_view(found), "cost": loss_view(found), "features": features_view(found)}
    return views | ({"groups": groups_view(found)} if found.scenario.groups else {})


def change_view(found: AbstractAssessment) -> View:
    strengths = [one.strength for one in found.scenarios]
    share = digits(100 * one.changed for one in found.scenarios)
    return View(
        "change", _STRENGTH, "decisions that flip (%)", [Series("decisions that flip", share, strengths, dotted=True)],
        marks=[Mark("assumed", found.strength, upright=True)],
        description="Share of decisions by the model trained once that flip, by strength of the response.",
    )  # fmt: skip


def loss_view(found: AbstractAssessment) -> View:
    series = []
    for name, shown in NAMES.items():
        there = [one for one in found.scenarios if name in one.models]
        values = digits(one.models[name].risk for one in there)
        series.append(Series(shown, values, [one.strength for one in there], dotted=True))
    return View(
        "cost", _STRENGTH, "mean loss once deployed", [one for one in series if len(one.y)],
        marks=[Mark("assumed", found.strength, upright=True)],
        description="Mean loss once deployed of the model trained once, the stable and the optimal one, by strength.",
    )  # fmt: skip


def features_view(found: AbstractAssessment) -> View:
    carried = [one for one in found.features if one.movable][:10]
    places = list(range(len(carried)))
    return View(
        "features", "", "share of the response (%)",
        [Series("share", digits(100 * one.share for one in carried), at=places)], kind="bars",
        rows=[one.name for one in carried],
        description="Share of the response due to each column that people can change.",
    )  # fmt: skip


def groups_view(found: AbstractAssessment) -> View:
    groups = found.scenario.groups
    names = list(dict.fromkeys(one.group for one in groups))
    series = []
    for model, shown in NAMES.items():
        own = [one for one in groups if one.model == model and one.good > 1]
        if not own:
            continue
        rise, error = ([100 * getattr(one, name) for one in own] for name in ("rise", "error"))
        ends = [[r + sign * 2 * e for r, e in zip(rise, error, strict=True)] for sign in (-1, 1)]
        series.append(
            Series(shown, digits(rise), at=[names.index(one.group) for one in own], low=digits(ends[0]),
                   high=digits(ends[1]))
        )  # fmt: skip
    return View(
        "groups", "", "change in wrongful refusals (points)", series, kind="rows", rows=names,
        marks=[Mark("as before", 0.0)],
        description="Change in the share of people with label 0 who are refused, by group and model.",
    )  # fmt: skip
