"""Formulas as MathML, which browsers draw by themselves: no script, no font and no image is loaded."""

import html
import re
from xml.etree import ElementTree

from docutils import nodes
from docutils.utils.math import MathError
from docutils.utils.math.latex2mathml import tex2mathml
from sphinx.errors import SphinxError

_ACCENTS = {"\u02c9": "\u00af", "\u02c6": "\u02c6", "~": "~"}  # as docutils has them, and as they are shown


def show_inline(translator, node: nodes.math) -> None:
    translator.body.append(f'<span class="math">{_mathml(node, block=False)}</span>')
    raise nodes.SkipNode


def show_block(translator, node: nodes.math_block) -> None:
    """A formula of its own; one that is wider than the page can be scrolled."""
    translator.body.append(f'<div class="math" tabindex="0">{_mathml(node, block=True)}</div>\n')
    raise nodes.SkipNode


def to_mathml(tex: str, block: bool = False) -> str:
    """MathML of a formula, with two corrections of what docutils makes of it.

    An accented letter with a subscript would get it below. A bar as an accent lies on its letter, in fonts that are not
    made for mathematics: as an overscript it keeps its distance.
    """
    named = re.sub(r"&(?!lt;|gt;|amp;|quot;)\w+;", lambda entity: html.unescape(entity[0]), tex2mathml(tex, block))
    root = ElementTree.fromstring(named.replace(' xmlns="http://www.w3.org/1998/Math/MathML"', "", 1))
    for element in list(root.iter("munderover")):
        letter, below, above = element
        if above.text in _ACCENTS:
            over = ElementTree.Element("mover", {"accent": "true"})
            over.extend([letter, above])
            element.tag, element[:] = "msub", [over, below]
    for element in root.iter("mover"):
        if (sign := element[1]).text in _ACCENTS:
            if sign.text == "\u02c9":
                element.attrib.pop("accent", None)
            sign.text = _ACCENTS[sign.text]
    return ElementTree.tostring(root, encoding="unicode")


def _mathml(node: nodes.Element, block: bool) -> str:
    try:
        return to_mathml(node.astext(), block)
    except MathError as error:
        place = f"{node.source}:{node.line}"
        raise SphinxError(f"{place}: the formula {node.astext()!r} cannot be shown: {error}") from error


def setup(app) -> dict[str, bool]:
    app.add_html_math_renderer("mathml", inline_renderers=(show_inline, None), block_renderers=(show_block, None))
    return {"parallel_read_safe": True, "parallel_write_safe": True}
