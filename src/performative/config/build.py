"""Build parts from the tables of a file, guided by the signatures of their constructors."""

import dataclasses
import inspect
import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from performative._base import plugins
from performative._base.checks import nearest
from performative._engine.metrics import is_own
from performative.config import registry
from performative.config.errors import ConfigError, blame, shown
from performative.config.registry import SLOTS, arms, functions, is_module, is_part, is_record, parts


@dataclasses.dataclass(frozen=True)
class Argument:
    """One argument of a call: its annotation, and whether it is required."""

    annotation: Any
    required: bool


def arguments(call: Callable[..., Any], rest: Callable[..., Any] | None = None) -> dict[str, Argument]:
    """Arguments by name. If the call takes any keyword (`**parts`), those of `rest` are added.

    If a converter hides an annotation, that of the field is used.
    """
    fields = {f.name: f.type for f in dataclasses.fields(call)} if dataclasses.is_dataclass(call) else {}
    found: dict[str, Argument] = {}
    lent = False
    for name, parameter in inspect.signature(call).parameters.items():
        if parameter.kind is parameter.VAR_KEYWORD:
            lent = True
        elif parameter.kind is not parameter.VAR_POSITIONAL:
            hint = parameter.annotation
            if hint in (object, parameter.empty) or isinstance(hint, str) or Any in arms(hint):
                hint = fields.get(name, Any)
            found[name] = Argument(Any if isinstance(hint, str) else hint, parameter.default is parameter.empty)
    if lent and rest is not None:
        found = {**{n: Argument(a.annotation, False) for n, a in arguments(rest).items()}, **found}
    return found


class Builder:
    """Build parts from the contents of a TOML file. Data files are looked up in `folder`."""

    def __init__(self, folder: Path):
        self.folder = folder

    def call(self, make: Callable[..., Any], table: Mapping[str, Any], key: str, **options: Any) -> Any:
        """Call `make` with a table's entries as keywords, each converted as the signature requires."""
        given = self.keywords(make, table, key, **options)
        with blame(key, given):
            return make(**given)

    def keywords(
        self, make: Callable[..., Any], table: Mapping[str, Any], key: str, *,
        rest: Callable[..., Any] | None = None, module: str = "", leave_out: tuple[str, ...] = (), free: bool = False,
    ) -> dict[str, Any]:  # fmt: skip
        """The keywords of that call. Missing ones raise, and so do unknown ones unless any is allowed (`free`)."""
        known = {n: a for n, a in arguments(make, rest).items() if n not in leave_out}
        if free and inspect.Parameter.VAR_KEYWORD in {p.kind for p in inspect.signature(make).parameters.values()}:
            known = {**{name: Argument(Any, False) for name in table}, **known}
        for name in table:
            if name not in known:
                hint = nearest(name, known) if known else f" {make.__name__} takes no arguments."
                raise ConfigError(f"unknown key {name!r}.{hint}", key)
        missing = [name for name, argument in known.items() if argument.required and name not in table]
        if missing:
            owner = "" if make.__name__ == key else f"{make.__name__} "
            raise ConfigError(f"{owner}needs {' and '.join(missing)}; add {missing[0]} = ...", key)
        return {
            name: self.value(value, known[name].annotation, f"{key}.{name}", SLOTS.get(name, module))
            for name, value in table.items()
        }

    def value(self, value: Any, annotation: Any, key: str, module: str) -> Any:
        """One entry, converted. `module` is where names of parts are looked up."""
        if module == SLOTS["metrics"]:
            return self._metrics(value, key)
        if module == SLOTS["callbacks"]:
            return self._callbacks(value, key)
        kinds = arms(annotation)
        if isinstance(value, dict):
            return self._table(value, kinds, key, module)
        if isinstance(value, list) and any(isinstance(entry, dict) for entry in value):
            return [self.value(entry, Any, f"{key}[{i}]", module) for i, entry in enumerate(value)]
        takes_part = any(is_part(kind) for kind in kinds)
        if isinstance(value, str) and (takes_part or Any in kinds):
            return self._name(value, kinds, key, module)
        if Any in kinds:  # a number may stand for a part, as in rate = 0.1: the callee decides
            return _numbers(value, key, free=True) if isinstance(value, list) else value
        if any(holds_array(kind) for kind in kinds):
            return _numbers(value, key)
        if takes_part:
            raise ConfigError(f"expected {_wanted(kinds)}; got {shown(value)}.", key)
        return _plain(value, annotation, key)

    def _table(self, table: dict[str, Any], kinds: tuple[Any, ...], key: str, module: str) -> Any:
        if set(table) == {"file"} and isinstance(table["file"], str):
            return self._file(table["file"], key)
        if "name" not in table:
            direct = [kind for kind in kinds if is_record(kind)]
            if len(direct) == 1:
                return self.call(direct[0], table, key, module=module)
            if Any in kinds and not module:
                return {name: self.value(entry, Any, f"{key}.{name}", "") for name, entry in table.items()}
            raise ConfigError(f"a part needs name = ...; got {shown(table)}.", key)
        name = table["name"]
        if not isinstance(name, str):
            raise ConfigError(f"expected the name of a part; got {shown(name)}.", f"{key}.name")
        make = self._find(name, kinds, f"{key}.name", module)
        given = {k: v for k, v in table.items() if k != "name"}
        if not _is_factory(make, module):
            if given:
                raise ConfigError(f"{name} takes no arguments; drop {', '.join(given)}.", key)
            return make
        return self.call(make, given, key, module=module)

    def _name(self, name: str, kinds: tuple[Any, ...], key: str, module: str) -> Any:
        """A part without arguments, by its bare name; words such as deploy = "step" are passed on."""
        if module == SLOTS["deploy"]:
            return name
        if not module:
            if Any in kinds:
                return name
            raise ConfigError(f"expected {_wanted(kinds)}; got {name!r}.", key)
        make = self._find(name, kinds, key, module)
        return self.call(make, {}, key, module=module) if _is_factory(make, module) else make

    def _find(self, name: str, kinds: tuple[Any, ...], key: str, module: str) -> Callable[..., Any]:
        if module == SLOTS["deploy"]:
            kinds = (Any,)  # the field contains the converter's output
        known = parts(module, kinds) if module else {}
        known = known | (functions(module, "theta", "z") if module == SLOTS["loss"] else {})
        if name in known:
            return known[name]
        if Any in kinds and (found := functions(module, "theta").get(name) if module else None) is not None:
            return found
        if not known:
            raise ConfigError(f"no part is allowed here; got {name!r}.", key)
        # If a lowercase factory builds the class of the same name, suggest only the factory.
        worth = [n for n in known if n.lower() == n or n.lower() not in known]
        slot = next(slot for slot, where in SLOTS.items() if where == module)
        raise ConfigError(f"there is no {slot} {name!r}.{nearest(name, worth)}", key)

    def _metrics(self, value: Any, key: str) -> dict[str, Any]:
        """{recorded name: metric}, from a list of names, or from a table that renames them."""
        known = plugins.load("metrics")
        if isinstance(value, dict):
            return {name: self._offered(entry, known, "metric", f"{key}.{name}")[1] for name, entry in value.items()}
        if not isinstance(value, list):
            raise ConfigError(f'expected a list such as ["gini"], or a table {{ skew = "gini" }}; got {value!r}.', key)
        made: dict[str, Any] = {}
        for place, entry in enumerate(value):
            name, metric = self._offered(entry, known, "metric", f"{key}[{place}]")
            if name in made:
                raise ConfigError(f"{name!r} is listed twice; use a table to give each its own name.", key)
            made[name] = metric
        return made

    def _callbacks(self, value: Any, key: str) -> list[Any]:
        known, made = registry.callbacks(), []
        if not isinstance(value, list):
            raise ConfigError(f'expected a list such as ["Progress"]; got {shown(value)}.', key)
        for place, entry in enumerate(value):
            name, one = self._offered(entry, known, "callback", f"{key}[{place}]")
            if not callable(one):
                raise ConfigError(f"{name} must return a callable; it returned {one!r}.", f"{key}[{place}]")
            made.append(one)
        return made

    def _offered(self, entry: Any, known: Mapping[str, Any], kind: str, key: str) -> tuple[str, Any]:
        """A metric or callback with its name: built from a table's options, or used as is."""
        table = entry if isinstance(entry, dict) else {"name": entry}
        name, given = table.get("name"), {k: v for k, v in table.items() if k != "name"}
        if not isinstance(name, str):
            raise ConfigError(f'expected a name, or a table such as {{ name = "..." }}; got {shown(entry)}.', key)
        if name not in known:
            if kind == "metric" and is_own(name):
                raise ConfigError(f"{name!r} is always recorded; remove it.", key)
            hint = nearest(name, known) if known else f" No installed package provides any (performative.{kind}s)."
            raise ConfigError(f"there is no {kind} {name!r}.{hint}", key)
        if not registry.is_made(known[name]):
            if given:
                raise ConfigError(f"{name} takes no arguments; drop {', '.join(given)}.", key)
            return name, known[name]
        with blame(key, kinds=(ModuleNotFoundError,)):  # a tracker says which package it needs
            return name, self.call(known[name], given, key, free=True)

    def _file(self, name: str, key: str) -> np.ndarray:
        path = self.folder / name
        if path.suffix != ".npy":
            raise ConfigError(f"arrays are read from .npy files; got {name!r}.", f"{key}.file")
        if not path.is_file():
            raise ConfigError(f"there is no file {path}.", f"{key}.file")
        with blame(f"{key}.file"):
            return np.load(path, allow_pickle=False)


def _is_factory(make: Callable[..., Any], module: str) -> bool:
    return any(make is known for known in parts(module).values())


def holds_array(kind: Any) -> bool:
    """jaxtyping's arrays, jax.Array, np.ndarray."""
    return hasattr(kind, "array_type") or getattr(kind, "__name__", "") in ("Array", "ndarray")


def _numbers(value: Any, key: str, free: bool = False) -> Any:
    """A number, or a rectangular list of numbers as an array. `free` lets other lists pass."""
    try:
        array = np.asarray(value)
    except ValueError:
        if free:
            return value
        raise ConfigError(f"expected rows of equal length; got {shown(value)}.", key) from None
    if array.dtype.kind not in "uif":
        if free:
            return value
        raise ConfigError(f"expected a number or a list of numbers; got {shown(value)}.", key)
    return value if array.ndim == 0 else array


def _plain(value: Any, annotation: Any, key: str) -> Any:
    """Integers, text, booleans: checked strictly by pydantic ("4" is not 4, true is not 1)."""
    import pydantic

    try:
        # As JSON, so a list is accepted as a tuple; strict otherwise.
        text = json.dumps(value, default=str)
        return pydantic.TypeAdapter(annotation).validate_json(text, strict=True)
    except pydantic.ValidationError:
        raise ConfigError(f"expected {_wanted(arms(annotation))}; got {shown(value)}.", key) from None


def _wanted(kinds: tuple[Any, ...]) -> str:
    words = {bool: "true or false", int: "a whole number", float: "a number", str: "text"}
    tables = [kind for kind in kinds if is_record(kind) and not is_module(kind)]
    # If a table can replace a function, as for a condition, no function can be named.
    kinds = tuple(kind for kind in kinds if not tables or is_module(kind) or not is_part(kind))
    said = [words.get(kind) or _describe(kind) for kind in kinds if kind is not type(None)]
    return " or ".join(dict.fromkeys(word for word in said if word)) or "nothing"


def _describe(kind: Any) -> str:
    if holds_array(kind):
        return "a number or a list of numbers"
    if is_record(kind) and not is_module(kind):
        return f"a table of {', '.join(field.name for field in dataclasses.fields(kind))}"
    if is_part(kind) and not is_module(kind):
        return "the name of a function"
    if is_module(kind):
        return f"a part ({kind.__name__.removeprefix('Abstract').lower()})"
    name = str(getattr(kind, "__origin__", kind))
    return "a list" if "tuple" in name or "list" in name else ""
