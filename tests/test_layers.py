"""Imports point one way: types <- parts <- engine <- recipes, solve <- certify <- plan, audit <- live <- cli."""

import ast
from pathlib import Path

import performative

ROOT = Path(performative.__file__).parent
# Lowest first. A module may import from its own layer and from those below.
LAYERS = [
    {"_deprecated", "_version", "types", "facts", "draws", "describe", "lazy", "files", "messages", "arguments"},
    {"errors", "plugins", "client_axis", "tables", "theory"},
    {"families", "reaction", "noise", "partition", "data", "networks"},
    {"clipping"},
    {
        "sampling", "losses", "schedules", "optimisers", "domains", "deploy", "batches",
        "populations", "estimators", "participation", "channels", "aggregators",
    },
    {"fitted", "scaling", "frames", "problem", "algorithm"},
    {"prepare", "record", "risk", "privacy"},
    {"bars", "callbacks", "engine", "history", "plotting"},
    {"recipes", "citations", "sweep", "compare", "scoreboard", "solve", "drift", "skew", "testing", "cases", "attack"},
    {"certify", "report"},
    {"plan", "audit"},
    {"config", "demo", "experiments"},
    {"live"},
    {"bench", "cli", "__main__"},
]  # fmt: skip
LEVEL = {name: level for level, names in enumerate(LAYERS) for name in names}
# The package's own face re-exports everything, so it stands above all.
FACE = "__init__"
# Experiments are written as a user would write them; citations look names up among all that is public.
USERS = {"citations", "experiments"}


def modules():
    """Each module with the top-level part of the package that it belongs to."""
    for path in sorted(ROOT.rglob("*.py")):
        relative = path.relative_to(ROOT)
        yield path, relative.parts[0].removesuffix(".py")


def imported(path):
    """Top-level parts of the package that a module imports, anywhere in it, with the line."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}:{node.lineno} imports relatively; say where from."
            names = (
                [f"{node.module}.{alias.name}" for alias in node.names]
                if node.module == "performative"
                else [node.module]
            )
        elif isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        else:
            continue
        for name in names:
            parts = name.split(".")
            if parts[0] == "performative":
                yield node.lineno, parts[1] if len(parts) > 1 else FACE


def only_checked(path):
    """Lines under `if TYPE_CHECKING:`, which never run."""
    lines = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING":
            lines |= {line for child in node.body for line in range(child.lineno, child.end_lineno + 1)}
    return lines


def test_every_module_has_a_layer():
    known = set(LEVEL) | {FACE}
    strange = sorted({owner for _, owner in modules()} - known)
    assert not strange, f"give {strange} a layer in LAYERS."


def test_no_import_runs_back_up():
    wrong = []
    for path, owner in modules():
        if owner == FACE:
            continue
        never_run = only_checked(path)
        for line, target in imported(path):
            if line in never_run or target == "__version__" or (target == FACE and asks_only_for_version(path)):
                continue
            if target == FACE and owner in USERS:
                continue
            if target not in LEVEL or LEVEL[target] > LEVEL[owner]:
                wrong.append(f"{path.relative_to(ROOT)}:{line}: {owner} imports {target}")
    assert not wrong, "\n".join(wrong)


def asks_only_for_version(path):
    """Whether all that is used of `import performative` is its version."""
    used = {
        node.attr
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == "performative"
    }
    return used == {"__version__"}


def test_theory_stands_alone():
    for path, owner in modules():
        if owner == "theory":
            above = {target for _, target in imported(path)} - {"theory", "types", "arguments", "messages"}
            assert not above, f"{path.name} imports {above}"


def test_types_imports_nothing_of_ours():
    assert not list(imported(ROOT / "types.py"))


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
