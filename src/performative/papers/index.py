"""Every numbered statement of the papers: what it says, which function implements it, and what was measured.

for row in index.read(): row["paper"], row["number"], row["says"], row["functions"], row["rows"], row["verdict"]
"""

import functools
import re
import tomllib
from pathlib import Path
from typing import Any

from performative.papers import ledger
from performative.papers.catalog import FOLDER
from performative.papers.claims import UNTESTED
from performative.theory.index import THEOREMS

# The key of a folder's paper in `theory`.
CITED = {
    "p_fedavg": "jin2024", "p_fedavg_preprint": "jin2023", "profl": "zheng2024", "pcsgd": "li2024",
    "heterogeneity": "joshi2023",
}  # fmt: skip
# Why a statement of this kind is not measured if no row tests it.
_NOTHING_CLAIMED = {
    "Assumption": "an assumption; bounds name it if it is violated",
    "Definition": "a definition",
    "Algorithm": "an algorithm; claims about it are listed elsewhere",
}


@functools.cache
def statements() -> dict[str, dict[str, tuple[str, str, str]]]:
    """{paper: {number: (section, what it says, why it is not tested, or "")}}."""
    told = tomllib.loads((FOLDER / "statements.toml").read_text(encoding="utf-8"))
    return {paper: {number: (*cells, "")[:3] for number, cells in mine.items()} for paper, mine in told.items()}


def read(out: str | Path | None = None) -> list[dict[str, Any]]:
    """Return all statements, in the order of the papers.

    Args:
        out: The folder with the results of your own runs, as for `ledger.read`.

    A statement gets the worst verdict among the papers' claims about it.
    """
    rows = ledger.read(out)
    found = []
    for paper, mine in statements().items():
        for number, (section, says, why) in mine.items():
            about = [row for row in rows if row["paper"] == paper and number in row["about"]]
            claims = ledger.distinct([row | {"statement": number} for row in about if row["kind"] == "paper"])
            functions = [
                one.where.replace(":", ".")
                for one in THEOREMS
                if one.paper == CITED[paper] and re.search(rf"{re.escape(number)}(?!\d)", one.number)
            ]
            nothing = why or _NOTHING_CLAIMED.get(number.split()[0], "")
            otherwise = "only our own rows test it" if about else nothing
            found.append({
                "paper": paper, "number": number, "section": section, "says": says, "functions": functions,
                "rows": [row["key"] for row in about], "verdict": claims[0]["verdict"] if claims else UNTESTED,
                "reason": _reason(claims, otherwise),
            })  # fmt: skip
    return found


def _reason(claims: list[dict[str, Any]], otherwise: str) -> str:
    """Why a statement is not tested."""
    if not claims:
        return otherwise
    return str(claims[0]["reason"]) if claims[0]["verdict"] == UNTESTED else ""
