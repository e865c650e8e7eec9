"""Which function implements which numbered result of which paper.

    @numbered("jin2024", "Theorem 3.1", "E |theta_t - theta_PS|^2, all clients")
    def theorem_3_1(...): ...

    for row in THEOREMS: row.paper, row.number, row.function, row.says

Functions are marked with the results they implement; `THEOREMS` is collected from these marks, by paper and number.
"""

import ast
import dataclasses
import functools
import importlib
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, TypeVar

from performative._deprecated import OLD_PAPERS, new_paper

T = TypeVar("T", bound=Callable[..., Any])


class Paper(str):
    """The key of a paper, such as "jin2024". It also compares equal to the paper's former number."""

    __slots__ = ()
    __hash__ = str.__hash__

    def __eq__(self, other: object) -> bool:
        return str(self) == (new_paper(other) if isinstance(other, str) else other)

    def __ne__(self, other: object) -> bool:
        return not self == other


class Papers(dict[str, str]):
    """Key -> title; old keys work, too."""

    def __missing__(self, key: str) -> str:
        if key in OLD_PAPERS:
            return self[new_paper(key)]
        raise KeyError(key)


# By citation, in display order. Joshi's slides have no numbers: results are named by what is on the slide.
PAPERS = Papers(
    jin2024="Jin et al. 2024, P-FedAvg (AAAI)",
    jin2023="Jin et al. 2023, P-FedAvg (preprint)",
    zheng2024="Zheng et al. 2024, PROFL",
    li2024="Li, Yemini and Wai 2024, PCSGD and DiceSGD",
    joshi2023="Joshi, slides on heterogeneity",
)


@dataclasses.dataclass(frozen=True)
class Numbered:
    """One result. paper: a key of `PAPERS`; where: "module:name", or "module:Class.name"; says: what it bounds."""

    paper: str
    number: str
    where: str
    says: str

    def __post_init__(self) -> None:
        object.__setattr__(self, "paper", Paper(new_paper(self.paper)))

    @property
    def function(self) -> Any:
        """The function itself. Imported lazily, since one of them lives outside `theory`."""
        module, name = self.where.split(":")
        return functools.reduce(getattr, name.split("."), importlib.import_module(module))


def numbered(paper: str, number: str, says: str, /) -> Callable[[T], T]:
    """Mark a function, class or method as implementing a result; apply once per result.

    `collect` reads the marks without importing them, so the three are plain text.
    """
    if new_paper(paper) not in PAPERS:
        raise ValueError(f"numbered: there is no paper {paper!r} among {', '.join(PAPERS)}; add it to PAPERS first.")
    return lambda thing: thing


def collect(package: str) -> tuple[Numbered, ...]:
    """All marked results of a package, from all its modules.

    Read from the source: importing every module would take seconds, and one result needs the privacy accountant.
    """
    rows = []
    for folder in map(Path, importlib.import_module(package).__path__):
        for path in sorted(folder.rglob("*.py")):
            text = path.read_text(encoding="utf-8")
            if "@numbered(" in text:
                module = ".".join((package, *path.relative_to(folder).with_suffix("").parts))
                rows += [
                    Numbered(paper, number, f"{module}:{name}", says)
                    for name, (paper, number, says) in _marks(ast.parse(text), "")
                ]
    return tuple(sorted(rows, key=_place))


def _marks(tree: ast.Module | ast.ClassDef, prefix: str) -> Iterator[tuple[str, list[str]]]:
    """The marked objects with their marks, in source order."""
    for node in tree.body:
        if isinstance(node, (ast.FunctionDef, ast.ClassDef)):
            for mark in node.decorator_list:
                if isinstance(mark, ast.Call) and isinstance(mark.func, ast.Name) and mark.func.id == "numbered":
                    yield f"{prefix}{node.name}", [ast.literal_eval(argument) for argument in mark.args]
        if isinstance(node, ast.ClassDef):
            yield from _marks(node, f"{prefix}{node.name}.")


def _place(row: Numbered) -> tuple[Any, ...]:
    """Sort key of a result in its paper: 5.9 before 5.10, the appendix last; unnumbered ones in source order."""
    found = re.search(r"\b([A-Z]|\d+)\.(\d+)", row.number)
    chapter, count = found.groups() if found else ("", "0")
    return list(PAPERS).index(row.paper), chapter.isalpha(), chapter.zfill(2), int(count)


THEOREMS: tuple[Numbered, ...]


@functools.cache
def __getattr__(name: str) -> Any:
    """`THEOREMS`, collected on first access: this takes longer than the rest of the import."""
    if name == "THEOREMS":
        return collect("performative")
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
