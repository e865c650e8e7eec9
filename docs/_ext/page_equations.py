"""Blocks of equations in docstrings, as lines of text and typeset formulas that can be broken on a narrow page."""

import itertools
import re
from collections.abc import Callable

from ascii_math import CONNECTIVES, Item, Unreadable, joined, read
from docutils.utils.math import MathError
from docutils.utils.math.latex2mathml import tex2mathml

_GAP = "\u2003\u2003"
_EXPECTATION, _STEPS = re.compile(r"\bE(?:[\[|]|_\{)"), re.compile(r"\dE\b|\bE *(?:[-+/=<>,;)^]|$)", re.MULTILINE)
_SIGN = r"(?:[-+=<>~/*]|<=|>=|->|<-)"
_SIGN_FIRST, _SIGN_LAST = re.compile(rf"{_SIGN}(?: |$)"), re.compile(rf"(?:^| ){_SIGN}$")
# A line, or a block of several, with more words than this share is a text or a table, not an equation.
_MOST_WORDS, _MOST_WORDS_OF_SEVERAL = 0.85, 0.6
_RELATIONS = ("relation", "membership")
_CITATION = re.compile(r"\((?=[^()]*(?:\b(?:19|20)\d\d\b|\bEq\. ))[^()`*|_]*\)")


def typeset(block: str, parameters: frozenset[str] = frozenset()) -> str | None:
    """A block as reStructuredText; None if some of it cannot be read with certainty, or is not an equation.

    parameters: Names of the parameters of the documented function.
    """
    lines = _lines(block)
    if any(_goes_on(*pair) for pair in itertools.pairwise(lines)):
        return None
    margin = min(len(line) - len(line.lstrip()) for line in lines)
    expectations = bool(_EXPECTATION.search(block)) and not _STEPS.search(block)
    try:
        rows = [[_read(part, parameters, expectations) for part in _parts(line)] for line in lines]
        if not _is_equation(rows):
            return None
        written = [_GAP.join(map(_written, row)) for row in rows]
    except (Unreadable, MathError):
        return None
    indents = ["  " if len(line) - len(line.lstrip()) > margin else "" for line in lines]
    told = "\n".join(f"   | {indent}{line}" for indent, line in zip(["", *indents[1:]], written, strict=True))
    return f".. container:: equations\n\n{told}"


def in_a_table(text: str, otherwise: Callable[[str], str]) -> str:
    """A short text with formulas, as Markdown for the cell of a table; `otherwise` shows words and what is not read."""
    try:
        pieces = _pieces(read(text))
        shown = [otherwise(_prose(piece)) if prose else f"${_tex(piece)}$" for prose, piece in pieces]
    except (Unreadable, MathError):
        return otherwise(text)
    return " ".join(shown).replace(r"\left|", r"\left\vert").replace(r"\right|", r"\right\vert")


def _lines(block: str) -> list[str]:
    """The lines of a block; one that ends within brackets goes on with the next."""
    lines: list[str] = []
    for line in filter(str.strip, block.split("\n")):
        if lines and _opened(lines[-1]):
            lines[-1] += f" {line.strip()}"
        else:
            lines.append(line)
    return lines


def _goes_on(line: str, following: str) -> bool:
    """Whether a sentence goes on in the next line, which is indented further."""
    inner = len(following) - len(following.lstrip()) > len(line) - len(line.lstrip())
    return inner and line.split()[-1] in CONNECTIVES


def _parts(line: str) -> list[str]:
    """What stands between wide gaps. A sign at an end goes on with its neighbor, and so does an open bracket."""
    parts: list[str] = []
    for part in re.split(r" {2,}", line.strip()):
        if parts and (_SIGN_FIRST.match(part) or _SIGN_LAST.search(parts[-1]) or _opened(parts[-1])):
            parts[-1] += f" {part}"
        else:
            parts.append(part)
    return parts


def _opened(text: str) -> bool:
    return sum(map(text.count, "([{")) > sum(map(text.count, ")]}"))


def _read(part: str, parameters: frozenset[str], expectations: bool) -> list[Item]:
    if _CITATION.fullmatch(part):
        return [Item("word", "", True, part)]
    return read(part, parameters, expectations)


def _is_equation(rows: list[list[list[Item]]]) -> bool:
    """Whether every line has something to typeset, and a block of several is no table of texts."""
    lines = [[item for part in row for item in part] for row in rows]
    items = [item for line in lines for item in line]
    words = sum(item.kind in ("word", "code") for item in items)
    most = _MOST_WORDS if len(rows) == 1 else _MOST_WORDS_OF_SEVERAL
    return words <= most * len(items) and all(any(map(_is_formula, line)) for line in lines)


def _is_formula(item: Item) -> bool:
    scripts = item.kind == "operand" and bool(re.search(r"[_^(|\[]", item.tex))
    return scripts or item.kind in ("relation", "membership", "sign", "prefix", "function")


def _pieces(items: list[Item]) -> list[tuple[bool, list[Item]]]:
    """A formula in pieces, each prose or not: a line may break after a comma, around words, and before a relation.

    What stands left of a first relation stays with it.
    """
    pieces: list[tuple[bool, list[Item]]] = []
    for at, item in enumerate(items):
        prose = _is_prose(items, at)
        begins = at == 0 or (
            item.text not in (",", ";", ":") and (items[at - 1].text in (",", ";") or prose != _is_prose(items, at - 1))
        )
        again = item.kind in _RELATIONS and pieces and any(one.kind in _RELATIONS for one in pieces[-1][1])
        if begins or again:
            pieces.append((prose, []))
        pieces[-1][1].append(item)
    return pieces


def _written(items: list[Item]) -> str:
    told = ""
    for prose, piece in _pieces(items):
        # A relation has spaces of its own, and a possessive needs none.
        relation = piece[0].kind in _RELATIONS and told.endswith("`")
        space = "\\ \u200b\\ " if relation else "\\ " if piece[0].text == "'s" else " "
        told += (space if told else "") + (_prose(piece) if prose else f":math:`{_tex(piece)}`")
    return told


def _is_prose(items: list[Item], at: int) -> bool:
    """Whether a word is part of a sentence: it stands beside another, or connects."""
    item = items[at]
    if item.kind != "word":
        return item.kind == "code"
    before, after = items[at - 1] if at else None, items[at + 1] if at + 1 < len(items) else None
    follows = after is not None and after.kind == "word" and after.text not in CONNECTIVES
    if before is not None and before.kind in ("sign", "prefix") and item.text not in CONNECTIVES and not follows:
        return False
    beside = any(one is not None and one.kind in ("word", "code") for one in (before, after))
    return item.text in CONNECTIVES or beside or len(items) == 1 or " " in item.text


def _tex(piece: list[Item]) -> str:
    tex = joined(piece)
    tex2mathml(tex)  # refuses what it cannot show
    return tex


def _prose(piece: list[Item]) -> str:
    told = ""
    for item in piece:
        shown = f"``{item.text.strip('`')}``" if item.kind == "code" else item.text
        joint = "\\ " if told.endswith("`") else ""
        told += joint + shown if item.kind == "mark" else (" " if told else "") + shown
    return told
