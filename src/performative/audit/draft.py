"""A first draft of audit.toml from a look at the columns: what each seems to be, and why."""

import dataclasses
import json
import re
from typing import Any

import ibis

from performative.audit.files import FILE, ROW
from performative.audit.queries import fetch
from performative.audit.source import Source
from performative.audit.values import NO, YES, is_empty, word

# Names that columns of a role often have, in full or as a part between underscores.
_NAMES = {
    "deployment": ("deployment", "model_version", "model", "version", "model_id", "model_name", "scorecard"),
    "time": ("time", "date", "timestamp", "datetime", "created_at", "decided_at", "applied_at", "day", "month"),
    "client": ("client", "bank", "branch", "institution", "site", "hospital", "lender", "office", "tenant"),
    "label": ("label", "outcome", "default", "defaulted", "target", "repaid", "paid", "bad", "good", "churned", "y"),
    "score": ("score", "probability", "prob", "pd", "prediction", "predicted", "risk_score", "yhat"),
    "accepted": ("accepted", "approved", "decision", "granted", "accept", "decided", "treated"),
    "propensity": ("propensity", "chance"),
    "group": ("group", "sex", "gender", "race", "ethnicity", "age_group", "protected"),
}
_IDS = ("id", "uuid", "guid", "key", "index", "number", "ssn", "name", "email", "phone")
# A string column with more distinct values than this is free text, not a category.
_LEVELS = 20
_DATE = re.compile(r"^\d{4}-\d{2}-\d{2}")


@dataclasses.dataclass(frozen=True)
class Seen:
    """A summary of one column: its type, the number of distinct values, the number of empty ones, a few examples."""

    name: str
    kind: str
    different: int
    empty: int
    rows: int
    examples: tuple[str, ...]

    @property
    def told(self) -> str:
        gaps = f", {self.empty:,} empty" if self.empty else ""
        return f"{self.kind}, {self.different:,} distinct{gaps}; such as {', '.join(self.examples[:3])}"

    @property
    def is_flag(self) -> bool:
        return 1 <= self.different <= 2 and all(value.lower() in (*YES, *NO) for value in self.examples)

    @property
    def is_date(self) -> bool:
        return self.kind in ("date", "timestamp") or (
            self.kind == "string" and bool(self.examples) and all(_DATE.match(value) for value in self.examples)
        )


def look(source: Source) -> list[Seen]:
    """Query the counts, and a few values of each column."""
    raw = source.table
    names = [name for name in raw.columns if name not in (FILE, ROW)]
    asked: dict[str, Any] = {"rows": raw.count()}
    for j, name in enumerate(names):
        column = raw[name]
        empty = is_empty(column) if column.type().is_string() else column.isnull()
        asked |= {f"d{j}": column.nunique(), f"e{j}": empty.sum()}
    found = {name: int(values[0] if values[0] == values[0] else 0) for name, values in fetch(raw.agg(**asked)).items()}
    out = []
    for j, name in enumerate(names):
        words = raw.select(value=word(raw[name]))
        words = words.filter(words.value.notnull()).group_by("value").agg(n=ibis._.count())
        examples = fetch(words.order_by([ibis.desc("n"), "value"]).limit(6))["value"].tolist()
        kind = raw[name].type()
        short = "number" if kind.is_numeric() else "string" if kind.is_string() else kind.name.lower()
        if short == "string" and examples and all(_is_number(value) for value in examples):
            short = "number"
        out.append(Seen(name, short, found[f"d{j}"], found[f"e{j}"], found["rows"], tuple(map(str, examples))))
    return out


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True


def guess(columns: list[Seen]) -> dict[str, str]:
    """Role -> column, if both its name and its values fit; the closer name wins."""
    found: dict[str, tuple[int, str]] = {}
    for one in columns:
        for role, names in _NAMES.items():
            rank = _rank(one.name, names)
            if rank is not None and _fits(one, role) and (role not in found or rank < found[role][0]):
                found[role] = (rank, one.name)
    out: dict[str, str] = {}
    for role, (_, name) in sorted(found.items(), key=lambda item: item[1][0]):
        if name not in out.values():
            out[role] = name
    if "time" not in out:
        dates = [one.name for one in columns if one.is_date and one.name not in out.values()]
        if dates:
            out["time"] = dates[0]
    return out


def _rank(name: str, names: tuple[str, ...]) -> int | None:
    """0 for an exact match, 1 .. for a match of one part, None for no match."""
    low = name.lower()
    if low in names:
        return 0
    parts = re.split(r"[_\W]+", low)
    hits = [k for k, known in enumerate(names) if known in parts]
    return 1 + hits[0] if hits else None


def _fits(one: Seen, role: str) -> bool:
    if role in ("accepted",):
        return one.is_flag or one.different <= 2
    if role == "label":
        return one.is_flag or one.different == 2 or one.kind == "number"
    if role in ("score", "propensity"):
        return one.kind == "number"
    if role == "time":
        return one.is_date or one.kind == "number"
    return one.different <= max(128, one.rows // 20)


def is_id(one: Seen) -> bool:
    """Whether the column identifies people rather than describing them."""
    alone = one.rows > 20 and one.different > 0.95 * (one.rows - one.empty)
    named = _rank(one.name, _IDS) is not None
    return (alone and (named or one.kind == "string")) or (named and one.different > 128)


def draft(columns: list[Seen], roles: dict[str, str], table: str | None, models: bool) -> str:
    """The text of audit.toml, with the reason for each line. models: whether a table of models was found."""
    told = {one.name: one.told for one in columns}
    rest = [one for one in columns if one.name not in roles.values()]
    ids = [one.name for one in rest if is_id(one)]
    dates = [one.name for one in rest if one.is_date and one.name not in ids]
    words = [one for one in rest if one.kind == "string" and not one.is_flag and one.name not in (*ids, *dates)]
    categories = [one.name for one in words if one.different <= _LEVELS]
    texts = [one.name for one in words if one.different > _LEVELS]
    ignore = [*ids, *dates, *texts]
    lines = ["# Drafted from a look at the columns: correct what is wrong. Roles that are not named were not found."]
    if table:
        lines += ["[source]", f"table = {_quoted(table)}"]
    lines += ["[columns]"]
    lines += [f"{role} = {_quoted(name)}  # {told[name]}" for role, name in roles.items()]
    if ignore:
        lines.append(f"ignore = [{', '.join(map(_quoted, ignore))}]  # ids, dates and free text do not describe people")
    features = [one.name for one in rest if one.name not in ignore]
    lines.append(f"# features: {', '.join(features) or 'none left; name some'}")
    if categories:
        lines += ["[categories]", f"columns = [{', '.join(map(_quoted, categories))}]  # each value becomes a share",
                  f"most = {_LEVELS}"]  # fmt: skip
    if "deployment" not in roles and "time" in roles:
        lines += ["[deployments]", 'every = "month"  # no column names the model: a month is a deployment; or starts = '
                  '["2024-01-15", ..]']  # fmt: skip
    by_name = {one.name: one for one in columns}
    if "label" in roles and not by_name[roles["label"]].is_flag and by_name[roles["label"]].kind == "string":
        lines += ["[labels]", f"one = {_quoted(by_name[roles['label']].examples[0])}  # which value is 1?"]
    if not models:
        lines.append("[models]")
        if "score" in roles:
            lines.append('scores = true  # the models are known by their scores; or files = "models/{deployment}.pkl"')
        else:
            lines.append(
                '# files = "models/{deployment}.pkl"  # or registry = "name", or theta_<feature> columns in a table'
            )
    lines += ["# [decision]", "# threshold = 0.5  # on the score", '# accept = "above"', "# qualified = 1"]
    return "\n".join(lines) + "\n"


def _quoted(text: str) -> str:
    return json.dumps(text, ensure_ascii=False)
