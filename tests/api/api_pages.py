"""The pages of the API reference: their code blocks, and which page tells of which module.

python api_pages.py PAGE.md        runs its blocks in the current folder, as the site does
"""

import os
import re
import sys
from pathlib import Path

FOLDER = Path(__file__).parents[2] / "docs" / "api"
_BLOCK = re.compile(r"^```python(?P<info>[^\n]*)\n(?P<code>.*?)^```$", flags=re.MULTILINE | re.DOTALL)
# Module -> page. A name of the package's own face may stand on any page.
PAGES = {
    "": None,
    "aggregators": "aggregators",
    "algorithm": "problem",
    "attack": "attack",
    "audit": "audit",
    "batches": "batches",
    "callbacks": "record",
    "cases": "cases",
    "certify": "certify",
    "channels": "channels",
    "citations": "citations",
    "compare": "run",
    "config": "run",
    "data": "data",
    "deploy": "deploy",
    "domains": "deploy",
    "draws": "facts",
    "drift": "run",
    "engine": "engine",
    "estimators": "estimators",
    "experiments": "experiments",
    "facts": "facts",
    "families": "families",
    "history": "run",
    "live": "live",
    "losses": "losses",
    "networks": "networks",
    "optimisers": "optimisers",
    "participation": "participation",
    "partition": "partition",
    "plan": "certify",
    "plotting": "plotting",
    "populations": "populations",
    "populations.shares": "populations",
    "populations.shifts": "populations",
    "privacy": "privacy",
    "problem": "problem",
    "recipes": "recipes",
    "record": "record",
    "report": "report",
    "schedules": "schedules",
    "scoreboard": "scoreboard",
    "skew": "run",
    "solve": "solve",
    "sweep": "run",
    "tables": "networks",
    "testing": "testing",
    "theory": "theory",
    "types": "types",
}


def pages() -> list[Path]:
    return sorted(path for path in FOLDER.glob("*.md") if path.name != "index.md")


def blocks(page: Path) -> list[str]:
    """The code that the site executes, in order."""
    found = _BLOCK.finditer(page.read_text(encoding="utf-8"))
    return [one["code"] for one in found if "no-run" not in one["info"].split()]


def directives(page: Path) -> list[str]:
    """The objects whose docstrings stand on a page."""
    return re.findall(r"^::: performative\.(\S+)$", page.read_text(encoding="utf-8"), flags=re.MULTILINE)


def main(page: str) -> None:
    names: dict = {"__name__": "__main__"}
    for number, block in enumerate(blocks(Path(page))):
        exec(compile(block, f"{Path(page).name}, block {number}", "exec"), names)
    used = os.times()
    print(f"processor seconds: {used.user + used.system + used.children_user + used.children_system:.1f}")


if __name__ == "__main__":
    main(sys.argv[1])
