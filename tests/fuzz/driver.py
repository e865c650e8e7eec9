"""Search for expressions that are neither run nor refused in our words, in a process without runtime type checks.

    python tests/fuzz/driver.py calls=1000 runs=50              repeatable
    python tests/fuzz/driver.py runs=5000 seed=7 seconds=300    other examples, for so long at most

Prints {property: {"answers": {...}, "failures": [...]}} as JSON, one failure for each cause, the shortest.
"""

import collections
import dataclasses
import json
import os
import sys
import time

import hypothesis
import jax
import strategies
from calls import SCOPE
from hypothesis import HealthCheck, Phase, given, settings
from judge import Failure, judge
from tracing import compiled, sound, traced, watched


def search(name: str, examples: int, seed: int | None = None, seconds: float = float("inf")) -> dict:
    """Judge so many expressions of one strategy."""
    answers: collections.Counter = collections.Counter()
    found: dict[str, Failure] = {}
    limit = time.monotonic() + seconds

    def one(case) -> None:
        if time.monotonic() > limit:
            return
        call, parameter = case if isinstance(case, tuple) else (case, None)
        runs = name == "whole_runs"
        compiled.clear()
        failure = judge(call, SCOPE, parameter, then=sound if runs else None, late=compiled if runs else None)
        answer = failure if isinstance(failure, str) else "failed"
        answers[answer] += 1
        if answer == "failed" and len(call) < len(found.get(failure.cause, failure).call) + 1:
            found[failure.cause] = failure

    options = {"max_examples": examples, "deadline": None, "database": None, "phases": [Phase.generate]}
    quiet = list(HealthCheck)
    test = settings(**options, derandomize=seed is None, suppress_health_check=quiet)(given(strategies.of(name))(one))
    if seed is not None:
        test = hypothesis.seed(seed)(test)
    with watched() if name == "whole_runs" else traced():
        test()
    return {"answers": dict(answers), "failures": [dataclasses.asdict(f) for f in found.values()]}


if __name__ == "__main__":
    asked = dict(word.split("=") for word in sys.argv[1:])
    options = {"seed": int(asked.pop("seed")) if "seed" in asked else None}
    options["seconds"] = float(asked.pop("seconds", "inf"))
    os.chdir(SCOPE["FOLDER"])  # what is written lands there
    jax.config.update("jax_disable_most_optimizations", True)
    print(json.dumps({name: search(name, int(examples), **options) for name, examples in asked.items()}))
