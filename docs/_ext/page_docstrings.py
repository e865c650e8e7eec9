"""Docstrings as reStructuredText for autodoc and napoleon: they are written to be read in a terminal.

Google's sections are napoleon's. Elsewhere a paragraph that is indented, or set in columns, is an equation or a table
and stays as it is; code stands in single backticks; `|x|`, `a * b` and `x_` are mathematics, not markup.
"""

import re

_SECTION = re.compile(r"(Args|Attributes|Returns|Yields|Raises|Warns|References|Notes?|Warnings?|See Also):$")
_LIST_EDGE = re.compile(r"^(?!- |  )(.+)\n(?=- )|^((?:- |  ).*)\n(?=[^\s-])", re.MULTILINE)
_NAMELESS = re.compile(r"<[^<>]* at 0x[0-9a-f]+>|<factory>")


def as_rst(docstring: str) -> str:
    written, in_section = [], False
    for paragraph in re.split(r"\n(?: *\n)+", docstring.strip("\n")):
        lines = paragraph.split("\n")
        in_section = bool(_SECTION.match(lines[0])) or (in_section and lines[0].startswith(" "))
        if in_section:
            written.append(_without_markup(paragraph))
        elif lines[0].startswith(" ") or _in_columns(lines):
            written += ["::", "\n".join(f"    {line}" for line in lines)]
        else:  # a list stands between empty lines
            written.append(_without_markup(_LIST_EDGE.sub(r"\g<0>\n", paragraph)))
    return "\n\n".join(written)


def short_signature(signature: str) -> str:
    """Defaults that have no name are three dots."""
    return _NAMELESS.sub("...", signature).replace("jaxlib._jax.", "")


def _in_columns(lines: list[str]) -> bool:
    return any(line.startswith("   ") for line in lines[1:]) or sum("  " in line.strip() for line in lines) > 1


def _without_markup(text: str) -> str:
    pieces = re.split(r"`+([^`]+)`+", text)
    pieces[::2] = [re.sub(r"[*|\\]|_(?!\w)", r"\\\g<0>", piece) for piece in pieces[::2]]
    pieces[1::2] = [rf"\ ``{piece}``\ " for piece in pieces[1::2]]
    return "".join(pieces)
