"""Many settings at once: one compilation for all that differ in numbers only."""

import dataclasses
import inspect
import itertools
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import jax
import jax.numpy as jnp
import numpy as np

from performative.algorithm import Algorithm
from performative.describe import describe
from performative.engine.books import write_history
from performative.engine.cautions import caution_before, judge
from performative.engine.chunk import Frozen, Watch
from performative.engine.clock import Clock
from performative.engine.drive import drive
from performative.engine.executors import AbstractExecutor, pick_executor
from performative.engine.layout import choose_compute
from performative.engine.options import Options, read_options, repeat_keys
from performative.engine.programs import cache_compilations
from performative.engine.ready import about, find_points, with_distances, with_known_loss
from performative.engine.run import review
from performative.engine.setup import Setup, prepare
from performative.errors import check_counts, nearest
from performative.history import History
from performative.messages import tell
from performative.prepare import check_fit, check_length, check_owners, on_device, place_start, read_theta
from performative.problem import Problem
from performative.record import Record

if TYPE_CHECKING:
    import xarray

__all__ = ["Sweep", "sweep"]

Metric = str | Callable[[History], np.ndarray]


@dataclasses.dataclass(frozen=True)
class Sweep:
    """One history for each setting, in the order of the grid."""

    over: dict[str, list[Any]]
    settings: list[dict[str, Any]]
    histories: list[History]
    programs: int  # how many programs were run: settings that differ in numbers only share one

    def scores(self, metric: Metric = "distance_to_stable") -> np.ndarray:
        """Mean over repeats of the final value, one a setting; infinite where a repeat diverged."""
        return np.asarray([_score(history, metric) for history in self.histories])

    def best(self, metric: Metric = "distance_to_stable") -> tuple[dict[str, Any], History]:
        """The setting with the smallest mean final value, and its history."""
        scores = self.scores(metric)
        if not np.any(np.isfinite(scores)):
            raise ValueError(f"every setting diverged, so there is no best one by {metric!r}.")
        first = int(np.nanargmin(scores))
        return self.settings[first], self.histories[first]

    def to_xarray(self) -> "xarray.Dataset":
        """All histories side by side along `setting`, with the swept values as coordinates."""
        import xarray as xr

        joined = xr.concat([h.to_xarray() for h in self.histories], dim="setting", combine_attrs="drop", join="outer")
        labels = {name: [_label(s.get(name, "")) for s in self.settings] for name in self.over}
        for name, column in labels.items():
            if any(isinstance(label, str) for label in column):
                labels[name] = [str(label) for label in column]
        return joined.assign_coords({name: ("setting", column) for name, column in labels.items()})


def _label(value: Any) -> Any:
    return value if isinstance(value, (int, float, str)) else str(describe(value))


def _score(history: History, metric: Metric) -> float:
    if history.status not in ("completed", "stopped"):
        return float("inf")
    values = metric(history) if callable(metric) else history[metric][:, -1]
    return float(np.mean(values))


def sweep(
    problem: Problem,
    algorithm: Algorithm,
    over: Mapping[str, Sequence[Any]] | Sequence[Mapping[str, Any]],
    rounds: int,
    theta: Any = None,
    seed: int = 0,
    repeats: int = 1,
    *,
    record: Record | None = None,
    callbacks: Sequence[Any] = (),
    clock: Clock | None = None,
    dtype: str | None = None,
    executor: str | AbstractExecutor | None = None,
    clients_at_once: int | None = None,
    **old: Any,
) -> Sweep:
    """Run every combination of the values in `over`, with the same seeds for all (common random numbers).

    `over` maps a dotted name to values: "rate", "rate.scale", "participation.k", "local_steps" on the algorithm,
    "population.sensitivity", "weights", "domain" on the problem; "algorithm" or "problem" for the whole, "rounds" for
    a number of rounds of its own. A list of {name: value} holds settings that are no grid. Settings that differ in
    numbers only run as one compiled program; a value that sets a shape (K, E, n) or chooses code gets a program of its
    own. The rest as in `run`, but for `record`: left out, no risks are measured. Callbacks see each program by itself.
    """
    check_counts(rounds=rounds, repeats=repeats)
    settings = _read_settings(over)
    lengths = [setting.get("rounds", rounds) for setting in settings]
    for length in lengths:
        check_counts(rounds=length)
    options = read_options(
        "sweep", Record(risks=False), record, callbacks, clock, dtype, executor, clients_at_once, old
    )
    check_owners(problem, algorithm)
    chosen = pick_executor(executor, algorithm)
    if chosen.name == "sharded" or not chosen.compiled:
        name = chosen.name or type(chosen).__name__
        raise ValueError(f'sweep runs settings side by side; use pf.run(..., executor="{name}") on one of them.')
    with jax.enable_x64(options.precision == jnp.float64):
        return _sweep(problem, algorithm, settings, lengths, theta, seed, repeats, options)


def _sweep(
    problem: Problem, algorithm: Algorithm, settings: list[dict[str, Any]], lengths: list[int], theta: Any, seed: int,
    repeats: int, options: Options,
) -> Sweep:  # fmt: skip
    """Prepare every setting, drive those that share a program together, write a history each."""
    cache_compilations()
    record, precision = options.record, options.precision
    problem = with_known_loss(problem)
    start = read_theta(problem, theta, precision)
    ready, whole = [], []
    found: dict[int, Any] = {}  # settings that share a problem share its points
    for setting, length in zip(settings, lengths, strict=True):
        here, how = problem, algorithm
        for name, value in setting.items():
            if name != "rounds":
                here, how = set_by_name(here, how, name, value)
        place_start(on_device(here, precision), start, given=True)
        if id(here) not in found:
            found[id(here)] = find_points(here, start, record)
        check_length(length, how)
        ready.append(with_distances(prepare(here, how, options.clock, record), found[id(here)]))
        whole.append((here, how))
    histories: dict[int, History] = {}
    groups = _same_program(ready, lengths)
    for group in groups:
        first = on_device(ready[group[0]], precision)
        check_fit(first.problem, start)
        here, how = whole[group[0]]
        length = lengths[group[0]]
        how.estimator.check(here, start, how.batch)
        caution_before(here, how)
        copies = repeats * len(group)
        compute, _ = choose_compute(first, start, copies, options.clients_at_once, half=options.half)
        # Before they are stacked: what marks the leaves that vary must have the same layout.
        laid_out = [dataclasses.replace(ready[i], compute=compute) for i in group]
        fixed = _stack(laid_out, repeat_keys(seed, repeats), precision)
        watch = Watch(record.every, record.theta == "all", pick_executor(options.executor, how))
        driven = drive(
            fixed, start, watch, length,
            points=record.points, limit=record.limit, calls=options.calls,
            about=about(how, seed, first, 0.0, compute) | {"label": f"{how.name} x {len(group)}"},
            settings=[settings[i] for i in group],
        )  # fmt: skip
        memories = driven.state.clients.estimator, driven.state.server.aggregator
        for place, i in enumerate(group):
            notes = review(*whole[i], *jax.tree.map(lambda leaf, place=place: leaf[place], memories))
            for note in notes:
                tell(f"setting {i}: {note}")
            meta = about(whole[i][1], seed, first, driven.seconds / len(group), compute)
            meta |= {"setting": describe(settings[i])} | ({"notes": notes} if notes else {})
            meta |= {} if driven.stopped_by is None else {"stopped_by": driven.stopped_by}
            history = write_history(fixed, start, watch, length, driven.chunks, driven.state, meta, driven.first, place)
            histories[i] = judge(history)
    return Sweep(_values(settings), settings, [histories[i] for i in range(len(settings))], len(groups))


def _read_settings(over: Any) -> list[dict[str, Any]]:
    """One {name: value} a setting: as they were listed, or all combinations."""
    if isinstance(over, Mapping):
        if any(isinstance(v, str) or not hasattr(v, "__len__") for v in over.values()):
            raise ValueError(f"over must map names to lists of values, such as {{'rate': [0.1, 0.2]}}; got {over!r}.")
        if not over or any(len(values) == 0 for values in over.values()):
            raise ValueError("over needs at least one name with at least one value.")
        return [dict(zip(over, values, strict=True)) for values in itertools.product(*over.values())]
    if not isinstance(over, Sequence) or not over or not all(isinstance(one, Mapping) and one for one in over):
        raise ValueError(
            "over must map names to lists of values, such as {'rate': [0.1, 0.2]}, or list settings, such as "
            f"[{{'rate': 0.1, 'local_steps': 5}}]; got {over!r}."
        )
    return [dict(one) for one in over]


def _values(settings: list[dict[str, Any]]) -> dict[str, list[Any]]:
    """What each name was given, without repetition."""
    values: dict[str, list[Any]] = {}
    for name, value in (pair for setting in settings for pair in setting.items()):
        known = values.setdefault(name, [])
        if not any(value is one or np.array_equal(value, one) for one in known):
            known.append(value)
    return values


def _same_program(ready: list[Setup], lengths: list[int]) -> list[list[int]]:
    """Indices of settings that share structure, shapes, static fields and the number of rounds."""
    groups: dict[Any, list[int]] = {}
    for i, setup in enumerate(ready):
        leaves, structure = jax.tree.flatten(setup)
        shapes = tuple((np.shape(leaf), jnp.result_type(leaf)) if _is_number(leaf) else leaf for leaf in leaves)
        groups.setdefault((structure, shapes, lengths[i]), []).append(i)
    return list(groups.values())


def _is_number(leaf: Any) -> bool:
    return isinstance(leaf, (int, float, np.ndarray, np.generic, jax.Array))


def _stack(setups: list[Setup], keys: Any, dtype: Any) -> Frozen:
    """Leaves that differ get a leading axis of settings, the others stay shared."""
    columns = list(zip(*(jax.tree.leaves(setup) for setup in setups), strict=True))
    structure = jax.tree.structure(setups[0])
    values, axes = [], []
    for column in columns:
        varies = _is_number(column[0]) and not all(c is column[0] or np.array_equal(c, column[0]) for c in column)
        values.append(np.stack([np.asarray(c) for c in column]) if varies else column[0])
        axes.append(0 if varies else None)
    setup = on_device(jax.tree.unflatten(structure, values), dtype)
    return Frozen(setup, keys, jax.tree.unflatten(structure, axes), len(setups))


def set_by_name(problem: Problem, algorithm: Algorithm, name: str, value: Any) -> tuple[Problem, Algorithm]:
    """The problem and the algorithm with one field replaced, converted and checked as its constructor would."""
    path = name.split(".")
    if path[0] in ("problem", "algorithm"):
        owner, path = path[0], path[1:]
        if not path:
            if owner == "problem" and isinstance(value, Problem):
                return value, algorithm
            if owner == "algorithm" and isinstance(value, Algorithm):
                return problem, value
            raise ValueError(f"over: {name!r} must hold {owner.capitalize()}s; got {value!r}.")
    else:
        owner = "algorithm" if path[0] in _field_names(algorithm) else "problem"
        if path[0] not in _field_names(algorithm) + _field_names(problem):
            known = _field_names(algorithm) + _field_names(problem)
            raise ValueError(f"over: there is no {name!r} to vary.{nearest(path[0], known)}")
    if owner == "algorithm":
        return problem, _replace(algorithm, path, value, name)
    return _replace(problem, path, value, name), algorithm


def _field_names(part: Any) -> list[str]:
    return [f.name for f in dataclasses.fields(part)]


def _replace(part: Any, path: list[str], value: Any, name: str) -> Any:
    """Made anew by its constructor, so that whatever that works out or checks is right again."""
    # A field may be kept under another name than its argument's, where a method has that one.
    known = dataclasses.fields(part) if dataclasses.is_dataclass(part) else ()
    fields = {field.metadata.get("argument", field.name): field for field in known}
    wanted = list(inspect.signature(type(part)).parameters)
    made_of = [p for p in wanted if p in fields or hasattr(part, p)]
    if not known or path[0] not in made_of:
        raise ValueError(
            f"over: {name!r} does not lead to an argument of {type(part).__name__}.{nearest(path[0], made_of)}"
        )
    if lost := [p for p in wanted if p not in made_of]:
        raise ValueError(
            f"over: {type(part).__name__} does not keep its argument {lost[0]!r}, so it cannot be made again with "
            f"another {path[0]!r}; vary the whole part instead."
        )
    if set(fields) != set(made_of) and fields[path[0]].metadata.get("table"):
        raise ValueError(
            f"over: {type(part).__name__} rearranges {path[0]!r} when it is made; vary the whole population instead."
        )
    arguments = {p: getattr(part, fields[p].name if p in fields else p) for p in made_of}
    arguments[path[0]] = _replace(arguments[path[0]], path[1:], value, name) if path[1:] else value
    kind: Any = type(part)
    return kind(**arguments)
