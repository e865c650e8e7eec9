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


def wrong_weights(problem: Any, algorithm: Any, settings: Any) -> tuple[Any, Any, Any]:
    """p_i in proportion to p_i (1 + i)."""
    import equinox as eqx

    count = problem.clients
    own = np.full(count, 1 / count) if problem.weights is None else np.asarray(problem.weights)
    tilted = own * (1 + np.arange(count))
    changed = eqx.tree_at(lambda one: one.weights, problem, tilted / tilted.sum(), is_leaf=lambda leaf: leaf is None)
    return changed, algorithm, settings


def response_off(problem: Any, algorithm: Any, settings: Any) -> tuple[Any, Any, Any]:
    """The first model stays deployed."""
    import equinox as eqx

    import performative as pf

    static = pf.fedavg(rate=0.1).deploy
    changed = eqx.tree_at(lambda one: one.deploy, algorithm, static, is_leaf=lambda leaf: leaf is algorithm.deploy)
    return problem, changed, [_without(one, "deploy") for one in settings]


def other_rate(problem: Any, algorithm: Any, settings: Any) -> tuple[Any, Any, Any]:
    """Steps of 0.6 times their length."""
    import equinox as eqx

    def shorter(rate: Any) -> Any:
        return (lambda t: 0.6 * rate(t)) if callable(rate) else 0.6 * np.asarray(rate)

    changed = eqx.tree_at(
        lambda one: one.rate, algorithm, shorter(algorithm.rate), is_leaf=lambda leaf: leaf is algorithm.rate
    )
    return problem, changed, [one | {"rate": shorter(one["rate"])} if "rate" in one else one for one in settings]


def half_the_noise() -> None:
    import jax

    whole = jax.random.normal
    jax.random.normal = lambda *args, **named: 0.5 * whole(*args, **named)


BREAKS = {"weights": wrong_weights, "response": response_off, "rate": other_rate, "noise": half_the_noise}


def _without(setting: Any, name: str) -> Any:
    return {key: value for key, value in setting.items() if key != name}


def install(broken: str) -> None:
    """Every run and sweep of this process is broken."""
    import performative as pf

    if broken == "noise":
        half_the_noise()
    elif broken:
        run, sweep, change = pf.run, pf.sweep, BREAKS[broken]

        def broken_run(problem: Any, algorithm: Any, *args: Any, **named: Any) -> Any:
            problem, algorithm, _ = change(problem, algorithm, [])
            return run(problem, algorithm, *args, **named)

        def broken_sweep(problem: Any, algorithm: Any, over: Any, *args: Any, **named: Any) -> Any:
            problem, algorithm, over = change(problem, algorithm, over)
            return sweep(problem, algorithm, over, *args, **named)

        pf.run, pf.sweep = broken_run, broken_sweep


def attempt(name: str, broken: str, out: Path) -> list[dict[str, Any]] | str:
    """The rows of a broken run; what went wrong, where it did not end, which is noticed as well."""
    from performative.papers import reproduce

    install(broken)
    try:
        return reproduce(name, quick=True, out=out / (broken or "whole"))["claims"]
    except Exception as error:
        return f"{type(error).__name__}: {error}".splitlines()[0]


def notices_a_changed_number(name: str, claim: Any, out: Path) -> bool:
    """Whether the verdict changes with the number that is measured."""
    from performative.papers import store

    manifest = store.read_manifest(out / "whole" / name)
    if manifest is None or claim.printed is None:
        return False
    numbers = dict(store.read_numbers(manifest))
    verdict = claim.judge(numbers, False)["verdict"]
    measured = {check.number for check in (claim.printed, claim.corrected) if check is not None}
    for change in (lambda v: 2 * v, lambda v: v / 2, lambda v: -v, lambda v: v + 1, lambda v: v - 1):
        other = {key: _changed(numbers[key], change) for key in measured}
        if claim.judge(numbers | other, False)["verdict"] != verdict:
            return True
    return False


def _changed(number: Any, change: Any) -> Any:
    return (change(number[0]), *number[1:]) if isinstance(number, tuple) else change(number)


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
            seen = ("number", "verdict") if bound else ("verdict",)
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
