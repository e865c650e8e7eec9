"""Warnings and refusals that protect an answer: each has a code, which stands in the text and in `docs/messages.md`.

    warn("batch-exceeds-table", "Fixed(5000) draws ...")       a PerformativeWarning that ends in [batch-exceeds-table]
    raise ValueError(coded("diverging-iteration", "..."))      an error of any class, with the code at its end

A code is for what would otherwise be a wrong answer without a word: it can be looked up, searched in logs, and
silenced by `warnings.filterwarnings("ignore", message=r".*\\[batch-exceeds-table\\]")`. Plain checks of arguments
carry none.
"""

import re
import sys
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, cast


class PerformativeWarning(UserWarning):
    """An answer that is given, but that does not mean what it seems to; the code in brackets says why."""


@dataclass(frozen=True)
class Message:
    """A line of the index: what kind it is, when it is given, and what to do about it."""

    kind: Literal["warning", "refusal"]
    when: str
    remedy: str


def coded(code: str, text: str) -> str:
    """The text with its code at the end; a code that the index lacks is a mistake of ours."""
    if code not in MESSAGES:
        raise KeyError(f"the message {code!r} is not in performative._base.messages.MESSAGES.")
    return f"{text} [{code}]"


def refused(code: str, text: str) -> ValueError:
    """A refusal of what a user handed in, to be raised."""
    return ValueError(coded(code, text))


def code_of(message: object) -> str | None:
    """The code at the end of a warning's or a refusal's text, None where it has none."""
    found = re.search(r"\[([a-z0-9-]+)\]$", str(message))
    return found.group(1) if found and found.group(1) in MESSAGES else None


def warn(code: str, text: str) -> None:
    """Warn with a code."""
    tell(coded(code, text))


def tell(text: str) -> None:
    """Warn at the user's line: the first one on the stack that is none of ours."""
    frame, level = sys._getframe(0), 1
    while frame.f_back is not None and _is_ours(frame):
        frame, level = frame.f_back, level + 1
    warnings.warn(text, PerformativeWarning, stacklevel=level)


@contextmanager
def hearing(*codes: str) -> Iterator[set[str]]:
    """Which of these codes were warned of inside, for a caller that says the same in its own answer.

    They do not reach the user as warnings; every other warning does, after the block. The set is filled at its end.
    """
    heard: set[str] = set()
    said: list[warnings.WarningMessage] = []
    try:
        with warnings.catch_warnings(record=True) as said:
            warnings.simplefilter("always", PerformativeWarning)
            yield heard
    finally:
        for one in said:
            code = code_of(one.message)
            if code in codes and issubclass(one.category, PerformativeWarning):
                heard.add(code)
            else:
                warnings.warn_explicit(one.message, one.category, one.filename, one.lineno, source=one.source)


def _is_ours(frame: Any) -> bool:
    """Whether a line is the package's, a library's, or was made up by one."""
    file = frame.f_code.co_filename
    return file.startswith((str(_PACKAGE), "<")) or "site-packages" in file or Path(file).parent == _STANDARD


_PACKAGE, _STANDARD = Path(__file__).parents[1], Path(warnings.__file__).parent

# One entry a message: its kind and code, when it is given, and behind ">" what to do about it.
_INDEX = """
# Installed packages
warning plugin-unusable: An installed package offers a part, recipe or data set that cannot be imported, or whose name
  is taken.
  > Update or remove the package that is named, or ask its author for another name.
# Audit of logs
warning selection-by-model: The model decided whose outcome is in the logs (the rejected have no label), so rows with a
  label change with the model whether or not anybody reacts.
  > Log everybody's features, give [decision] threshold, label a random few of the rejected, and log the chance as
  `propensity`.
warning rows-selected-by-model: All rows of the logs are of people who were accepted: which people are logged changes
  with the model.
  > Log everybody who applied, or give theta_<feature> and [decision] threshold, so that people whom every model accepts
  can be compared.
warning features-missing-by-model: Rows with an empty feature are dropped, and who they are changes from deployment to
  deployment.
  > Fill the feature in, or leave it out of the audit by `ignore` in audit.toml.
warning outliers-hide-effect: No reaction was found, and a few rows far out make a column several times as wide as the
  rest, so that none could be seen.
  > Check these rows, and clip the column under [clip] in audit.toml, or log it on a robust scale.
# Points and retraining
warning repelling-point: `stable_point`: of the points that were found none attracts retraining.
  > Do not expect retraining to end there; `report=True` has the contraction factor, and says whether small gradient
  steps settle.
refusal no-stable-point: `stable_point`, `equilibria`: the search found no root of the decoupled gradient.
  > Give a domain or another `start`; where the reaction cancels the curvature of the loss there may be none.
warning closed-form-disagrees: `stable_point`, `optimal_point`: at the point that the population names the gradient is
  not zero, or the risk is lower elsewhere.
  > Mend the population's `stable_point` or `optimal_point`, or give it a `quadrature` that is exact.
refusal no-optimal-point: `optimal_point`: no minimizer of the performative risk was found.
  > Give the problem a domain, such as `pf.Box(lo, hi)`, or other `starts`.
refusal no-nash-point: `nash_point`: no models were found at which no player gains by changing its own.
  > Give another `start`, or a domain; a player whose own risk has no minimum has no best response.
refusal no-social-point: `social_point`: the players' risks together have no least value that was found.
  > Give the problem a domain, such as `pf.Box(lo, hi)`.
warning risk-falls-far-out: `optimal_point`: from some starts the performative risk keeps falling far out, so the point
  is a local minimum and there may be no global one.
  > Give the problem a domain that says which models are possible.
refusal world-never-rests: Points of a population whose memory does not come to rest while one model stays deployed.
  > Override `settle` where the limit is known, or follow the world by `repeated_risk_minimization` or `pf.run`.
  `Sluggish` needs a speed above 0.
refusal not-affine: `pf.moments` and its kin: a part is not linear in the model, or does not say how likely its draws
  are, so that means and covariances are not known.
  > Use `pf.run` with many repeats, or a part that is linear: `Minibatch`, `Plain`, `Mean`, no domain.
refusal target-moves: A point, a certificate or a plan is asked of a problem whose data change by themselves.
  > Say when: `pf.stable_point(problem, time=t)`, or ask about `problem.at(t)`, the problem as it stands then.
refusal settle-is-no-limit: Points of a population whose `settle` returns a world that `deploy` moves on.
  > Make `deploy(settle(scene), scene)` equal to `settle(scene)`, or leave `settle` out: it is then found by repeating
  `deploy`.
refusal world-keeps-its-start: Points of a population whose memory ends where the first model puts it, not where the
  deployed one does.
  > Follow it from its first model by `repeated_risk_minimization` or `pf.run`.
warning sampled-point: `stable_point`, `optimal_point`, `repeated_...`: the point rests on a finite number of draws, and
  its standard error is above a thousandth.
  > Give `samples=` for more draws, or the population a `quadrature` that is exact; `report=True` returns the error.
warning lower-elsewhere: `optimal_point`: the point is a local minimum, and a look far away found a lower risk.
  > Leave `starts` out, give the better model as a start, or a domain that says which models are possible.
refusal nothing-to-retrain-to: `repeated_risk_minimization`: the risk on the data of a deployed model has no minimizer,
  or no unique one.
  > Give the problem a domain or the loss a penalty, or use `repeated_gradient_descent`.
# Certificates, plans, scoreboards
warning interval-in-doubt: `confidence`, `History.interval`: the run may settle elsewhere than at the stable point, or
  is too short; the text says why.
  > Run for longer, or give problem and algorithm; where the run is drawn elsewhere, take the interval for what it says.
refusal no-variance: `plan`, `confidence`: the population holds outliers without a variance (`Outliers(law='cauchy')`).
  > Plan for the clean population, or compare settings by medians with `pf.sweep`.
# Theory
refusal diverging-iteration: `pf.theory.settled_point`, `cycle_point`, `quadratic_floor`: a round multiplies an error by
  1 or more, so that training settles nowhere.
  > Take a shorter step, or `attracting=False` for the point that training runs away from.
refusal no-fixed-point: `pf.theory.settled_point`, `cycle_point`, `quadratic_floor`: a round leaves an error as it is;
  there is no fixed point, or every point is one.
  > Give slopes whose weighed mean is not 0.
refusal unbounded-step: `pf.theory.extrapolation`: the updates cancel, so that FedExP divides by zero.
  > Give `eps` above 0, or cap the step as `Extrapolate(cap=...)` does.
refusal never-reached: `pf.theory.best_local_steps`: whatever the number of local steps, the target is not reached.
  > Look at `unmet` of the theorem behind it.
refusal models-do-not-span: `pf.theory.exact_jacobian_error`: the past models differ in too few directions for the
  reaction to be learnt.
  > Take a window above the number of parameters, of models that differ in all directions.
# Privacy, samplers
warning privacy-not-covered: A run with privacy= rests on what was worked out from the same people before it began:
  scales of features (Problem.from_frame with standardize=True), a start from a fitted model, settings that pf.plan
  chose.
  > Give scales that are known without these rows, standardize={feature: (mean, sd)}; start elsewhere; plan on public or
  made-up data. Or say in words, beside epsilon, what it leaves out.
# Methods
warning memory-clip-too-small: `Dice`: at the stable point a client's clip cuts off more, on average, than the error
  memory may give back.
  > Raise `memory_clip` to the number in the message; otherwise the run settles at another point.
warning error-memory-grows: `Dice`: after the run the error memory of some clients is longer than chance explains.
  > Raise `memory_clip`; the model that the run settled at is biased.
warning clients-react-differently: `PooledJacobian(alike=True)`: after the run clients' own df/dtheta differ, and go
  with its cost.
  > Use `alike=False`; with one df/dtheta for all the model settles beside the optimal point.
warning alike-not-tested: `PooledJacobian(alike=True)`: the run says too little of each client's reaction to tell
  whether they differ.
  > Use `alike=False`, which is right either way; or silence it where you know that clients react alike.
warning unequal-work: `pf.pofl`, `pf.profl` with `LocalWork`: some clients take more local steps than others and so
  count for more.
  > Give `aggregator=pf.aggregators.Nova()`; without it the run settles at the optimal point of other weights.
warning window-too-short: `Performative(window=H)`: H is less than twice the number of parameters.
  > Raise `window` to the number in the message; df/dtheta is mostly noise until then.
warning delayed-reaction: `Performative(window=H)`: the data react to a model over several spells (`Sluggish`), of which
  a window sees the first.
  > Use `Performative(None, term="pathwise")` where the reaction is known; else let each model stay until the data have
  settled (`deploy=pf.Every(k)`).
warning reaction-overlooked: `Performative(window=H)`: the family that it fits to the data leaves out a part of how they
  react, at the start by more than a tenth.
  > Use `term="pathwise"` where samples move as a whole, another `family=`, `pf.profl` against outliers, and `pf.pofl`
  on the clients in the place of pooled data.
# Tables, models, problems
refusal field-not-static: A part of one's own holds a whole number in a plain field: JAX would trace it, and it could
  set no shape and choose no code.
  > Declare the field by `pf.whole()`, or by `pf.number()` where it is a quantity to compute with.
warning too-few-images: `pf.cases.images`: a class has fewer images than all clients together were to get.
  > Ask for fewer clients or fewer images of each class; the message says how many they get.
refusal model-of-other-columns: A fitted model that is to be the start knows columns that the problem lacks, or another
  number of them.
  > Fit the model on the columns of the frame that `from_frame` reads.
refusal model-of-other-classes: A fitted model that is to be the start knows other classes than the problem, so its
  scores may point the other way.
  > Fit the model to the column that `from_frame` reads as its label, and say by `positive=` which class is 1.
refusal model-not-linear: A model that is to be the start has no linear scores in the features of the problem, or has
  not been fitted.
  > Give a fitted linear classifier, a Pipeline of scalers and one, or an array.
warning model-without-names: A model that is to be the start was fitted on an array, so nobody can tell whether its
  columns are in the order of the frame's.
  > Fit the model on a DataFrame; its columns are then compared by name.
warning outliers-set-the-scale: `from_frame`: the outermost people of a column make its standard deviation at least
  three times what the others' is, so that scaling by it makes all others alike and hides how they react.
  > Use `standardize="robust"`, or cut the column at its quantiles first.
warning columns-not-scaled: `from_frame(standardize=False)`: columns have values above 100, or differ a hundredfold in
  size.
  > Leave `standardize=True`, or scale the columns first: one rate cannot serve them all.
refusal padding-without-count: A table holds rows of padding that no `count` leaves out: they would be trained on as if
  they were people.
  > Give the population the count that `pf.partition.tables` or `pf.tables.write` returned with the table.
# Runs
warning old-keyword: `pf.run`, `pf.sweep` and [run] of a file: an argument that has moved to `pf.Record`,
  `pf.Checkpoint`, `clients_at_once` or `pf.callbacks.Progress`.
  > Write the form that the message names; the old one still does the same.
warning function-made-anew: The same lines made a loss function again and again, holding other values each time; each is
  compiled anew.
  > Define the function once, or make it an `equinox.Module` whose numbers are leaves.
warning not-enough-memory: By its trace a run needs more memory than the device has left, even with one client at a
  time.
  > Keep tables on disk or in bytes (`pf.tables`), use smaller batches or fewer repeats, or more devices.
refusal far-too-large: Data and memory of a run, or the table of a made-up case, are far larger than what the machine
  has left.
  > Ask for fewer repeats, clients or rows, or keep tables on disk (`pf.tables`).
warning batch-exceeds-table: `Fixed(n)` draws more rows a step, with replacement, than any client has.
  > Use `pf.batches.Whole()` for every row once, or a smaller n.
warning run-diverged: A repeat became non-finite or left the limit; `history.stopped_at` says when.
  > Use a rate below the one in the message, which is the largest that settles near the start or the stable point in the
  mean; or give the problem a domain.
warning rate-too-large: The performative risk ended far above that of the start, and the rate is above the largest that
  settles there.
  > Use a rate below the one in the message, or bring the features to one scale.
warning updates-dropped: More than 1 % of the updates of asynchronous clients were older than the limit and were
  dropped, so that slow clients are heard too seldom.
  > Raise `limit=` of `pf.Asynchronous`, or its buffer.
warning nonfinite-updates: Some clients' updates were not finite and were left out, so the others were trained on in
  their place.
  > Find the client with `executor="loop"`, and mend its data or the loss.
# Federation
warning nothing-was-learned: A run ended with the model that it began with, or a federation's last rounds used no
  answer; its status is `failed`.
  > Mend what the message names first: it is the reason that the first client gave, or what was wrong with all updates.
"""


def _read_index(text: str) -> dict[str, Message]:
    found = {}
    for entry in re.split(r"\n(?=\w)", re.sub(r"\n# .*", "", text))[1:]:
        told, remedy = (" ".join(part.split()) for part in entry.split("\n  > "))
        head, _, when = told.partition(": ")
        kind, code = head.split()
        found[code] = Message(cast(Any, kind), when, remedy)
    return found


MESSAGES = _read_index(_INDEX)


def page() -> str:
    """The index as Markdown; `make messages` writes it to `docs/messages.md`."""
    lines = [
        "---\nfile_format: mystnb\nkernelspec:\n  name: python3\n---\n",
        "# Warnings and refusals",
        "",
        "What protects an answer has a code, which ends the text: `... [batch-exceeds-table]`. A *warning* comes with",
        "an answer that does not mean what it seems to; a *refusal* is an error in place of an answer that would be",
        "wrong. Plain checks of arguments (a negative rate, a wrong shape) carry no code: they name the parameter, the",
        "rule and what came.",
        "",
        "Silence a warning by its code:",
        "",
        "```{code-cell} python",
        "import warnings",
        "",
        'warnings.filterwarnings("ignore", message=r".*\\[too-few-images\\]")',
        "```",
        "",
        "| code | | when | what to do |",
        "| --- | --- | --- | --- |",
    ]
    for code, message in sorted(MESSAGES.items()):
        lines.append(f"| `{code}` | {message.kind} | {message.when} | {message.remedy} |")
    return "\n".join([*lines, ""])
