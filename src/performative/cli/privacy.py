"""`performative privacy spent|calibrate|attack`."""

import dataclasses
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

import typer

from performative.cli.output import EXIT_CODES, Exit, Failure, Json, Reporter, Set, failing, reject_unused, reporting

privacy = typer.Typer(
    name="privacy",
    help="The privacy guarantee of a run, the noise it requires, and attacks that test whether it holds.",
    epilog=EXIT_CODES,
    no_args_is_help=True,
)


class Sampler(StrEnum):
    """How a step samples rows."""

    EVERYONE = "everyone"
    POISSON = "poisson"
    UNIFORM = "uniform"
    REPLACEMENT = "with-replacement"
    SHUFFLED = "shuffled"


_DELTA = typer.Option("--delta", help="Failure probability of the guarantee; well below 1 / rows.")
_STEPS = typer.Option("--steps", help="Noisy sums released: rounds times local steps.")
Delta, MaybeDelta = Annotated[float, _DELTA], Annotated[float | None, _DELTA]
Steps, MaybeSteps = Annotated[int, _STEPS], Annotated[int | None, _STEPS]
Sampling = Annotated[Sampler, typer.Option("--sampling", help="How a step samples rows (or a round, clients).")]
Size = Annotated[int | None, typer.Option("--batch", help="Rows per step: n; for poisson the mean number.")]
Rows = Annotated[int | None, typer.Option("--rows", help="Rows of the table; for client-level privacy, clients.")]


@privacy.command(epilog=EXIT_CODES)
def spent(
    file: Annotated[Path | None, typer.Argument(help="TOML file of a run; or pass the numbers as options.")] = None,
    noise: Annotated[float | None, typer.Option("--noise", help="Noise multiplier: sd divided by the clip.")] = None,
    steps: MaybeSteps = None,
    delta: MaybeDelta = None,
    sampling: Sampling = Sampler.EVERYONE,
    batch: Size = None,
    rows: Rows = None,
    entries: Set = None,
    as_json: Json = False,
) -> None:
    """Compute the epsilon of a run, from its file or from numbers."""
    with reporting(as_json, entries) as reporter:
        if file is not None:
            told = "is set by the file: drop one of the two, or change the entry of the file with --set."
            reject_unused(told, "noise", "steps", "sampling", "batch", "rows")
            _tell_file(reporter, file, delta)
            return
        if noise is None or steps is None or delta is None:
            missing = [n for n, v in (("--noise", noise), ("--steps", steps), ("--delta", delta)) if v is None]
            raise Failure(f"pass a file, or all of the numbers; missing: {', '.join(missing)}.", Exit.BAD_INPUT)
        if entries:
            raise Failure(f"--set {entries[0]}: it overrides an entry of a file; pass the file.", Exit.BAD_INPUT)
        from performative.privacy.spending import spent as ask

        with failing():
            found = ask(noise, steps, delta, batch=_batch(sampling, batch, rows), rows=rows)
        reporter.show(f"epsilon = {found.epsilon:.4g} at delta = {delta:g}")
        _tell_spent(reporter, sampling, noise, steps, found)


@privacy.command(epilog=EXIT_CODES)
def calibrate(
    epsilon: Annotated[float, typer.Option("--epsilon", help="The privacy budget.")],
    delta: Delta,
    steps: Steps,
    sampling: Sampling = Sampler.EVERYONE,
    batch: Size = None,
    rows: Rows = None,
    as_json: Json = False,
) -> None:
    """Find the smallest noise multiplier that stays within epsilon."""
    with reporting(as_json) as reporter:
        from performative.privacy.spending import calibrate as ask
        from performative.privacy.spending import spent as check

        with failing():
            how = {"batch": _batch(sampling, batch, rows), "rows": rows}
            noise = ask(epsilon, delta, steps, **how)
            found = check(noise, steps, delta, **how)
        reporter.show(f"noise multiplier {noise:.4g}: epsilon = {found.epsilon:.4g} at delta = {delta:g}")
        _tell_spent(reporter, sampling, noise, steps, found)


@privacy.command("audit", hidden=True, deprecated=True, epilog=EXIT_CODES)
@privacy.command(epilog=EXIT_CODES)
def attack(
    file: Annotated[Path, typer.Argument(help="TOML file of a run; its algorithm is attacked, not its data.")],
    delta: Annotated[float | None, typer.Option("--delta", help="Overrides privacy.delta.")] = None,
    rows: Annotated[
        int | None, typer.Option("--rows", help="Rows of the crafted table; as in the file by default.")
    ] = None,
    rounds: Annotated[int, typer.Option("--rounds", help="Rounds that the attacker sees.")] = 100,
    repeats: Annotated[int, typer.Option("--repeats", help="Runs on each of the two neighboring data sets.")] = 2000,
    canaries: Annotated[int, typer.Option("--canaries", help="Canaries in one run; 0 for none.")] = 10_000,
    claimed: Annotated[float | None, typer.Option("--claimed", help="Claimed epsilon for these rounds.")] = None,
    seed: Annotated[int, typer.Option("--seed", min=0, help="Seed of the attacks.")] = 0,
    entries: Set = None,
    as_json: Json = False,
) -> None:
    """Attack the algorithm of a file with crafted data for a lower bound on epsilon, compared with the claim.

    An alarm (a bound above the claim) exits with code 1. The absence of an alarm proves nothing.
    """
    with reporting(as_json, entries) as reporter:
        from performative.privacy.attack import estimate_epsilon

        experiment, promise = _load(file, delta, "run")  # how long it runs is --rounds
        with failing(), reporter.errors.status("attacking"):
            if claimed is None and promise is not None and promise.conservative:
                from performative.privacy.ledger import Ledger

                claimed = Ledger(promise, experiment.problem, experiment.algorithm).spent(rounds).epsilon
            findings = estimate_epsilon(
                experiment.problem, experiment.algorithm, rows, rounds, promise.delta if delta is None else delta,
                repeats, canaries, seed, claimed=claimed, unit=None if promise is None else promise.unit,
            )  # fmt: skip
        for finding in findings:
            reporter.show(finding.sentence)
        told = {"file": str(file), "findings": [finding.to_dict() for finding in findings]}
        alarms = [finding for finding in findings if finding.alarm]
        if alarms:
            raise Failure(
                f"{len(alarms)} of {len(findings)} attacks exceed the claimed epsilon: the guarantee does not hold.",
                Exit.FAILED,
                {"status": "alarm", **told},
            )
        reporter.result({"status": "completed", **told})


def _tell_spent(reporter: Reporter, sampling: Sampler, noise: float, steps: int, found: Any) -> None:
    neighbors = found.neighbors.replace("_", " ")
    reporter.show(f"{sampling.value} sampling, neighbors: {neighbors}; by {found.method}. {found.note}".rstrip())
    given = {"sampling": sampling.value, "noise_multiplier": noise, "steps": steps}
    reporter.result({"status": "completed", **given, **vars(found)})


def _load(file: Path, delta: float | None, *unused: str) -> tuple[Any, Any]:
    """The experiment of a file and its privacy guarantee, None if `delta` is given instead. `unused`: further tables of
    no effect."""
    from performative.config import load_experiment
    from performative.config.document import NOT_RUN

    experiment = load_experiment(file, unread=(*NOT_RUN, *unused))
    promise = experiment.options.get("privacy")
    if delta is None and promise is None:
        raise Failure(f"{file} has no [privacy] table; pass --delta, or add the table with its delta.", Exit.BAD_INPUT)
    return experiment, promise


def _tell_file(reporter: Reporter, file: Path, delta: float | None) -> None:
    from performative.cli.summary import privacy_lines
    from performative.privacy.ledger import Ledger
    from performative.privacy.promise import Privacy

    experiment, promise = _load(file, delta)
    with failing():
        if delta is not None:
            promise = Privacy(delta) if promise is None else dataclasses.replace(promise, delta=delta)
        ledger = Ledger(promise, experiment.problem, experiment.algorithm)
        rounds = experiment.options["rounds"]
        allowed = ledger.most_rounds(rounds)
    facts = ledger.summary(allowed, rounds, allowed < rounds)
    for line in privacy_lines(facts):
        reporter.show(line)
    reporter.result({"status": "completed", "file": str(file), "rounds": rounds, **facts})


def _batch(sampling: Sampler, size: int | None, rows: int | None) -> Any:
    """The sampler as a batch; None for everyone."""
    from performative import batches

    if sampling is Sampler.EVERYONE:
        for option, given in (("--batch", size), ("--rows", rows)):
            if given is not None:
                raise ValueError(f"{option} {given}: specify how rows are sampled with --sampling.")
        return None
    if size is None or rows is None:
        raise ValueError(f"--sampling {sampling.value} needs --batch and --rows.")
    if not 1 <= size <= rows:
        raise ValueError(f"--batch must lie between 1 and --rows; got {size} of {rows}.")
    if sampling is Sampler.POISSON:
        return batches.Poisson(size / rows, rows)
    if sampling is Sampler.UNIFORM:
        return batches.Uniform(size)
    return batches.Fixed(size) if sampling is Sampler.REPLACEMENT else batches.Shuffled(size)
