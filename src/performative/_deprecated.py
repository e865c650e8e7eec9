"""Deprecated public names: each still works, warns with its new name, and is listed only here."""

import difflib
import functools
import importlib
import importlib.abc
import importlib.machinery
import inspect
import sys
import types
import warnings
from collections.abc import Callable
from typing import Any, TypeVar, cast

# Modules that moved. `import performative.attack` still works.
OLD_MODULES = {
    "performative.attack": "performative.privacy.attack",
    "performative.citations": "performative.papers.citations",
    "performative.engine": "performative.executors",
    "performative.errors": "performative._base.checks",
    "performative.experiments": "performative.papers",
    "performative.messages": "performative._base.messages",
    "performative.optimisers": "performative.optimizers",
}
# Not theory.p_fedavg: importing such a module would shadow the function `pf.theory.p_fedavg`.
OLD_MODULES |= {
    f"performative.theory.{name}": "performative.theory"
    for name in (
        "assumptions", "clipped", "clipped_quadratic", "clipped_tuning", "dice", "heterogeneity", "p_fedavg_appendix",
        "profl", "profl_constants", "profl_lemmas", "profl_pricing", "profl_size", "quadratic_points", "rates",
        "selection", "stability", "time_to_accuracy",
    )
}  # fmt: skip
# Module -> old name -> the new name, as a full dotted path.
OLD_NAMES = {
    "performative.channels": {"Quantised": "performative.channels.Quantized"},
    "performative.optimizers": {
        "AbstractOptimiser": "performative.optimizers.AbstractOptimizer",
        "as_optimiser": "performative.optimizers.as_optimizer",
    },
    "performative.privacy.attack": {
        "Finding": "performative.privacy.attack.AttackResult",
        "audit": "performative.privacy.attack.estimate_epsilon",
        "neighbours": "performative.privacy.attack.neighbors",
    },
    "performative.papers": {"catalogue": "performative.papers.catalog"},
    "performative.sharing": {
        "Learnt": "performative.sharing.LearnedGroups",
        "LearntGroups": "performative.sharing.LearnedGroups",
        "Pull": "performative.sharing.Ditto",
    },
    "performative.theory": dict.fromkeys(
        ("Choice", "ErrorBound", "GradientBound", "PointGap", "RiskBound", "SelectionBound"),
        "performative.theory.Bound",
    ),
}
# Function -> old keyword -> the new one.
OLD_KEYWORDS = {
    "performative.cases.reacting.house_pricing": {"centre": "center"},
    "performative.estimators.performative.Performative.__init__": {"estimate": "family"},
    "performative.problem.Problem.from_frame": {"standardise": "standardize"},
}
# Class -> old attribute -> the new one.
OLD_ATTRIBUTES = {
    "performative.data.catalog.DataSet": {"licence": "license"},
    "performative.data.tables.Table": {"licence": "license"},
    "performative.privacy.accounting.Spending": {"neighbours": "neighbors"},
}
# Argument -> old value -> the new one.
OLD_VALUES = {"absent": {"moves": "reacts"}, "missing": {"labelled": "labeled"}}
# Hooks of custom parts: old name -> new name.
OLD_HOOKS = {
    "before_race": "invited",
    "counts": "totals",
    "drift": "world_metrics",
    "everyone": "is_full",
    "nodes": "quadrature",
    "nodes_within": "quadrature_within",
    "race": "first_k",
    "unit_step": "step_response",
    "wants_loss": "requires_loss",
}
# Hooks of populations that used to take (theta, loss) instead of a scene -> their old arguments.
OLD_SIGNATURES = {"init": ("theta", "loss"), "deploy": ("world", "theta", "loss"), "settle": ("theta", "loss")}
# Records of a history.
OLD_RECORDS = {"broken_updates": "nonfinite_updates"}
# Fields and terms of `pf.theory.Bound`, formerly one record per theorem.
OLD_FIELDS = {"bound": "total", "optimisation": "transient"}
# Papers of `pf.theory.THEOREMS`, formerly numbered.
OLD_PAPERS = {"000": "jin2024", "001": "zheng2024", "002": "li2024", "003": "jin2023", "004": "joshi2023"}

F = TypeVar("F", bound=Callable[..., Any])
C = TypeVar("C", bound=type)


def old_name(module: str, name: str) -> object:
    """A module's `__getattr__` for unknown names: the object under its new name, or an AttributeError."""
    old = f"{module}.{name}"
    new = OLD_MODULES.get(old) or OLD_NAMES.get(module, {}).get(name)
    if new is None:
        raise AttributeError(f"module {module!r} has no attribute {name!r}{_near(module, name)}")
    warnings.warn(f"{old} is now {new}.", DeprecationWarning, stacklevel=3)
    return find(new)


def _near(module: str, name: str) -> str:
    """ "; did you mean X?" if a public name is close."""
    known = {one.lower().replace("_", ""): one for one in dir(sys.modules[module]) if not one.startswith("_")}
    close = [] if name.startswith("_") else difflib.get_close_matches(name.lower().replace("_", ""), known, 1, 0.75)
    return f"; did you mean {known[close[0]]!r}?" if close else ""


def find(path: str) -> object:
    """The object at a dotted path: a module, or one of its attributes."""
    try:
        return importlib.import_module(path)
    except ModuleNotFoundError:
        owner, _, name = path.rpartition(".")
        return getattr(find(owner), name)


def old_keywords(function: F) -> F:
    """Wrap a function to accept its old keywords."""
    names = OLD_KEYWORDS[f"{function.__module__}.{function.__qualname__}"]

    @functools.wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        for old in names.keys() & kwargs.keys():
            new = names[old]
            if new in kwargs:
                raise TypeError(f"{function.__qualname__}: {old}= is now {new}=; pass only the new one.")
            warnings.warn(f"{function.__qualname__}: {old}= is now {new}=.", DeprecationWarning, stacklevel=2)
            kwargs[new] = kwargs.pop(old)
        return function(*args, **kwargs)

    return cast(F, call)


def old_attributes(kind: C) -> C:
    """Decorate a class to keep its old attributes."""
    for old, new in OLD_ATTRIBUTES[f"{kind.__module__}.{kind.__qualname__}"].items():

        def get(self: Any, old: str = old, new: str = new) -> Any:
            warnings.warn(f"{kind.__qualname__}.{old} is now {new}.", DeprecationWarning, stacklevel=2)
            return getattr(self, new)

        setattr(kind, old, property(get))
    return kind


def new_value(argument: str, value: Any) -> Any:
    """Translate an old argument value to the current one."""
    new = OLD_VALUES[argument].get(value) if isinstance(value, str) else None
    if new is None:
        return value
    warnings.warn(f"{argument}={value!r} is now {argument}={new!r}.", DeprecationWarning, stacklevel=3)
    return new


def new_record(name: str) -> str:
    """The current name of a record."""
    new = OLD_RECORDS.get(name)
    if new is None:
        return name
    warnings.warn(f"the record {name!r} is now {new!r}.", DeprecationWarning, stacklevel=3)
    return new


def rename_hooks(kind: type) -> None:
    """Alias old hooks that a class defines to their new names."""
    for old, new in OLD_HOOKS.items():
        if old in vars(kind) and new not in vars(kind) and hasattr(kind, new):
            warnings.warn(f"{kind.__qualname__}.{old} is now {new}.", DeprecationWarning, stacklevel=4)
            setattr(kind, new, vars(kind)[old])


def take_scenes(kind: type) -> None:
    """Wrap old hooks that take (theta, loss) to unpack them from the scene."""
    old = [name for name, arguments in OLD_SIGNATURES.items() if _arguments(vars(kind).get(name)) == arguments]
    for name in old:
        setattr(kind, name, _handed_a_scene(vars(kind)[name], len(OLD_SIGNATURES[name])))
    if old:
        new = "init(scene), deploy(world, scene), settle(scene), with scene.theta and scene.loss"
        told = f"{kind.__qualname__}: {', '.join(old)} now take a scene: {new}."
        warnings.warn(told, DeprecationWarning, stacklevel=4)


def _handed_a_scene(own: Callable[..., Any], count: int) -> Callable[..., Any]:
    @functools.wraps(own)
    def hook(self: Any, *given: Any) -> Any:
        if len(given) == count:  # called by its own class
            return own(self, *given)
        *before, scene = given
        return own(self, *before, scene.theta, scene.loss)

    return hook


def _arguments(function: Any) -> tuple[str, ...] | None:
    return None if function is None else tuple(inspect.signature(function).parameters)[1:]


def new_paper(key: str, stacklevel: int = 2) -> str:
    """The current key of a paper, also for an old key."""
    if key not in OLD_PAPERS:
        return key
    warnings.warn(f"paper {key!r} is now {OLD_PAPERS[key]!r}.", DeprecationWarning, stacklevel=stacklevel + 1)
    return OLD_PAPERS[key]


class OldModules(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Redirect imports of moved modules to their new location."""

    def find_spec(
        self,
        fullname: str,
        path: Any,  # not a sequence for namespace packages
        target: types.ModuleType | None = None,
    ) -> importlib.machinery.ModuleSpec | None:
        return importlib.machinery.ModuleSpec(fullname, self) if fullname in OLD_MODULES else None

    def create_module(self, spec: importlib.machinery.ModuleSpec) -> types.ModuleType:
        new = OLD_MODULES[spec.name]
        warnings.warn(f"{spec.name} is now {new}.", DeprecationWarning, stacklevel=2)
        return types.ModuleType(spec.name)

    def exec_module(self, module: types.ModuleType) -> None:
        module.__dict__.update(vars(importlib.import_module(OLD_MODULES[module.__name__])))


if not any(isinstance(finder, OldModules) for finder in sys.meta_path):
    sys.meta_path.append(OldModules())
