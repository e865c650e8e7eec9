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
    "answer.features": "Which columns would people change?",
    "answer.groups": "Who would be harmed?",
}
# Groups with fewer people with label 0 are not compared.
_FEW = 30
# Share of flipped decisions, or lost accuracy, above which an effect is reported; and of flipped refusals: where few
# are refused, few decisions can flip.
_WORTH, _REFUSALS = 0.01, 0.1


def findings_of(found: AbstractAssessment) -> tuple[Finding, ...]:
    """Change, settle, cost, features, and groups if there are any."""
    return (_change(found), _settle(found), _cost(found), _features(found), *_groups(found))


def answers_of(found: AbstractAssessment) -> list[tuple[str, str, str]]:
    """(question, the answer in a few words, why)."""
    return [(QUESTIONS[one.code], SHORT.say(one), WORDS.say(one)) for one in findings_of(found)]


def _change(found: AbstractAssessment) -> Finding:
    now = found.scenario
    first = next((one.strength for one in found.scenarios if _flips(one.changed, one.overturned)), None)
    data = {
        "strength": found.strength, "changed": now.changed, "overturned": now.overturned, "first": first,
        "least": found.scenarios[0].strength, "most": found.scenarios[-1].strength,
        "at_most": [max(getattr(one, what) for one in found.scenarios) for what in ("changed", "overturned")],
        "detectable": now.detectable, "rows": found.rows,
    }  # fmt: skip
    return Finding("answer.change", "warning" if _flips(now.changed, now.overturned) else "info", data)


def _flips(changed: float, overturned: float) -> bool:
    """Whether enough decisions, or enough of the refusals, flip to matter."""
    return changed > _WORTH or overturned > _REFUSALS


def _settle(found: AbstractAssessment) -> Finding:
    now = found.scenario
    data = {
        "strength": found.strength, "settles": now.settles, "verdict": now.verdict, "reached": now.reached,
        "small_steps": now.small_steps, "alike": found.who == "everyone" and _is_alike(found),
        "others": [[one.strength, one.settles] for one in found.scenarios],
    }  # fmt: skip
    return Finding("answer.settle", {True: "info", False: "warning", None: "caution"}[now.settles], data)  # type: ignore[arg-type]  # they are severities


def _is_alike(found: AbstractAssessment) -> bool:
    """Whether the response is the same for everybody, so an intercept undoes it."""
    here = found.certificate
    return here.stable is not None and bool(np.ptp(np.asarray(here.sensitivity)) == 0)


def _cost(found: AbstractAssessment) -> Finding:
    now = found.scenario
    static, stable, optimal = (now.models.get(name) for name in ("static", "stable", "optimal"))
    error = None if math.isnan(now.lost_error) else now.lost_error
    data = {
        "lost": now.lost, "lost_error": error,
        "excess": now.excess, "excess_error": now.excess_error,
        "further": now.further, "risks": [None if one is None else one.risk for one in (static, stable, optimal)],
        "rates": [None if one is None else [one.caught, one.wrongly, one.accuracy] for one in (static, stable)],
        "expected": [static.expected_caught, static.expected_wrongly, static.expected_accuracy] if static else None,
    }  # fmt: skip
    worth = now.lost > _WORTH and _is_significant(now.lost, error)
    return Finding("answer.cost", "warning" if worth else "info", data)


def _is_significant(value: float, error: float | None) -> bool:
    """Whether it is more than two standard errors above zero; no if there is only one person, and so no error."""
    return error is not None and value > 2 * error


def _features(found: AbstractAssessment) -> Finding:
    carried = [one for one in found.features if one.share > 0][:3]
    shown = [{"name": one.name, "share": one.share, "moves": one.moves} for one in carried]
    return Finding("answer.features", "info", {"carried": shown, "strength": found.strength})


def _groups(found: AbstractAssessment) -> list[Finding]:
    """Where wrongful refusals rise most under the stable model, and whether that is significant."""
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
        # The most extreme pair was selected: Bonferroni correction over all pairs.
        limit = float(stats.norm.ppf(1.0 - 0.025 / pairs)) * error
        data |= {
            "most": [most.group, most.rise, most.error], "least": [least.group, least.rise, least.error],
            "sure": bool(most.rise - least.rise > limit),
        }  # fmt: skip
    return [Finding("answer.groups", "warning" if data["sure"] else "info", data)]


def _percent(value: float) -> str:
    return f"{100 * value:.1f}%"


def _points(value: float, error: float | None = None) -> str:
    """Percentage points, with their standard error, if there is one."""
    # + 0.0: no "-0.0".
    said = f"{100 * value + 0.0:+.1f}"
    return f"{said} points" if error is None else f"{said} ± {100 * error:.1f} points"


def _say_change(
    strength: float, changed: float, overturned: float, first: float | None, least: float, most: float,
    at_most: list[float], detectable: bool | None, rows: int,
) -> str:  # fmt: skip
    said = (
        f"With strength {strength:g}, a model trained once would change its decision on {_percent(changed)} of the "
        f"people who respond: {_percent(overturned)} of its refusals. "
    )
    many = f"more than {100 * _WORTH:g}% of decisions, or {100 * _REFUSALS:g}% of refusals, flip"
    if first is None:
        decisions, refusals = map(_percent, at_most)
        said += f"Up to strength {most:g}, at most {decisions} of decisions and {refusals} of refusals flip. "
    elif first > least:
        said += f"From strength {first:g} on, {many}. "
    else:
        said += f"Even with strength {least:g}, {many}. "
    told = {
        True: f"{rows:,} rows are enough to distinguish the stable model from the one trained once.",
        False: f"{rows:,} rows are too few to distinguish the stable model from the one trained once.",
        None: f"Whether {rows:,} rows can distinguish the two models is unknown.",
    }
    return (
        said + told[detectable] + " One table cannot show whether people respond at all: that takes logs (the audit)."
    )


def _range(others: list[list[Any]]) -> str:
    kinds = {True: "settles", False: "does not settle", None: "unknown"}
    if len({settles for _, settles in others}) == 1:
        return f"The same holds from strength {others[0][0]:g} to {others[-1][0]:g}."
    return "By strength: " + ", ".join(f"{s:g} {kinds[settles]}" for s, settles in others) + "."


def _say_settle(
    strength: float, settles: bool | None, verdict: str, reached: int | None, small_steps: bool | None, alike: bool,
    others: list[list[Any]],
) -> str:  # fmt: skip
    said = verdict
    if settles and reached is not None:
        said += f" From the model trained once, it takes {reached} retraining{'' if reached == 1 else 's'}."
    elif settles:
        said += " From the model trained once, 20 retrainings were not enough."
    if alike:
        said += " Here all people move by the same amount, which a new intercept undoes; not so with who='positive'."
    return f"{said} {_range(others)}"


def _say_cost(
    lost: float, lost_error: float | None, excess: float | None, excess_error: float | None, further: float | None,
    risks: list[float | None], rates: list[Any], expected: list[float],
) -> str:  # fmt: skip
    (caught, wrongly, right), stable = rates
    said = (
        f"Once deployed, the model trained once catches {_percent(caught)} of label 1 instead of "
        f"{_percent(expected[0])} ({_points(-lost, lost_error)}{_doubt(lost, lost_error)}), wrongly refuses "
        f"{_percent(wrongly)} of label 0 instead of {_percent(expected[1])}, and has an accuracy of {_percent(right)} "
        f"instead of {_percent(expected[2])}. "
    )
    if excess is None or excess_error is None:
        said += "What the stable model would recover is unknown: no stable model was found. "
    else:
        said += (
            f"The stable model catches {_percent(stable[0])} and wrongly refuses {_percent(stable[1])}; its mean loss "
            f"is lower by {excess:.4f} ± {excess_error:.4f}{_doubt(excess, excess_error)}. "
        )
    if further is not None:
        said += f"Anticipating the response (the optimal point) lowers it by another {further:.4f}. "
    names = ("trained once", "stable", "optimal")
    losses = [f"{risk:.4f} {name}" for risk, name in zip(risks, names, strict=True) if risk is not None]
    return f"{said}Mean loss once deployed: {', '.join(losses)}."


def _doubt(value: float, error: float | None) -> str:
    if error is None:
        return ", based on one person"
    return "" if _is_significant(abs(value), error) else ", not significant"


def _say_features(carried: list[dict[str, Any]], strength: float) -> str:
    if not carried:
        return "The model does not use any column that people can change, so nothing moves."
    said = [f"{one['name']} ({_percent(one['share'])} of the drop in score, {one['moves']:+.3g})" for one in carried]
    return f"{', '.join(said)}; the second number is how far people move it at strength {strength:g}, in its own unit."


def _say_groups(
    model: str, few: list[str], most: list[Any] | None, least: list[Any] | None, sure: bool | None, least_good: int
) -> str:
    whose = "the stable model" if model == "stable" else "the model trained once"
    if most is None or least is None:
        said = "Unknown: fewer than two groups are large enough."
    elif most[1] == least[1]:
        said = f"Under {whose}, wrongful refusals (label 0, yet refused) change by {_points(most[1])} in every group."
    else:
        said = (
            f"Under {whose}, wrongful refusals (label 0, yet refused) change by {_points(most[1], most[2])} in "
            f"{most[0]} and by {_points(least[1], least[2])} in {least[0]}: "
            + ("a significant difference." if sure else "no significant difference.")
        )
    return said + (f" Too few people with label 0 (below {least_good}): {', '.join(few)}." if few else "")


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
        "answer.change": lambda changed, overturned, **_: (
            f"If people respond, yes: {_percent(changed)} of decisions, {_percent(overturned)} of refusals"
            if _flips(changed, overturned)
            else "Hardly"
        ),
        "answer.settle": lambda settles, small_steps, **_: {
            True: "Yes",
            False: "No, but small steps do" if small_steps else "No",
            None: "Unknown",
        }[settles],
        "answer.cost": lambda lost, lost_error, **_: (
            f"{100 * lost:.1f} points fewer of label 1 caught"
            if _is_significant(lost, lost_error)
            else "Nothing significant"
        ),
        "answer.features": lambda carried, **_: ", ".join(one["name"] for one in carried) or "None",
        "answer.groups": lambda sure, most, **_: (
            f"{most[0]} most" if sure else "Unknown" if most is None else "No group more than others"
        ),
    }
)
