"""How experiments run algorithms, and what they read off a trajectory."""

import functools
import inspect
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

import performative as pf
from performative.history import History
from performative.papers.outcome import Outcome, lay_out, thinned

if TYPE_CHECKING:
    import xarray


def quiet(dtype: str | None = "float64", **record: Any) -> dict[str, Any]:
    """Arguments of `pf.run` and `pf.sweep`: no progress bar, only the last model unless `record` asks for more."""
    asked: dict[str, Any] = {"theta": "last", "consensus": False, "risks": False}
    return {"callbacks": [pf.callbacks.Progress(False)], "dtype": dtype, "record": pf.Record(**asked | record)}


def sweep(
    problem: pf.Problem, algorithm: pf.Algorithm, settings: Mapping[Any, Mapping[str, Any]], rounds: int,
    start: Any = None, seed: int = 0, repeats: int = 1, clock: pf.Clock | None = None, **how: Any,
) -> dict[Any, History]:  # fmt: skip
    """One history for each named setting; `how` goes to `quiet`."""
    over = list(settings.values())
    swept = pf.sweep(problem, algorithm, over, rounds, start, seed, repeats, clock=clock, **quiet(**how))
    return dict(zip(settings, swept.histories, strict=True))


def models(history: History) -> np.ndarray:
    """Every recorded model, [repeats, records] for one parameter, [repeats, records, d] for more."""
    return np.asarray(history.theta, np.float64)


def ends(history: History) -> np.ndarray:
    """The last model of each repeat."""
    return np.asarray(history.final, np.float64)


def distance(history: History) -> np.ndarray:
    """|theta - theta_PS|, [repeats, records]."""
    return np.asarray(history["distance_to_stable"], np.float64)


def late(values: Any, share: float = 0.2) -> np.ndarray:
    """The last `share` of each trajectory, [repeats, records]."""
    values = np.asarray(values, np.float64)
    return values[:, -max(1, round(values.shape[1] * share)) :]


def word(name: str) -> str:
    """A name as part of a number's name: "Scheme I" becomes scheme_i."""
    return name.replace(",", "").replace(" ", "_").lower()


def label(value: float) -> str:
    """A value as part of a number's name: 0.25 becomes 0_25."""
    return f"{value:g}".replace(".", "_").replace("-", "minus_")


def power(x: Any, y: Any) -> float:
    """The exponent of a power law through points: the slope on logarithmic axes."""
    return float(np.polyfit(np.log(x), np.log(y), 1)[0])


def traces(runs: Mapping[str, History], of: Any = models) -> "xarray.DataArray":
    """A function of each history, [repeats, records], over the rounds, thinned."""
    return lay_out({name: thinned(np.asarray(run.rounds), np.asarray(of(run))) for name, run in runs.items()})


def given(record: type) -> Callable[[Callable[..., Outcome]], Callable[..., Outcome]]:
    """Decorator: build an experiment's first argument, a record, from the constants that no other argument takes."""

    def wrap(function: Callable[..., Outcome]) -> Callable[..., Outcome]:
        others = list(inspect.signature(function).parameters.values())[1:]
        fields = inspect.signature(record).parameters.values()
        own = [field for field in fields if field.name not in {other.name for other in others}]

        @functools.wraps(function)
        def call(**constants: Any) -> Outcome:
            taken = {field.name: constants.pop(field.name) for field in own if field.name in constants}
            return function(record(**taken), **constants)

        named = [one.replace(kind=inspect.Parameter.KEYWORD_ONLY) for one in (*own, *others)]
        call.__signature__ = inspect.Signature(named)  # type: ignore[attr-defined]  # where `inspect` looks for it
        return call

    return wrap
