"""The claims ledger: one row per measurement, built from the manifests of past runs."""

import json
from collections import Counter
from pathlib import Path
from typing import Any

from performative._base.files import write_whole
from performative.papers.catalog import FOLDER, find, names
from performative.papers.claims import KINDS, OWN_VERDICTS, UNTESTED, VERDICTS
from performative.papers.store import read_manifest

# Rows of the full runs shipped with this version.
SHIPPED = FOLDER / "ledger.json"
# A claim that was measured several times gets the first of these verdicts that any of its rows has.
_WORST = ("refuted", "fails", "undecided", "reproduced with corrections", "reproduced", "holds", UNTESTED)


def read(out: str | Path | None = None) -> list[dict[str, Any]]:
    """Return all rows: from runs under `out`, else as shipped with this version, else "not tested".

    A full run of the release takes precedence over a quick run of yours.
    """
    shipped = {row["key"]: row for row in json.loads(SHIPPED.read_text())} if SHIPPED.is_file() else {}
    rows = []
    for name in names():
        experiment = find(name)
        manifest = None if out is None else read_manifest(Path(out) / name)
        own = {} if manifest is None else {row["key"]: row for row in rows_of(manifest)}
        for claim in experiment.claims:
            key = f"{name}#{claim.id}"
            found = [row for row in (own.get(key), shipped.get(key)) if row and row["claim"] == claim.claim]
            row = min(found, key=lambda one: one["quick"], default=None)
            if row is None:  # never run, or run when the claim was worded differently
                row = {
                    "key": key, "paper": experiment.paper, "place": claim.place or experiment.place,
                    "claim": claim.claim, "how": claim.how, "number": "", "verdict": UNTESTED,
                    "reason": claim.untested or f"performative reproduce {name}", "quick": False,
                }  # fmt: skip
            rows.append(row | {"kind": claim.kind, "statement": claim.statement or key, "about": list(claim.about)})
    return rows


def rows_of(manifest: dict[str, Any]) -> list[dict[str, Any]]:
    """The rows of one run."""
    kept = ("place", "claim", "how", "number", "verdict", "reason")
    return [
        {"key": f"{manifest['name']}#{row['id']}", "paper": manifest["paper"]}
        | {name: row[name] for name in kept}
        | {"quick": manifest["quick"]}
        for row in manifest["claims"]
    ]


def count(rows: list[dict[str, Any]]) -> dict[str, int]:
    """Number of rows per verdict."""
    counted = Counter(row["verdict"] for row in rows)
    return {verdict: counted[verdict] for verdict in (VERDICTS | OWN_VERDICTS) if counted[verdict]}


def distinct(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """One row per claim: if it was measured several times, the row with the worst verdict.

    "Not tested" counts only if nothing else was measured.
    """
    worst: dict[tuple[str, str], dict[str, Any]] = {}
    for row in sorted(rows, key=lambda row: _WORST.index(row["verdict"])):
        worst.setdefault((row["paper"], row["statement"]), row)
    return list(worst.values())


def by_kind(rows: list[dict[str, Any]]) -> dict[str, list[dict[str, Any]]]:
    """Group rows into claims of papers, our own results, checks and definitions: {kind: rows}, without empty kinds."""
    kinds = {kind: [row for row in rows if row["kind"] == kind] for kind in KINDS}
    return {kind: mine for kind, mine in kinds.items() if mine}


def write(rows: list[dict[str, Any]], path: str | Path) -> None:
    """Write JSON with one row per line, so diffs are readable."""
    kept = [{name: row[name] for name in row if name not in ("kind", "statement", "about")} for row in rows]
    lines = ",\n".join(json.dumps(row, ensure_ascii=False) for row in kept)
    write_whole(Path(path), f"[\n{lines}\n]\n".encode())
