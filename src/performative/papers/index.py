"""Every numbered statement of the papers: what it says, which function holds it, what was measured of it.

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
# What a statement of this kind leaves to be measured, where no row speaks of it.
_NOTHING_CLAIMED = {
    "Assumption": "an assumption; bounds name it where it is not met",
    "Definition": "a definition",
    "Algorithm": "an algorithm; what is claimed of it stands elsewhere",
}


@functools.cache
def statements() -> dict[str, dict[str, tuple[str, str, str]]]:
    """{paper: {number: (section, what it says, why it is not tested, or "")}}."""
    told = tomllib.loads((FOLDER / "statements.toml").read_text(encoding="utf-8"))
    return {paper: {number: (*cells, "")[:3] for number, cells in mine.items()} for paper, mine in told.items()}


def read(out: str | Path | None = None) -> list[dict[str, Any]]:
    """All statements, in the order of the papers.

    Args:
        out: The folder with results of your own runs, as for `ledger.read`.

    A statement has the worst verdict of the papers' claims that are about it.
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
            otherwise = "rows of our own speak of it" if about else nothing
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
