"""Results in one file, as shipped with the package: `leaderboard.json`, written by `performative suite pack`."""

import dataclasses
import json
import math
from collections.abc import Sequence
from importlib import resources
from pathlib import Path
from typing import Any

from performative._base.files import write_whole
from performative._version import __version__
from performative.suite.protocol import PROTOCOL, Result

# Significant digits kept: more than the noise warrants.
_DIGITS = 4


@dataclasses.dataclass(frozen=True)
class Published:
    """Results, and how they were obtained.

    Attributes:
        seeds: reported runs of each method in each environment; quick: whether only the rate was tuned, on a short grid
        minutes: total CPU time; version: of this package
    """

    results: tuple[Result, ...]
    seeds: int
    quick: bool
    minutes: float
    version: str = __version__


def collect(results: Sequence[Result]) -> Published:
    """Collect results with a summary of how they were obtained."""
    if not results:
        raise ValueError("there are no results; run some with `performative suite run`.")
    seeds = min((len(one.scores) for one in results if one.why is None), default=0)
    minutes = round(sum(one.seconds for one in results) / 60, 1)
    return Published(tuple(results), seeds, any(one.quick for one in results), minutes)


def pack(found: Published, path: str | Path) -> None:
    """Write results to one file, one line per method and environment."""
    head = {"protocol": PROTOCOL, "version": found.version, "seeds": found.seeds, "quick": found.quick}
    start = json.dumps(head | {"minutes": found.minutes})[:-1]
    lines = ",\n".join(json.dumps(_short(one), separators=(",", ":")) for one in found.results)
    write_whole(Path(path), f'{start}, "results": [\n{lines}\n]}}\n'.encode())


def unpack(text: str) -> Published:
    """Read what `pack` wrote."""
    try:
        told = json.loads(text)
        results = tuple(_long(one) for one in told["results"])
        return Published(results, told["seeds"], told["quick"], told["minutes"], told["version"])
    except (ValueError, KeyError, TypeError) as fault:
        raise ValueError(f"unpack: not a results file ({fault}).") from fault


def shipped() -> Published:
    """Return the results shipped with this version of the package."""
    return unpack(resources.files("performative.suite").joinpath("shipped", "leaderboard.json").read_text())


def _short(result: Result) -> dict[str, Any]:
    """What a leaderboard needs, with few digits; null if a run diverged. Risks follow from scores."""
    told: dict[str, Any] = {"env": result.env, "method": result.method}
    told["scores"] = [_rounded(score) for score in result.scores]
    path = [[count, _rounded(score)] for count, score in result.path]
    facts = {name: _rounded(value) for name, value in result.facts.items()}
    told |= {"failures": result.failures, "tuned": result.tuned, "deployments": result.deployments}
    told |= {"seconds": round(result.seconds, 2), "why": result.why, "quick": result.quick}
    return {name: value for name, value in (told | {"path": path, "facts": facts}).items() if value or name == "scores"}


def _rounded(value: float | int) -> float | None:
    return float(f"{value:.{_DIGITS}g}") if math.isfinite(value) else None


def _long(told: dict[str, Any]) -> Result:
    scores = tuple(-math.inf if x is None else float(x) for x in told.pop("scores"))
    path = tuple((int(count), float(score)) for count, score in told.pop("path", ()))
    return Result(scores=scores, risks=(), path=path, **told)
