"""Imports point one way: types <- parts <- engine <- recipes, solve <- certify <- plan, audit <- live <- cli."""

import ast
import functools
import graphlib
import importlib
import re
import sys
from pathlib import Path

import performative
from performative._base import checks, messages

ROOT = Path(performative.__file__).parent
PAGES = Path(__file__).parents[1] / "docs" / "api"
# Lowest first. A module may import from its own layer and from those below. What is named longest counts.
LAYERS = [
    {"_deprecated", "_version", "types", "draws", "_base", "facts"},
    {"findings", "theory", "_base.clipping"},
    {"families", "partition", "data", "networks", "paths", "tables.stored"},
    {
        "losses", "schedules", "optimizers", "domains", "deploy", "batches",
        "populations", "estimators", "participation", "channels", "aggregators", "sharing",
    },
    {"tables", "problem", "algorithm", "game"},
    {"record", "privacy", "callbacks"},
    {
        "_engine", "executors", "history", "plotting",
        # What a history asks of itself.
        "inference.alone", "inference.autoregression", "inference.batch_means", "inference.cautions",
        "inference.outcome", "inference.series",
    },
    {"recipes", "sweep", "compare", "scoreboard", "solve", "diagnostics", "testing", "cases", "privacy.attack"},
    {"certify", "report", "moments"},
    {"plan", "audit", "suite", "design", "watch", "sklearn", "assess"},
    {"inference"},
    {"config", "papers"},
    {"live"},
    {"cli", "__main__"},
]  # fmt: skip
LEVEL = {name: level for level, names in enumerate(LAYERS) for name in names}
# Figures of papers are written as a user would write them, on the package's face, which re-exports everything.
USERS = "performative.papers"


def path_of(module):
    """A module's file; None where there is no such module."""
    place = ROOT.joinpath(*module.split(".")[1:])
    found = [path for path in (place / "__init__.py", place.with_suffix(".py")) if path.exists()]
    return found[0] if found else None


def modules():
    """Each module's file, with its dotted name."""
    for path in sorted(ROOT.rglob("*.py")):
        parts = path.relative_to(ROOT).with_suffix("").parts
        yield path, ".".join(("performative", *(part for part in parts if part != "__init__")))


@functools.cache
def imported(path):
    """Modules of ours that a module imports, wherever and however: in functions, for types only, or by a string."""
    return tuple(_imported(path))


def _imported(path):
    tree = ast.parse(path.read_text())
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}:{node.lineno} imports relatively; say where from."
            names = [f"{node.module}.{alias.name}" for alias in node.names]
            names = [name if name.startswith("performative.") and path_of(name) else node.module for name in names]
        elif isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.Call) and ast.unparse(node.func).endswith(("import_module", "modules.get")):
            names = [one.value for one in node.args if isinstance(one, ast.Constant) and isinstance(one.value, str)]
        elif isinstance(node, ast.Subscript) and ast.unparse(node.value) == "sys.modules":
            names = [node.slice.value] if isinstance(node.slice, ast.Constant) else []
        else:
            continue
        for name in names:
            if name.split(".")[0] == "performative" and path_of(name):
                yield node.lineno, name


def layer(module):
    """The layer of a module, by the longest of its parents that is named."""
    parts = module.split(".")[1:]
    found = [LEVEL[".".join(parts[:size])] for size in range(len(parts), 0, -1) if ".".join(parts[:size]) in LEVEL]
    return found[0] if found else None


def test_every_module_has_a_layer():
    strange = [module for _, module in modules() if layer(module) is None and module != "performative"]
    assert not strange, f"give {strange} a layer in LAYERS."


def test_no_import_runs_back_up():
    wrong = []
    for path, module in modules():
        for line, target in imported(path):
            if module == "performative" or (target == "performative" and module.startswith(USERS)):
                continue
            if target == "performative" or layer(target) > layer(module):
                wrong.append(f"{path.relative_to(ROOT)}:{line}: {module} imports {target}")
    assert not wrong, "\n".join(wrong)


def test_no_imports_in_a_circle():
    """A package's `__init__` re-exports its modules, so it is what they may not import."""
    graph = {module: {target for _, target in imported(path)} - {module} for path, module in modules()}
    graph.pop("performative")
    try:
        graphlib.TopologicalSorter({one: goals - {"performative"} for one, goals in graph.items()}).prepare()
    except graphlib.CycleError as found:
        raise AssertionError(" -> ".join(found.args[1])) from None


def test_theory_stands_alone():
    for path, module in modules():
        if layer(module) == LEVEL["theory"] and module.startswith("performative.theory"):
            above = {
                name for _, name in imported(path) if not name.startswith(("performative.theory", "performative._"))
            }
            assert above <= {"performative.types"}, f"{path.name} imports {above}"


def test_types_imports_nothing_of_ours():
    assert not list(imported(ROOT / "types.py"))


def unexplained(root):
    """Modules of a folder that say nothing of what is public, or whose public names stand on no page of the reference.

    An attribute of the package proves nothing: whoever imports a submodule makes it one.
    """
    marks = re.findall(
        r"<!-- generate: entries ([\w. ]+) -->", "".join(page.read_text() for page in PAGES.glob("*.md"))
    )
    told = {module for mark in marks for module in mark.split()}
    strange = set()
    for path in root.glob("*.py"):
        if not path.stem.startswith("_"):
            public = getattr(importlib.import_module(f"performative.{path.stem}"), "__all__", ())
            on_face = bool(public) and set(public) <= set(performative.__all__)
            if not public or not (path.stem in told or on_face):
                strange.add(path.stem)
    return strange


def test_the_root_holds_what_users_import():
    """Private modules have a folder or an underscore; all others say what is public, and the reference shows it."""
    assert not unexplained(ROOT)


def test_a_private_module_in_the_root_is_found(tmp_path, monkeypatch):
    """One without `__all__`, and one without a page, though both are attributes of the package."""
    for name, module in (("bare", messages), ("untold", checks)):
        (tmp_path / f"{name}.py").touch()
        monkeypatch.setitem(sys.modules, f"performative.{name}", module)
        monkeypatch.setattr(performative, name, module, raising=False)
    assert unexplained(tmp_path) == {"bare", "untold"}


def test_no_module_is_a_drawer():
    assert not [path for path, _ in modules() if path.stem in {"utils", "util", "helpers", "misc", "common"}]


def test_modules_stay_short():
    limit = 400
    long = {
        str(path.relative_to(ROOT)): lines
        for path, _ in modules()
        if (lines := len(path.read_text().splitlines())) > limit
    }
    assert not long
