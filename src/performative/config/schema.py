"""The JSON Schema of an experiment file, for completion and checks in editors, from the signatures of the parts."""

import inspect
import typing
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from performative._version import __version__
from performative.config import registry
from performative.config.build import Argument, arguments, holds_array
from performative.config.registry import SLOTS, arms, functions, is_part, is_record, parts

Schema = dict[str, Any]

_NUMBERS: Schema = {"anyOf": [{"type": "number"}, {"type": "array"}, {"$ref": "#/definitions/array-file"}]}
_ARRAY_FILE: Schema = {
    "type": "object",
    "properties": {"file": {"type": "string", "pattern": r"\.npy$", "description": "NumPy file next to this one."}},
    "required": ["file"],
    "additionalProperties": False,
}
_PLAIN = {bool: {"type": "boolean"}, int: {"type": "integer"}, float: {"type": "number"}, str: {"type": "string"}}


def experiment_schema() -> Schema:
    """The schema of the files that `performative run`, `plan`, `design`, `certify` and `federation` read.

    It accepts what the loader accepts, except for deprecated keys; what only the loader can check, such as shapes, it
    leaves to the loader.
    """
    return _Writer().document()


class _Writer:
    """Collects one definition per slot while the tables are written."""

    def __init__(self) -> None:
        self.definitions: Schema = {"array-file": _ARRAY_FILE}

    def document(self) -> Schema:
        from performative._engine.checkpoint import Checkpoint
        from performative._engine.run import run
        from performative.design import design
        from performative.plan import Cost, plan
        from performative.privacy.promise import Privacy
        from performative.record import Record
        from performative.tables.members import MemberTables

        planned = self.table(plan, leave_out=("problem", "cost", "privacy"), optional=True)
        planned["properties"]["cost"] = self.table(Cost, module="participation")
        ran = self.table(run, leave_out=("problem", "algorithm", "privacy", "record", "checkpoint"), optional=True)
        solved = {"anyOf": [_NUMBERS, {"const": "solve"}]}
        ran["properties"]["record"] = self.table(Record)
        ran["properties"]["record"]["properties"] |= {"stable": solved, "optimal": solved}
        folder = self.table(Checkpoint, leave_out=("resume",))
        ran["properties"]["checkpoint"] = {"anyOf": [{"type": "string"}, folder]}
        tables = {
            "title": {"type": "string"},
            "problem": self._problem(),
            "algorithm": self._algorithm(),
            "run": ran,
            "privacy": self.table(Privacy),
            "plan": planned,
            "design": self.table(design, leave_out=("source",), optional=True),
            "data": self.table(MemberTables),
            "federation": {"type": "object"},
            "audit": {"type": "object"},
        }
        return {
            "$schema": "http://json-schema.org/draft-07/schema#",
            "title": f"performative {__version__}: an experiment",
            "type": "object",
            "properties": tables,
            "required": ["problem"],
            "additionalProperties": False,
            "definitions": self.definitions,
        }

    def table(
        self, make: Callable[..., Any], *, module: str = "", leave_out: Sequence[str] = (), optional: bool = False,
        rest: Callable[..., Any] | None = None,
    ) -> Schema:  # fmt: skip
        """A table whose entries are the arguments of `make`."""
        known = {n: a for n, a in arguments(make, rest).items() if n not in leave_out}
        needed = [] if optional else [name for name, argument in known.items() if argument.required]
        return {
            "type": "object",
            "properties": {name: self._entry(name, argument, module) for name, argument in known.items()},
            "required": needed,
            "additionalProperties": False,
        } | _described(make)

    def _entry(self, name: str, argument: Argument, module: str) -> Schema:
        module = SLOTS.get(name, module)
        if name in ("metrics", "callbacks"):
            return {"type": ["array", "object"]}
        kinds = arms(argument.annotation)
        if module and (Any in kinds or any(is_part(kind) for kind in kinds)):
            numbers = Any in kinds or any(holds_array(kind) or kind in _PLAIN for kind in kinds)
            return self._part(module, numbers, any(is_record(kind) for kind in kinds))
        if Any in kinds or any(is_part(kind) or is_record(kind) for kind in kinds):
            return {}
        written = [_plain(kind) for kind in kinds if kind is not type(None)]
        return written[0] if len(written) == 1 else {"anyOf": written}

    def _part(self, module: str, numbers: bool, records: bool) -> Schema:
        """A part by its bare name, or as a table with its arguments; also a number, as in rate = 0.1."""
        key = module.replace(".", "-")
        if key not in self.definitions:
            self.definitions[key] = {}  # parts hold parts of the same slot
            self.definitions[key] = self._parts(module)
        allowed: list[Schema] = [{"$ref": f"#/definitions/{key}"}]
        if numbers:
            allowed.append(_NUMBERS)
        if records:
            allowed.append({"type": "object", "not": {"required": ["name"]}})
        allowed.append({"type": "array", "items": {"type": ["object", "array", "string", "number"]}})
        return {"anyOf": allowed}

    def _parts(self, module: str) -> Schema:
        makers = parts(module)
        words = functions(module, "theta") | functions(module, "theta", "z")
        bare = [name for name, make in makers.items() if not any(a.required for a in arguments(make).values())]
        names: list[Schema] = [{"enum": sorted({*bare, *words})}] if bare or words else []
        if module == SLOTS["deploy"]:
            names = [{"enum": ["step", "round", "never"]}]
        tables = [self._named(name, make, module) for name, make in sorted(makers.items())]
        tables += [_only_named(name) for name in sorted(words)]
        return {"anyOf": [*names, *tables]}

    def _named(self, name: str, make: Callable[..., Any], module: str) -> Schema:
        made = self.table(make, module=module)
        made["properties"] = {"name": {"const": name}, **made["properties"]}
        made["required"] = ["name", *made["required"]]
        return made

    def _problem(self) -> Schema:
        from performative.problem import Problem

        parts_of = self.table(Problem, leave_out=("columns",), optional=True)
        case, domain = self._part("cases", False, False), parts_of["properties"]["domain"]
        frame = self.table(Problem.from_frame, leave_out=("frame",))
        before = {
            "path": {"type": "string", "description": "CSV or Parquet file, or database table; one row per person."},
            "ignore": {"type": "array", "items": {"type": "string"}, "description": "Columns that are not used."},
            "prepare": {"type": "boolean", "description": "Text as 0/1 columns, missing numbers as the median."},
        }
        frame["properties"] = before | frame["properties"]
        frame["required"] = ["path", *frame["required"]]
        ready = [
            {"type": "object", "properties": {name: one, "domain": domain}, "required": [name],
             "additionalProperties": False}
            for name, one in (("case", case), ("frame", frame))
        ]  # fmt: skip
        return {"anyOf": [parts_of, *ready]}

    def _algorithm(self) -> Schema:
        from performative.algorithm import Algorithm

        made = []
        for name, make in sorted(registry.recipes().items()):
            one = self.table(make, rest=Algorithm)
            one["properties"] = {"recipe": {"const": name}, **one["properties"]}
            one["required"] = ["recipe", *one["required"]]
            made.append(one)
        return {"anyOf": made}


def _only_named(name: str) -> Schema:
    return {"type": "object", "properties": {"name": {"const": name}}, "required": ["name"],
            "additionalProperties": False}  # fmt: skip


def _described(make: Callable[..., Any]) -> Schema:
    """The first sentence of a docstring, which an editor shows."""
    text = inspect.getdoc(make)
    return {"description": text.split("\n\n")[0].replace("\n", " ")} if text else {}


def _plain(kind: Any) -> Schema:
    if kind in _PLAIN:
        return _PLAIN[kind]
    if holds_array(kind):
        return _NUMBERS
    origin = typing.get_origin(kind)
    if origin is typing.Literal:
        return {"enum": list(typing.get_args(kind))}
    if isinstance(origin, type) and issubclass(origin, Sequence):
        return {"type": "array"}
    if isinstance(origin, type) and issubclass(origin, Mapping):
        return {"type": "object"}
    return {}
