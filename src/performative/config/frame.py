"""[problem.frame]: a problem from a table of people."""

from collections.abc import Sequence
from typing import Any

from performative._base.checks import nearest
from performative.assess.reading import read_people
from performative.config.build import Builder
from performative.config.errors import ConfigError, blame
from performative.problem import Problem

# Keys that are not arguments of `from_frame`: what is done to the table first.
_BEFORE: dict[str, Any] = {"ignore": list[str], "prepare": bool}


def read_frame_table(builder: Builder, table: Any) -> Problem:
    """`path` is read as `performative assess` reads it; `ignore` and `prepare` are applied before `from_frame`."""
    key = "problem.frame"
    if not isinstance(table, dict) or not isinstance(table.get("path"), str):
        raise ConfigError('expected a table with path = "people.csv".', key)
    where = table["path"] if "://" in table["path"] else str(builder.folder / table["path"])
    with blame(f"{key}.path"):
        frame, _ = read_people(where)
    given = {name: value for name, value in table.items() if name not in ("path", *_BEFORE)}
    keywords = builder.keywords(Problem.from_frame, given, key, leave_out=("frame",))
    before = {
        name: builder.value(table[name], kind, f"{key}.{name}", "") for name, kind in _BEFORE.items() if name in table
    }
    with blame(key, before | keywords):
        frame, keywords = _prepared(frame, keywords, **before)
    strength, client = keywords.get("strength"), keywords.get("client")
    if isinstance(strength, dict) and client in frame:
        # Keys of a TOML table are text; the clients of the table may be numbers.
        names = {str(name): name for name in frame[client].unique()}
        keywords["strength"] = {names.get(name, name): value for name, value in strength.items()}
    with blame(key, keywords):
        try:
            return Problem.from_frame(frame, **keywords)
        except ValueError as error:
            raise ValueError(f"{error}{_hint(frame, keywords, **before)}") from error


def _hint(frame: Any, keywords: dict[str, Any], prepare: bool = False, **_: Any) -> str:
    """What else helps if features are missing or text."""
    features = frame.drop(columns=[keywords.get("label"), keywords.get("client")], errors="ignore")
    bad = features.isna().any() | (features.dtypes.map(lambda kind: kind.kind) == "O")
    told = " Or set prepare = true: text becomes 0/1 columns, missing numbers the median."
    return told if not prepare and bad.any() else ""


def _prepared(
    frame: Any, keywords: dict[str, Any], ignore: Sequence[str] = (), prepare: bool = False
) -> tuple[Any, dict[str, Any]]:
    """Columns left out; with `prepare`, text as 0/1 columns and missing numbers as the median, as in `assess`."""
    unknown = [name for name in ignore if name not in frame.columns]
    if unknown:
        raise ValueError(f"ignore={unknown[0]!r} is not a column of the table.{nearest(unknown[0], frame.columns)}")
    if not prepare:
        return frame.drop(columns=list(ignore)), keywords
    from performative.assess.preparing import prepare as make_numbers

    asked: dict[str, Any] = {name: keywords.get(name) for name in ("label", "positive", "client", "strategic")}
    made = make_numbers(frame, **asked, group=None, ignore=ignore, rows=len(frame), scale="", seed=0)
    client = keywords.get("client") and made.client
    read = made.frame if client else made.frame.drop(columns=made.client)
    roles = {"label": made.label, "positive": None, "client": client, "strategic": list(made.strategic)}
    return read, keywords | roles
