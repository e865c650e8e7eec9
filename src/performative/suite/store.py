"""Results in a folder: one file per method and environment, so an interrupted run can resume."""

import dataclasses
import json
import math
from pathlib import Path
from typing import Any

from performative._base.files import write_whole
from performative.suite.budget import Budget
from performative.suite.methods import METHODS
from performative.suite.protocol import BASELINES, PROTOCOL, Effort, Result
from performative.suite.registry import ids, make


class Store:
    """The results measured so far."""

    def __init__(self, folder: str | Path):
        self.folder = Path(folder)

    def path(self, env: str, method: str) -> Path:
        return self.folder / env / f"{method}.json"

    def has(self, env: str, method: str, effort: Effort) -> bool:
        """Whether the pair was measured under this protocol with at least as much effort."""
        path = self.path(env, method)
        if not path.exists():
            return False
        found = read_result(path)
        tuned = effort.quick or not found.quick
        return found.protocol == PROTOCOL and tuned and (found.why is not None or len(found.scores) >= effort.seeds)

    def put(self, result: Result) -> None:
        path = self.path(result.env, result.method)
        path.parent.mkdir(parents=True, exist_ok=True)
        write_whole(path, json.dumps(_plain(dataclasses.asdict(result)), indent=1).encode())

    def results(self) -> list[Result]:
        """All results, by environment and method."""
        return [read_result(path) for path in sorted(self.folder.glob("*/*.json"))]


def _plain(values: dict[str, Any]) -> dict[str, Any]:
    """Replace numbers that JSON cannot represent: the risk of a diverged run is null."""
    lists = {name: [None if not math.isfinite(x) else x for x in values[name]] for name in ("scores", "risks")}
    return {**values, **lists}


def read_result(path: str | Path) -> Result:
    """Read a result file, ours or submitted; raise if it is not one."""
    if not Path(path).is_file():
        raise ValueError(f"{path}: there is no such file.")
    try:
        told = json.loads(Path(path).read_text())
        scores = tuple(-math.inf if x is None else float(x) for x in told.pop("scores"))
        risks = tuple(math.inf if x is None else float(x) for x in told.pop("risks"))
        way = tuple((int(count), float(score)) for count, score in told.pop("path", ()))
        return Result(scores=scores, risks=risks, path=way, **told)
    except (OSError, ValueError, TypeError, KeyError, AttributeError) as fault:
        raise ValueError(f"{path}: not a result of the suite ({fault}).") from fault


def check_result(result: Result, seeds: int = 10) -> list[str]:
    """List what is wrong with a submitted result; empty if nothing is.

    It must name an environment of this version, report enough seeds, respect the budget, and its scores must follow
    from its risks.
    """
    if result.env not in ids():
        return [f"there is no environment {result.env!r}; its version may be newer or older than those here."]
    env, found = make(result.env), []
    if result.protocol != PROTOCOL:
        found.append(f"it was measured under protocol {result.protocol}; the current one is {PROTOCOL}.")
    if len(result.scores) < seeds or len(result.risks) != len(result.scores):
        found.append(f"{len(result.scores)} scores and {len(result.risks)} risks; {seeds} seeds are required.")
    lacking = env.budget.lacks(Budget(result.deployments, result.samples, result.deployments))
    found += [f"over the budget: {text}" for text in lacking]
    for score, risk in zip(result.scores, result.risks, strict=False):
        expected = env.score_of(risk) if math.isfinite(risk) else -math.inf
        if not (score == expected or abs(score - expected) <= 1e-6 * (1 + abs(expected))):
            found.append(f"score {score:.6g} does not match risk {risk:.6g}, whose score is {expected:.6g}.")
            break
    if result.failures != sum(not math.isfinite(risk) for risk in result.risks):
        found.append(
            f"{result.failures} failures, but {sum(not math.isfinite(r) for r in result.risks)} risks are non-finite."
        )
    return found


def everything() -> tuple[str, ...]:
    """The names of all methods and baselines."""
    return (*BASELINES, *METHODS)
