"""The answers of an assessment, as findings and in words."""

import math
from typing import Any

import numpy as np

from performative.assess.assessed import AbstractAssessment
from performative.findings import Finding, Words

QUESTIONS = {
    "answer.change": "Would the model change my data?",
    "answer.settle": "Would retraining settle?",
    "answer.cost": "What would ignoring it cost?",
    "answer.features": "Which columns carry it?",
    "answer.groups": "Who would be hurt?",
}
# Fewer people with label 0 in a group say nothing of it.
_FEW = 30
# Decisions that flip, or accuracy that is lost, from which on an effect is worth a word.
_WORTH = 0.01


def findings_of(found: AbstractAssessment) -> tuple[Finding, ...]:
    """Change, settle, cost, features, and groups where there are some."""
    return (_change(found), _settle(found), _cost(found), _features(found), *_groups(found))


def answers_of(found: AbstractAssessment) -> list[tuple[str, str, str]]:
    """(question, the answer in a few words, why)."""
    return [(QUESTIONS[one.code], SHORT.say(one), WORDS.say(one)) for one in findings_of(found)]


def _change(found: AbstractAssessment) -> Finding:
    now = found.scenario
    first = next((one.strength for one in found.scenarios if one.changed > _WORTH), None)
    data = {
        "strength": found.strength, "changed": now.changed, "first": first, "least": found.scenarios[0].strength,
        "most": found.scenarios[-1].strength, "at_most": found.scenarios[-1].changed, "detectable": now.detectable,
        "rows": found.rows,
    }  # fmt: skip
    return Finding("answer.change", "warning" if now.changed > _WORTH else "info", data)


def _settle(found: AbstractAssessment) -> Finding:
    now = found.scenario
    data = {
        "strength": found.strength, "settles": now.settles, "verdict": now.verdict, "reached": now.reached,
        "small_steps": now.small_steps, "alike": found.who == "everyone" and _is_alike(found),
        "others": [[one.strength, one.settles] for one in found.scenarios],
    }  # fmt: skip
    return Finding("answer.settle", {True: "info", False: "warning", None: "caution"}[now.settles], data)  # type: ignore[arg-type]  # they are severities


def _is_alike(found: AbstractAssessment) -> bool:
    """Whether the response is the same for everybody, so that an intercept undoes it."""
    here = found.certificate
    return here.stable is not None and bool(np.ptp(np.asarray(here.sensitivity)) == 0)


def _cost(found: AbstractAssessment) -> Finding:
    now = found.scenario
    static, stable, optimal = (now.models.get(name) for name in ("static", "stable", "optimal"))
    data = {
        "lost": now.lost, "lost_error": now.lost_error, "excess": now.excess, "excess_error": now.excess_error,
        "further": now.further, "risks": [None if one is None else one.risk for one in (static, stable, optimal)],
        "rates": [None if one is None else [one.caught, one.wrongly, one.accuracy] for one in (static, stable)],
        "expected": [static.expected_caught, static.expected_wrongly, static.expected_accuracy] if static else None,
    }  # fmt: skip
    worth = now.lost > max(_WORTH, 2 * now.lost_error)
    return Finding("answer.cost", "warning" if worth else "info", data)


def _features(found: AbstractAssessment) -> Finding:
    carried = [one for one in found.features if one.share > 0][:3]
    shown = [{"name": one.name, "share": one.share, "moves": one.moves} for one in carried]
    return Finding("answer.features", "info", {"carried": shown, "strength": found.strength})


def _groups(found: AbstractAssessment) -> list[Finding]:
    """Where wrongful refusals rise most under the stable model, and whether that is more than chance."""
    now = found.scenario
    model = "stable" if "stable" in now.models else "static"
    own = [one for one in now.groups if one.model == model]
    if not own:
        return []
    enough = [one for one in own if one.good >= _FEW]
    few = [one.group for one in own if one.good < _FEW]
    data: dict[str, Any] = {"model": model, "few": few, "most": None, "least": None, "sure": None, "least_good": _FEW}
    if len(enough) > 1:
        most, least = max(enough, key=lambda one: one.rise), min(enough, key=lambda one: one.rise)
        from scipy import stats

        error = math.hypot(most.error, least.error)
        pairs = len(enough) * (len(enough) - 1) / 2
        # One of all pairs was picked out: the level is shared between them.
        limit = float(stats.norm.ppf(1.0 - 0.025 / pairs)) * error
        data |= {
            "most": [most.group, most.rise, most.error], "least": [least.group, least.rise, least.error],
            "sure": bool(most.rise - least.rise > limit),
        }  # fmt: skip
    return [Finding("answer.groups", "warning" if data["sure"] else "info", data)]


def _percent(value: float) -> str:
    return f"{100 * value:.1f} %"


def _points(value: float, error: float | None = None) -> str:
    """Percentage points, with their standard error."""
    said = f"{100 * value:+.1f}" if error is None else f"{100 * value:+.1f} ± {100 * error:.1f}"
    return f"{said} points"


def _say_change(
    strength: float, changed: float, first: float | None, least: float, most: float, at_most: float,
    detectable: bool | None, rows: int,
) -> str:  # fmt: skip
    said = (
        f"With strength {strength:g} a model trained once would decide otherwise on {_percent(changed)} of the people "
        "who respond. "
    )
    if first is None:
        said += f"Up to strength {most:g} never more than one in a hundred do ({_percent(at_most)} at the most). "
    elif first > least:
        said += f"More than one in a hundred flip from strength {first:g} on. "
    else:
        said += f"Even with strength {least:g} more than one in a hundred flip. "
    told = {
        True: f"{rows:,} rows are enough to tell the stable model from the one trained once.",
        False: f"{rows:,} rows are too few to tell the stable model from the one trained once.",
        None: f"Whether {rows:,} rows tell the two models apart is not known.",
    }
    return said + told[detectable] + " Whether people respond at all, one table cannot show: logs can (the audit)."


def _range(others: list[list[Any]]) -> str:
    kinds = {True: "settles", False: "does not settle", None: "not known"}
    if len({settles for _, settles in others}) == 1:
        return f"The same holds from strength {others[0][0]:g} to {others[-1][0]:g}."
    return "By strength: " + ", ".join(f"{s:g} {kinds[settles]}" for s, settles in others) + "."


def _say_settle(
    strength: float, settles: bool | None, verdict: str, reached: int | None, small_steps: bool | None, alike: bool,
    others: list[list[Any]],
) -> str:  # fmt: skip
    said = verdict
    if settles and reached is not None:
        said += f" From the model trained once it takes {reached} retraining{'' if reached == 1 else 's'}."
    elif settles:
        said += " From the model trained once it was not there after 20 retrainings."
    if alike:
        said += " All people move alike here, which a new intercept undoes; with who='positive' it does not."
    return f"{said} {_range(others)}"


def _say_cost(
    lost: float, lost_error: float, excess: float | None, excess_error: float | None, further: float | None,
    risks: list[float | None], rates: list[list[float]], expected: list[float],
) -> str:  # fmt: skip
    (caught, wrongly, right), stable = rates
    said = (
        f"Trained once and deployed it catches {_percent(caught)} of label 1 in place of {_percent(expected[0])} "
        f"({_points(-lost, lost_error)}{_doubt(lost, lost_error)}), refuses {_percent(wrongly)} of label 0 wrongly in "
        f"place of {_percent(expected[1])}, and is right about {_percent(right)} in place of {_percent(expected[2])}. "
    )
    if excess is None or excess_error is None:
        said += "What the stable model would win back is not known: none was found. "
    else:
        said += (
            f"The stable model catches {_percent(stable[0])} and refuses {_percent(stable[1])} wrongly; its mean loss "
            f"is lower by {excess:.4f} ± {excess_error:.4f}{_doubt(excess, excess_error)}. "
        )
    if further is not None:
        said += f"Foreseeing the response (the optimal point) lowers it by {further:.4f} more. "
    names = ("trained once", "stable", "optimal")
    losses = [f"{risk:.4f} {name}" for risk, name in zip(risks, names, strict=True) if risk is not None]
    return f"{said}Mean loss once deployed: {', '.join(losses)}."


def _doubt(value: float, error: float) -> str:
    return "" if abs(value) > 2 * error else ", no more than chance"


def _say_features(carried: list[dict[str, Any]], strength: float) -> str:
    if not carried:
        return "The model leans on no column that people can change, so that nothing moves."
    said = [f"{one['name']} ({_percent(one['share'])} of the score's fall, {one['moves']:+.3g})" for one in carried]
    return f"{', '.join(said)}; in brackets also how far people with strength {strength:g} move it, in its own unit."


def _say_groups(
    model: str, few: list[str], most: list[Any] | None, least: list[Any] | None, sure: bool | None, least_good: int
) -> str:
    whose = "the stable model" if model == "stable" else "the model trained once"
    if most is None or least is None:
        said = "Not known: fewer than two groups are large enough."
    else:
        said = (
            f"Under {whose} wrongful refusals (label 0, yet refused) change by {_points(most[1], most[2])} in "
            f"{most[0]} and by {_points(least[1], least[2])} in {least[0]}: "
            + ("more than chance." if sure else "no difference beyond chance is seen.")
        )
    return said + (f" Too few with label 0 (below {least_good}) to say: {', '.join(few)}." if few else "")


WORDS = Words(
    {
        "answer.change": _say_change,
        "answer.settle": _say_settle,
        "answer.cost": _say_cost,
        "answer.features": _say_features,
        "answer.groups": _say_groups,
    }
)
SHORT = Words(
    {
        "answer.change": lambda changed, **_: (
            f"If people respond, yes: {_percent(changed)} of decisions" if changed > _WORTH else "Hardly"
        ),
        "answer.settle": lambda settles, small_steps, **_: {
            True: "Yes",
            False: "No, but small steps do" if small_steps else "No",
            None: "Does not know",
        }[settles],
        "answer.cost": lambda lost, lost_error, **_: (
            f"{100 * lost:.1f} points fewer of label 1 caught" if lost > 2 * lost_error else "Nothing beyond chance"
        ),
        "answer.features": lambda carried, **_: ", ".join(one["name"] for one in carried) or "None",
        "answer.groups": lambda sure, most, **_: (
            f"{most[0]} most" if sure else "Does not know" if most is None else "No group more than others"
        ),
    }
)
