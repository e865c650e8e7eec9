"""Findings for readers: lines of a terminal and HTML. (`Words.to_json` has them for programs.)"""

from collections.abc import Iterable
from html import escape
from typing import Any

from performative.findings import Finding, Words

_LOUD = "border: 2px solid #d1242f; border-left-width: 10px;"


def lines(findings: Iterable[Finding], words: Words) -> list[Any]:
    """One line of a terminal for each that is said, none twice; warnings are loud."""
    from rich.text import Text

    made = {}
    for one in findings:
        text = words.say(one)
        loud = [("WARNING ", "bold red"), (text, "bold")]
        made[text] = Text.assemble(*loud) if one.severity == "warning" else Text(text)
    return list(made.values())


def paragraphs(findings: Iterable[Finding], words: Words) -> str:
    """One HTML paragraph for each that is said, none twice."""
    return "".join(f"<p>{escape(text)}</p>" for text in dict.fromkeys(map(words.say, findings)) if text)


def alerts(findings: Iterable[Finding], words: Words) -> str:
    """One card for each, with its beginning in large."""
    return "\n".join(
        f'<section class="card" style="{_LOUD}" role="alert"><h2>Warning</h2>'
        f'<p class="answer">{escape(text.split(":")[0])}</p><p>{escape(text)}</p></section>'
        for text in dict.fromkeys(map(words.say, findings))
    )
