"""Break the runs, or the measured numbers, and list the rows of the ledger that do not notice.

    python -m tests.experiments.mutations [NAME ...] [--out FOLDER] [--jobs 2]

Each experiment is run as it is and once for each break, at its quick size. A row notices where its verdict changes, or,
for a bound, the factor by which it is loose. Rows that notice a changed number alone compare formulas; they are listed
apart. A row that notices nothing is true by construction: the script fails, unless the row is named a definition.
"""

import argparse
import json
import multiprocessing
import sys
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np


def wrong_weights(part: Any) -> Any:
    """p_i in proportion to p_i (1 + i)."""
    import equinox as eqx

    count = part.clients
    own = np.full(count, 1 / count) if part.weights is None else np.asarray(part.weights)
    tilted = own * (1 + np.arange(count))
    return eqx.tree_at(lambda one: one.weights, part, tilted / tilted.sum(), is_leaf=lambda leaf: leaf is None)


def response_off(part: Any) -> Any:
    """The first model stays deployed."""
    import equinox as eqx

    import performative as pf

    static = pf.fedavg(rate=0.1).deploy
    return eqx.tree_at(lambda one: one.deploy, part, static, is_leaf=lambda leaf: leaf is part.deploy)


def other_rate(part: Any) -> Any:
    """Steps of 0.6 times their length."""
    import equinox as eqx

    return eqx.tree_at(lambda one: one.rate, part, shorter(part.rate), is_leaf=lambda leaf: leaf is part.rate)


def shorter(rate: Any) -> Any:
    return (lambda t: 0.6 * rate(t)) if callable(rate) else 0.6 * np.asarray(rate)


# What is broken: {name: (the part, its break, the setting of a sweep that would undo it, how that one is broken)}.
PARTS: dict[str, tuple[str, Any, str, Any]] = {
    "weights": ("problem", wrong_weights, "weights", None),
    "response": ("algorithm", response_off, "deploy", None),
    "rate": ("algorithm", other_rate, "rate", shorter),
}
# Beside these: half the noise, and the results of a sweep handed back in the opposite order.
BREAKS = (*PARTS, "noise", "arms")


def broken_setting(setting: Any, broken: str) -> Any:
    """A setting of a sweep; what it brings of its own is broken like the rest."""
    part, change, name, of_setting = PARTS[broken]
    kept = {key: value for key, value in setting.items() if key != name}
    if part in kept:
        kept[part] = change(kept[part])
    if of_setting is not None and name in setting:
        kept[name] = of_setting(setting[name])
    return kept


def install(broken: str) -> None:
    """Every run and sweep of this process is broken."""
    import jax

    import performative as pf

    run, sweep, normal = pf.run, pf.sweep, jax.random.normal

    def broken_run(problem: Any, algorithm: Any, *args: Any, **named: Any) -> Any:
        parts = {"problem": problem, "algorithm": algorithm}
        parts = broken_setting(parts, broken) if broken in PARTS else parts
        return run(parts["problem"], parts["algorithm"], *args, **named)

    def broken_sweep(problem: Any, algorithm: Any, over: Any, *args: Any, **named: Any) -> Any:
        if broken == "arms":
            return sweep(problem, algorithm, list(over)[::-1], *args, **named)
        parts = broken_setting({"problem": problem, "algorithm": algorithm}, broken)
        settings = [broken_setting(one, broken) for one in over]
        return sweep(parts["problem"], parts["algorithm"], settings, *args, **named)

    if broken == "noise":
        jax.random.normal = lambda *args, **named: 0.5 * normal(*args, **named)
    elif broken:
        pf.run, pf.sweep = broken_run, broken_sweep


def attempt(name: str, broken: str, out: Path) -> list[dict[str, Any]] | str:
    """The rows of a broken run; what went wrong, where it did not end, which is noticed as well."""
    from performative.papers import reproduce

    install(broken)
    try:
        return reproduce(name, quick=True, out=out / (broken or "whole"))["claims"]
    except Exception as error:
        return f"{type(error).__name__}: {error}".splitlines()[0]


def outcome(claim: Any, numbers: Any) -> tuple[str, str]:
    row = claim.judge(numbers, False)
    return row["verdict"], row["reason"]


def notices_a_changed_number(name: str, claim: Any, out: Path) -> bool:
    """Whether the verdict changes with the number that is measured."""
    from performative.papers import store

    manifest = store.read_manifest(out / "whole" / name)
    if manifest is None or claim.printed is None:
        return False
    numbers = dict(store.read_numbers(manifest))
    verdict = outcome(claim, numbers)
    measured = {check.number for check in (claim.printed, claim.corrected) if check is not None}
    for change in CHANGES:
        other = {key: _changed(numbers[key], change) for key in measured}
        if outcome(claim, numbers | other) != verdict:
            return True
    # At the number that is asked for, and beyond it on either side, a row cannot say the same.
    asked = claim.printed.near if claim.printed.near is not None else getattr(claim.printed, claim.printed.rule)
    if isinstance(asked, str):
        asked = np.ravel(numbers[asked])[0]
    beside = [float(value) * factor for value in np.ravel(asked) for factor in (1.0, 2.0, 0.5)]
    targets = ({key: _replaced(numbers[key], value) for key in measured} for value in beside)
    return any(outcome(claim, numbers | target) != verdict for target in targets)


# Of a number and its standard error.
CHANGES = (
    lambda v, e: 2 * v, lambda v, e: v / 2, lambda v, e: 20 * v, lambda v, e: v / 20, lambda v, e: -v,
    lambda v, e: v + 1, lambda v, e: v - 1, lambda v, e: v + 10 * e, lambda v, e: v - 10 * e,
)  # fmt: skip


def _changed(number: Any, change: Any) -> Any:
    return (change(*number), *number[1:]) if isinstance(number, tuple) else change(number, 0.0)


def _replaced(number: Any, value: Any) -> Any:
    return (value, *number[1:]) if isinstance(number, tuple) else value


def main(words: list[str]) -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("names", nargs="*")
    parser.add_argument("--out", type=Path, default=Path("performative-mutations"))
    parser.add_argument("--jobs", type=int, default=2)
    told = parser.parse_args(words)
    from performative.papers import catalog

    names = told.names or catalog.names()
    # One run a process: a break is not taken back.
    pool = ProcessPoolExecutor(told.jobs, mp_context=multiprocessing.get_context("spawn"), max_tasks_per_child=1)
    with pool:
        waiting = {(n, b): pool.submit(attempt, n, b, told.out) for n in names for b in ("", *BREAKS)}
        rows = {pair: future.result() for pair, future in waiting.items()}
    found: dict[str, list[str]] = {}
    for name in names:
        whole = rows[name, ""]
        if isinstance(whole, str):
            print(f"{name}: {whole}")
            return 1
        for place, claim in enumerate(catalog.find(name).claims):
            if whole[place]["verdict"] == "not tested" or claim.kind == "definition":
                continue
            bound = claim.printed is not None and claim.printed.bound
            # The reason of an undecided row says how it came out here.
            seen = ("number", "verdict") if bound else ("verdict", "reason") if claim.undecided else ("verdict",)
            noticed = [
                broken
                for broken in BREAKS
                if isinstance(rows[name, broken], str)
                or any(rows[name, broken][place][key] != whole[place][key] for key in seen)
            ]
            noticed += ["number"] * notices_a_changed_number(name, claim, told.out)
            found[f"{name}#{claim.id}"] = noticed
    (told.out / "noticed.json").write_text(json.dumps(found, indent=1))
    formulas = [key for key, noticed in found.items() if noticed == ["number"]]
    blind = [key for key, noticed in found.items() if not noticed]
    print(f"{len(found)} rows; {len(formulas)} notice a changed number alone:", *formulas, sep="\n  ")
    print(f"{len(blind)} notice nothing:", *blind, sep="\n  ")
    return 1 if blind else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
