"""Convert docstrings, which are written for the terminal, to reStructuredText for autodoc and napoleon.

Google-style sections are left to napoleon. Elsewhere, an indented paragraph, or one in columns, is typeset if it can be
parsed as equations with certainty, and kept verbatim otherwise (tables, code). Code is in single backticks; `|x|`,
`a * b` and `x_` are mathematics, not markup.
"""

import inspect
import re
from typing import Any

from page_equations import typeset

_SECTION = re.compile(r"(Args|Attributes|Returns|Yields|Raises|Warns|References|Notes?|Warnings?|See Also):$")
_LIST_EDGE = re.compile(r"^(?!- |  )(.+)\n(?=- )|^((?:- |  ).*)\n(?=[^\s-])", re.MULTILINE)
_NAMELESS = re.compile(r"<[^<>]* at 0x[0-9a-f]+>|<factory>")


def as_rst(docstring: str, parameters: frozenset[str] = frozenset()) -> str:
    """The docstring as reStructuredText; `parameters` are names that it may mention."""
    written, in_section = [], False
    for paragraph in re.split(r"\n(?: *\n)+", docstring.strip("\n")):
        lines = paragraph.split("\n")
        in_section = bool(_SECTION.match(lines[0])) or (in_section and lines[0].startswith(" "))
        if in_section:
            written.append(_without_markup(paragraph))
        elif lines[0].startswith(" ") or _in_columns(lines):
            equations = typeset(paragraph, parameters)
            written += [equations] if equations else ["::", "\n".join(f"    {line}" for line in lines)]
        else:  # a list needs blank lines around it
            written.append(_without_markup(_LIST_EDGE.sub(r"\g<0>\n", paragraph)))
    return "\n\n".join(written)


def parameters(thing: Any) -> frozenset[str]:
    """The names of the parameters of a callable."""
    try:
        return frozenset(inspect.signature(thing).parameters)
    except (TypeError, ValueError):  # no function, or one without a signature
        return frozenset()


def short_signature(signature: str) -> str:
    """Abbreviate defaults without a readable repr to three dots."""
    return _NAMELESS.sub("...", signature).replace("jaxlib._jax.", "")


def _in_columns(lines: list[str]) -> bool:
    return any(line.startswith("   ") for line in lines[1:]) or sum("  " in line.strip() for line in lines) > 1


def _without_markup(text: str) -> str:
    pieces = re.split(r"`+([^`]+)`+", text)
    pieces[::2] = [re.sub(r"[*|\\]|_(?!\w)", r"\\\g<0>", piece) for piece in pieces[::2]]
    pieces[1::2] = [rf"\ ``{piece}``\ " for piece in pieces[1::2]]
    return "".join(pieces)
