"""What the designs found, in words: one sentence per finding."""

from typing import Any

from performative.audit.formats import chance, listed, number, percent
from performative.findings import Words

DESIGNS = ("randomized", "threshold", "breaks", "overlap")
NAMES = {
    "randomized": "a randomized share",
    "threshold": "the threshold",
    "breaks": "deployment breaks with controls",
    "overlap": "overlapping policies",
}
# On whom an effect is measured.
ON = {
    "drawn": "people whose decision was randomized",
    "drawn-clients": "clients whose decision was randomized",
    "threshold": "people whose score is at the threshold",
    "changed-clients": "clients whose model changed, on average over the periods after",
    "all": "all people in these rows",
    "overlap": "people for whom both decisions were possible",
}


def _effect(outcome: str, design: str, on: str, estimate: float, lower: float, upper: float, level: float,
            p_value: float, in_sd: float) -> str:  # fmt: skip
    what = "the change of model" if design == "breaks" else "decision 1 instead of 0"
    verb = "raises" if estimate > 0 else "lowers"
    span = f"{percent(level).replace('.0 ', ' ')} interval {number(lower)} to {number(upper)}, {chance(p_value)}"
    size = f"{number(abs(estimate))} ({number(abs(in_sd))} sd; {span})"
    if lower <= 0 <= upper:
        said = f"No effect of {what} on {outcome} was shown: {number(estimate)} ({number(in_sd)} sd; {span})"
    else:
        said = f"{what[0].upper()}{what[1:]} {verb} {outcome} by {size}"
    return f"{said}. Measured by {NAMES[design]}, on {ON[on]}."


def _none(outcome: str) -> str:
    return f"The effect of the model on {outcome} cannot be estimated from these rows: no design identifies it."


def _robustness(robustness: float | None) -> str:
    end = "" if robustness is None else (
        f" A confounder that explains {percent(robustness)} of the residual variation of both could explain it away."
    )  # fmt: skip
    return f"These rows cannot show whether a hidden confounder drives both decision and outcome.{end}"


def _not_randomized(logged: bool) -> str:
    if logged:
        return "The logged propensities differ between rows, and no column says which decisions were randomized."
    return "No column says which decisions were randomized (randomized=...) or with what probability (propensity=...)."


def _no_panel(missing: list[str]) -> str:
    verb = "was" if len(missing) == 1 else "were"
    return f"Comparing changes between clients needs {listed(missing)}, which {verb} not provided."


def _no_threshold(score: bool) -> str:
    return "No threshold was given (threshold=...)." if score else "No score was given (score=..., threshold=...)."


def _short(designs: Any) -> str:
    return f"Not tried: {NAMES[designs]} already identifies the effect, under weaker assumptions."


SENTENCES: dict[str, Any] = {
    "effect.found": _effect,
    "effect.none": _none,
    "assumption.randomized": (
        "Assumes that these decisions were made at random, independently of the person, and that one person's decision "
        "does not affect another's outcome."
    ),
    "assumption.threshold": (
        "Assumes that without the decision the mean outcome would be continuous at the threshold, so nobody can choose "
        "which side of it to be on; it says nothing about people far from the threshold."
    ),
    "assumption.breaks": (
        "Assumes that without the change of model these clients would have moved in parallel with the others, and that "
        "nothing else happened to them at the same time."
    ),
    "assumption.overlap-logged": (
        "Assumes that decisions were randomized with the logged propensities, and that one person's decision does not "
        "affect another's outcome."
    ),
    "assumption.overlap-estimated": (
        "Assumes that score and features contain everything that affects both the decision and the outcome."
    ),
    "caution.hidden-causes": _robustness,
    "caution.weak-pretrends": (
        "The periods before the change are too few or too noisy to rule out a difference in trends that would shift "
        "the estimate by {bias:number}, more than the half-width of its interval ({half:number})."
    ),
    "unused.not-tried": _short,
    "refused.not-asked": "Not tried: another design was requested.",
    "refused.no-decision": "No decision was given (decision=...).",
    "refused.one-decision": "All decisions are {value}: there is nothing to compare with.",
    "refused.not-randomized": _not_randomized,
    "refused.nothing-drawn": "No row is marked as randomized.",
    "refused.few-drawn": (
        "Of the randomized decisions, {treated} are 1 and {control} are 0; {least} of each are needed."
    ),
    "refused.few-drawn-clients": (
        "Whole clients were randomized, {treated} with 1 and {control} with 0; {least} of each are needed."
    ),
    "refused.thin-strata": (
        "The share of decision 1 differs between deployments or clients, and only {share:percent} of the rows are in "
        "one with {least} rows of each decision."
    ),
    "refused.unbalanced": (
        "The rows marked as randomized were not: features predict the decision ({p_value:chance})."
    ),
    "refused.share-mismatch": (
        "The rows marked as randomized were not randomized as logged: {share:percent} have decision 1, but the logged "
        "propensities imply {said:percent} ({p_value:chance})."
    ),
    "refused.missing-by-decision": (
        "Whose outcome is known depends on the decision: it is missing for {treated:percent} under decision 1 and for "
        "{control:percent} under 0. Known outcomes then differ whether or not the decision has an effect."
    ),
    "refused.missing": "The outcome is missing in {share:percent} of the rows; up to 10% can be left out.",
    "refused.no-threshold": _no_threshold,
    "refused.few-at-threshold": (
        "There are {above} scores at or above the threshold and {below} below; {least} on each side are needed."
    ),
    "refused.few-scores": "The score has {values} distinct values on one side of the threshold; {least} are needed.",
    "refused.few-near-threshold": (
        "Near the threshold, one side has {rows} rows with {values} distinct scores; {least} rows are needed."
    ),
    "refused.fuzzy": "Decisions do not follow the threshold: {share:percent} are on the other side of it.",
    "refused.manipulation": (
        "Scores pile up at the threshold: the density jumps from {below:number} to {above:number}, and "
        "{nearest_above} of the {nearest} rows nearest to it lie above ({p_value:chance}), so people, or those who "
        "score them, choose their side."
    ),
    "refused.features-jump": (
        "{feature} jumps at the threshold too ({p_value:chance}): people on the two sides are not comparable."
    ),
    "refused.nothing-known": (
        "No propensity was logged, and there is neither a score nor a feature to predict the decision from."
    ),
    "refused.no-overlap-step": (
        "The decision is a step in the score: nobody on either side received the other decision, so nobody can be "
        "compared. A little random exploration would change that."
    ),
    "refused.no-overlap-logged": (
        "Only {share:percent} of the rows had a probability of at least {least:percent} of either decision."
    ),
    "refused.no-overlap": (
        "For {share:percent} of the rows one decision had a probability below {least:percent}: there is nobody "
        "comparable with the other decision."
    ),
    "refused.few-overlap": (
        "Among rows with overlap, {treated} have decision 1 and {control} have 0; {least} of each are needed."
    ),
    "refused.thin-overlap": (
        "A few rows carry all the weight: the effective sample size is {effective:number} rows; {least} are needed."
    ),
    "refused.propensity-mismatch": (
        "Decisions do not match the logged propensities ({p_value:chance}): {share:percent} are 1, and the "
        "propensities imply {said:percent}; or the decision depends on features that the propensities ignore."
    ),
    "refused.unbalanced-weights": (
        "The propensities cannot be estimated well enough: after weighting by them, {feature} still differs by "
        "{apart:number} sd between decisions."
    ),
    "refused.no-panel": _no_panel,
    "refused.empty-cells": (
        "{cells} of {all} pairs of client and period have no rows; use longer periods, or drop those clients."
    ),
    "refused.mixed-models": (
        "{cells} of {all} pairs of client and period have more than one deployed model; use shorter periods."
    ),
    "refused.no-break": "No client's model changed.",
    "refused.no-controls": (
        "{controls} clients kept their model; {least} are needed: otherwise anything else that happened at the same "
        "time looks like an effect of the model."
    ),
    "refused.short-before": (
        "There are {periods} periods before the first change; {least} are needed to check for parallel trends."
    ),
    "refused.pretrends": (
        "Clients whose model changed moved differently from the others even before it changed ({p_value:chance})."
    ),
}  # fmt: skip

WORDS = Words(SENTENCES, chance=chance, number=number, percent=percent)
