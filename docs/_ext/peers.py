"""Features of other libraries, judged by their public names: the only source of the README's table.

`python docs/_ext/peers.py NAME=FOLDER@VERSION ...` searches the source of packages again and rewrites peers.json;
`python docs/_ext/peers.py` alone writes the table into the README. A cell has a public class or function whose name
matches the row's pattern. An empty cell means only that none was found.
"""

import ast
import json
import re
import sys
from pathlib import Path
from typing import Any

FILE, PAGE = Path(__file__).with_suffix(".json"), Path(__file__).parents[2] / "README.md"
# The feature, the pattern of names, and this library's public name for it.
ROWS = {
    "data respond to the model": (r"performativ|strategic", "populations.Strategic"),
    "stable point": (r"stable_point|optimal_point", "stable_point"),
    "retraining": (r"^rrm$|repeated_risk", "repeated_risk_minimization"),
    "federated averaging": (r"fedavg|federatedaverag", "p_fedavg"),
    "clients on a network": (r"superlink|start_grpc_server", "live.Federation"),
    "secure aggregation": (r"secagg|secure_?agg", "live.Secure"),
    "privacy accounting": (r"privacyaccountant|accountant$", "privacy.guarantee"),
    "group fairness": (r"demographic_parity|equalized_odds", "audit.audit_logs"),
    "drift reports": (r"valuedrift$|datadrift", "audit.audit_logs"),
    "anytime-valid monitoring": (r"(^|_)e_process|confidence_?sequence|anytime_?valid", "watch"),
}
_MARKS = ("<!-- peers -->", "<!-- end of peers -->")


def public_names(folder: Path) -> list[str]:
    """Classes and functions at the top level of modules, except private ones and tests."""
    found = set()
    for path in folder.rglob("*.py"):
        if {"tests", "test"} & set(path.parts):
            continue
        try:
            body = ast.parse(path.read_text(encoding="utf-8", errors="ignore")).body
        except SyntaxError:
            continue
        found |= {node.name for node in body if isinstance(node, ast.ClassDef | ast.FunctionDef)}
    return sorted(name for name in found if not name.startswith("_"))


def matches(folder: Path) -> dict[str, str]:
    """The shortest matching name for each row."""
    names = public_names(folder)
    found = {row: [name for name in names if re.search(pattern, name, re.IGNORECASE)]
             for row, (pattern, _) in ROWS.items()}  # fmt: skip
    return {row: min(hits, key=lambda name: (len(name), name)) for row, hits in found.items() if hits}


def table() -> str:
    """The README's table."""
    peers: dict[str, Any] = json.loads(FILE.read_text())
    heads = [f"{name} {one['version']}".strip() for name, one in peers.items()]
    lines = [f"||performative|{'|'.join(heads)}|", "|---" * (len(peers) + 2) + "|"]
    for row, (_, ours) in ROWS.items():
        cells = [f"`{one['found'][row]}`" if row in one["found"] else "" for one in peers.values()]
        lines.append(f"|{row}|`{ours}`|{'|'.join(cells)}|")
    return "\n".join(lines)


def page(text: str) -> str:
    """The README with its table replaced."""
    head, rest = text.split(_MARKS[0])
    return f"{head}{_MARKS[0]}\n{table()}\n{_MARKS[1]}{rest.split(_MARKS[1])[1]}"


if __name__ == "__main__":
    if sys.argv[1:]:
        told = (re.fullmatch(r"(.+)=(.+)@(.+)", word) for word in sys.argv[1:])
        found = {m[1]: {"version": m[3], "found": matches(Path(m[2]))} for m in told if m is not None}
        FILE.write_text(json.dumps(found, indent=1) + "\n")
    PAGE.write_text(page(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
