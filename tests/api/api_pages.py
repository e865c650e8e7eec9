"""The pages of the API reference: their code blocks, and which page tells of which module.

python api_pages.py PAGE.md        runs its blocks in the current folder, as the site does
"""

import os
import re
import sys
from pathlib import Path

FOLDER = Path(__file__).parents[2] / "docs" / "api"
sys.path.insert(0, str(FOLDER.parent / "_ext"))

from page_reference import complete, entries, modules, read  # noqa: E402

_BLOCK = re.compile(r"^```\{code-cell\} python\n(?::[^\n]*\n)*(?P<code>.*?)^```$", flags=re.MULTILINE | re.DOTALL)
# Module -> page, as the pages say. A name of the package's own face may stand on any page.
PAGES: dict[str, str | None] = {"": None, **modules()}


def blocks(page: Path) -> list[str]:
    """The code that the site executes, in order."""
    return [found["code"] for found in _BLOCK.finditer(complete(read(page)))]


def directives(page: Path) -> list[str]:
    """The objects whose docstrings stand on a page."""
    return entries(complete(read(page)))


def main(page: str) -> None:
    names: dict = {"__name__": "__main__"}
    for number, block in enumerate(blocks(Path(page))):
        exec(compile(block, f"{Path(page).name}, block {number}", "exec"), names)
    used = os.times()
    print(f"processor seconds: {used.user + used.system + used.children_user + used.children_system:.1f}")


if __name__ == "__main__":
    main(sys.argv[1])
