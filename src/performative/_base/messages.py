"""Warnings and errors that guard results: each has a code, given in its text and listed in `docs/messages.md`.

    warn("batch-exceeds-table", "Fixed(5000) draws ...")       a PerformativeWarning ending in [batch-exceeds-table]
    raise ValueError(coded("diverging-iteration", "..."))      an error of any class, with the code at its end

A code marks what would otherwise be a silently wrong result: it can be looked up, searched for in logs, and silenced
with `warnings.filterwarnings("ignore", message=r".*\\[batch-exceeds-table\\]")`. Plain argument checks have none.
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
    """A result is returned, but does not mean what it seems to; the code in brackets says why."""


@dataclass(frozen=True)
class Message:
    """An entry of the index: its kind, when it is issued, and what to do about it."""

    kind: Literal["warning", "refusal"]
    when: str
    remedy: str


def coded(code: str, text: str) -> str:
    """The text with its code at the end; a code missing from the index is a bug in this package."""
    if code not in MESSAGES:
        raise KeyError(f"the message {code!r} is not in performative._base.messages.MESSAGES.")
    return f"{text} [{code}]"


def refused(code: str, text: str) -> ValueError:
    """The ValueError to raise for rejected user input."""
    return ValueError(coded(code, text))


def code_of(message: object) -> str | None:
    """The code at the end of a warning's or an error's text, or None."""
    found = re.search(r"\[([a-z0-9-]+)\]$", str(message))
    return found.group(1) if found and found.group(1) in MESSAGES else None


def warn(code: str, text: str) -> None:
    """Warn with a code."""
    tell(coded(code, text))


def tell(text: str) -> None:
    """Warn at the user's line: the first stack frame outside this package and its libraries."""
    frame, level = sys._getframe(0), 1
    while frame.f_back is not None and _is_ours(frame):
        frame, level = frame.f_back, level + 1
    warnings.warn(text, PerformativeWarning, stacklevel=level)


@contextmanager
def hearing(*codes: str) -> Iterator[set[str]]:
    """Collect which of these codes were warned of inside the block, for a caller that reports them in its own result.

    They are not shown to the user; every other warning is, after the block. The set is filled when the block ends.
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
    """Whether a frame belongs to this package or a library, or is generated code."""
    file = frame.f_code.co_filename
    return file.startswith((str(_PACKAGE), "<")) or "site-packages" in file or Path(file).parent == _STANDARD


_PACKAGE, _STANDARD = Path(__file__).parents[1], Path(warnings.__file__).parent

# One entry per message: its kind and code, when it is issued, and after ">" what to do about it.
_INDEX = """
# Installed packages
warning plugin-unusable: An installed package provides a part, recipe or data set that cannot be imported, or whose name
  is already taken.
  > Update or remove the package named in the message, or ask its author to use another name.
# Audit of logs
warning selection-by-model: The model decided whose outcomes are in the logs (rejected people have no label), so the
  labeled rows change with the model whether or not anybody reacts.
  > Log everybody's features, set [decision] threshold, label a random subset of the rejected, and log its probability
  as `propensity`.
warning rows-selected-by-model: All rows of the logs belong to people who were accepted: who is logged changes with the
  model.
  > Log everybody who applied, or provide theta_<feature> and [decision] threshold, so people whom every model accepts
  can be compared.
warning features-missing-by-model: Rows with an empty feature are dropped, and who they are changes from deployment to
  deployment.
  > Fill in the feature, or exclude it from the audit with `ignore` in audit.toml.
warning outliers-hide-effect: No reaction was found, but a few extreme rows inflate a column's standard deviation
  several times over, so a reaction could not have been detected.
  > Check these rows, and clip the column under [clip] in audit.toml, or log it on a robust scale.
# Points and retraining
warning repelling-point: `stable_point`: none of the points found attracts retraining.
  > Do not expect retraining to converge there; `report=True` returns the contraction factor and whether small gradient
  steps converge.
refusal no-stable-point: `stable_point`, `equilibria`: the search found no root of the decoupled gradient.
  > Give a domain or another `start`; if the reaction cancels the curvature of the loss, there may be none.
warning closed-form-disagrees: `stable_point`, `optimal_point`: at the point the population returns, the gradient is
  not zero, or the risk is lower elsewhere.
  > Fix the population's `stable_point` or `optimal_point`, or give it an exact `quadrature`.
refusal no-optimal-point: `optimal_point`: no minimizer of the performative risk was found.
  > Give the problem a domain, such as `pf.Box(lo, hi)`, or pass other `starts`.
refusal no-nash-point: `nash_point`: found no models at which no player gains by changing its own.
  > Give another `start`, or a domain; a player whose own risk has no minimum has no best response.
refusal no-social-point: `social_point`: no minimizer of the players' total risk was found.
  > Give the problem a domain, such as `pf.Box(lo, hi)`.
warning risk-falls-far-out: `optimal_point`: from some starts the performative risk keeps falling far out, so the point
  is a local minimum and there may be no global one.
  > Give the problem a domain that limits the possible models.
refusal world-never-rests: A point was requested for a population whose state does not converge while one model stays
  deployed.
  > Override `settle` if the limit is known, or follow the state with `repeated_risk_minimization` or `pf.run`.
  `Sluggish` needs a speed above 0.
refusal not-affine: `pf.moments` and related functions: a part is not linear in the model, or does not define the
  probabilities of its draws, so means and covariances cannot be computed.
  > Use `pf.run` with many repeats, or linear parts: `Minibatch`, `Plain`, `Mean`, no domain.
refusal target-moves: A point, certificate or plan was requested for a problem whose data drift on their own.
  > Specify the time: `pf.stable_point(problem, time=t)`, or use `problem.at(t)`, the problem frozen at time t.
refusal settle-is-no-limit: A point was requested for a population whose `settle` returns a state that `deploy` still
  changes.
  > Make `deploy(settle(scene), scene)` equal to `settle(scene)`, or omit `settle`: the limit is then found by iterating
  `deploy`.
refusal world-keeps-its-start: A point was requested for a population whose state converges to a limit set by the first
  model, not by the deployed one.
  > Follow it from its first model with `repeated_risk_minimization` or `pf.run`.
warning sampled-point: `stable_point`, `optimal_point`, `repeated_...`: the point is based on a finite number of draws,
  and its standard error exceeds 1e-3 (1 + the largest coordinate of the point).
  > Use more draws with `samples=`, or give the population an exact `quadrature`; `report=True` returns the error.
warning lower-elsewhere: `optimal_point`: the point is a local minimum, and a search far from it found a lower risk.
  > Omit `starts`, pass the better model as a start, or give a domain that limits the possible models.
refusal nothing-to-retrain-to: `repeated_risk_minimization`: the risk on the data of a deployed model has no minimizer,
  or no unique one.
  > Give the problem a domain or the loss a penalty, or use `repeated_gradient_descent`.
# Certificates, plans, scoreboards
warning interval-in-doubt: `confidence`, `History.interval`: the run may converge to a point other than the stable
  point, or is too short; the message says why.
  > Run for longer, or pass problem and algorithm; if the run converges elsewhere, the interval covers that point.
refusal no-variance: `plan`, `confidence`: the population has outliers without a variance (`Outliers(law='cauchy')`).
  > Plan for the clean population, or compare settings by medians with `pf.sweep`.
# Theory
refusal diverging-iteration: `pf.theory.settled_point`, `cycle_point`, `quadratic_floor`: a round multiplies the error
  by 1 or more, so training does not converge.
  > Use a smaller step size, or `attracting=False` for the point that training diverges from.
refusal no-fixed-point: `pf.theory.settled_point`, `cycle_point`, `quadratic_floor`: a round leaves the error unchanged;
  there is no fixed point, or every point is one.
  > Give slopes whose weighted mean is not 0.
refusal unbounded-step: `pf.theory.extrapolation`: the updates cancel, so FedExP divides by zero.
  > Set `eps` above 0, or cap the step as `Extrapolate(cap=...)` does.
refusal never-reached: `pf.theory.best_local_steps`: no number of local steps reaches the target.
  > See `unmet` of the underlying theorem.
refusal models-do-not-span: `pf.theory.exact_jacobian_error`: the past models differ in too few directions for the
  reaction to be estimated.
  > Use a window longer than the number of parameters, with models that differ in all directions.
# Privacy, samplers
warning privacy-not-covered: A run with privacy= relies on quantities computed from the same people beforehand: feature
  scales (Problem.from_frame with standardize=True), a start from a fitted model, settings chosen by pf.plan.
  > Give scales known without these rows, standardize={feature: (mean, sd)}; start elsewhere; plan on public or
  synthetic data. Otherwise, state next to epsilon what it does not cover.
# Methods
warning memory-clip-too-small: `Dice`: at the stable point the clip removes more of a client's gradient, on average,
  than the error memory may add back.
  > Raise `memory_clip` to the number in the message; otherwise the run converges to a different point.
warning error-memory-grows: `Dice`: after the run the error memory of some clients is larger than noise explains.
  > Raise `memory_clip`; the model the run converged to is biased.
warning clients-react-differently: `PooledJacobian(alike=True)`: after the run the clients' own estimates of df/dtheta
  differ, which biases the gradient.
  > Use `alike=False`; with one df/dtheta for all clients, the model does not converge to the optimal point.
warning alike-not-tested: `PooledJacobian(alike=True)`: the run has too little data on each client's reaction to tell
  whether clients differ.
  > Use `alike=False`, which is valid either way; or silence this warning if you know that clients react alike.
warning unequal-work: `pf.pofl`, `pf.profl` with `LocalWork`: some clients take more local steps than others and so get
  more weight.
  > Use `aggregator=pf.aggregators.Nova()`; without it the run converges to the optimal point for other weights.
warning window-too-short: `Performative(window=H)`: H is less than twice the number of parameters.
  > Raise `window` to the number in the message; below it, the estimate of df/dtheta is mostly noise.
warning delayed-reaction: `Performative(window=H)`: the data react to a model over several periods (`Sluggish`), and a
  window sees only the first.
  > Use `Performative(None, term="pathwise")` if the reaction is known; otherwise keep each model deployed until the
  data have settled (`deploy=pf.Every(k)`).
warning reaction-overlooked: `Performative(window=H)`: the family fitted to the data misses part of the reaction: more
  than a tenth at the start.
  > Use `term="pathwise"` if samples shift as a whole, another `family=`, `pf.profl` against outliers, or `pf.pofl` on
  the clients instead of pooled data.
# Tables, models, problems
refusal field-not-static: A custom part has an integer in a plain field: JAX would trace it, so it could neither set a
  shape nor control Python branches.
  > Declare the field with `pf.whole()`, or with `pf.number()` if it is a quantity to compute with.
warning too-few-images: `pf.cases.images`: a class has fewer images than requested for all clients together.
  > Request fewer clients or fewer images per class; the message says how many each client gets.
refusal model-of-other-columns: A fitted model used as the start has columns that the problem lacks, or a different
  number of them.
  > Fit the model on the columns of the frame that `from_frame` reads.
refusal model-of-other-classes: A fitted model used as the start has classes other than the problem's, so its scores may
  have the opposite sign.
  > Fit the model to the column that `from_frame` reads as its label, and set `positive=` to the class that is 1.
refusal model-not-linear: A model used as the start does not score linearly in the problem's features, or has not been
  fitted.
  > Give a fitted linear classifier, a Pipeline of scalers and one, or an array.
warning model-without-names: A model used as the start was fitted on an array, so its column order cannot be checked
  against the frame's.
  > Fit the model on a DataFrame; its columns are then compared by name.
warning outliers-set-the-scale: `from_frame`: a few extreme people inflate a column's standard deviation: it is over
  three times what it is with the outer percentiles clipped, or over ten times what the quartiles imply. Scaling by it
  makes all others look alike and hides their reaction.
  > Use `standardize="robust"`, or clip the column at its quantiles first.
warning columns-not-scaled: `from_frame(standardize=False)`: the values of a column are above 100 (root mean square), or
  columns differ in scale by a factor of 100.
  > Keep `standardize=True`, or scale the columns first: no single learning rate suits them all.
warning desired-class-assumed: `pf.sklearn.PerformativeClassifier`: the classes are words, and `desired` is None, so
  people are assumed to want `classes_[0]`, the first in alphabetical order.
  > Set `desired=` to the class that people want to be assigned.
refusal padding-without-count: A table contains padding rows that no `count` excludes: they would be trained on as if
  they were people.
  > Give the population the count that `pf.partition.tables` or `pf.tables.write` returned with the table.
# Runs
warning old-keyword: `pf.run`, `pf.sweep` and [run] of a file: an argument has moved to `pf.Record`, `pf.Checkpoint`,
  `clients_at_once` or `pf.callbacks.Progress`.
  > Use the form given in the message; the old one still works.
warning function-made-anew: The same lines created a loss function repeatedly, with different captured values each time;
  every one is compiled again.
  > Define the function once, or make it an `equinox.Module` whose numbers are leaves.
warning not-enough-memory: According to its trace, a run needs more memory than the device has left, even with one
  client at a time.
  > Keep tables on disk or in bytes (`pf.tables`), use smaller batches or fewer repeats, or more devices.
refusal far-too-large: The data and memory of a run, its records, or the table of a synthetic case are far too large for
  this machine's memory.
  > Request fewer repeats, clients or rows, record less, or keep tables on disk (`pf.tables`).
warning batch-exceeds-table: `Fixed(n)` draws more rows per step, with replacement, than any client has.
  > Use `pf.batches.Whole()` for every row once, or a smaller n.
warning run-diverged: A repeat became non-finite or exceeded the limit; `history.stopped_at` says when.
  > Use a learning rate below the one in the message, the largest that converges in expectation near the start or the
  stable point; or give the problem a domain.
warning rate-too-large: The performative risk ended far above its starting value, and the learning rate is above the
  largest that converges there.
  > Use a learning rate below the one in the message, or scale the features.
warning updates-dropped: More than 1% of the asynchronous clients' updates were older than the limit and were dropped,
  so slow clients are underrepresented.
  > Raise `limit=` of `pf.Asynchronous`, or its buffer.
warning nonfinite-updates: Some clients' updates were non-finite and were excluded, so training used only the others.
  > Find the client with `executor="loop"`, and fix its data or the loss.
# Federation
warning nothing-was-learned: A run ended with the model it started from, or a federation's last rounds used no update;
  its status is `failed`.
  > First fix the problem named in the message: the reason given by the first client, or what was wrong with all
  updates.
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
        "Messages that guard results end in a code: `... [batch-exceeds-table]`. A *warning* accompanies a result that",
        "does not mean what it seems to; a *refusal* is an error raised instead of returning a wrong result. Plain",
        "argument checks (a negative learning rate, a wrong shape) have no code: they name the parameter, the rule and",
        "the value received.",
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
