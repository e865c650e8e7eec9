"""Dates as deployments: each calendar period, or period between listed dates, is one deployment."""

import bisect
import dataclasses
import datetime
from collections.abc import Sequence
from typing import Any

import ibis

from performative.audit.queries import fetch
from performative.audit.schema import LogError

# More periods than this suggest that the values are not dates.
_MOST = 5000
_UNIX = datetime.date(1970, 1, 1)


@dataclasses.dataclass(frozen=True)
class Periods:
    """Starts of the periods, sorted ISO dates; a row belongs to the last start that is not after it.

    Attributes:
        column: the time column; names: of the deployments, one per start; rows before the first start belong to none
    """

    column: str
    starts: tuple[str, ...]

    @property
    def names(self) -> tuple[str, ...]:
        return self.starts

    @property
    def days(self) -> list[float]:
        first = datetime.date.fromisoformat(self.starts[0][:10])
        return [float((datetime.date.fromisoformat(start[:10]) - first).days) for start in self.starts]

    def of(self, raw: Any) -> Any:
        """The deployment of each row as an expression."""
        time = raw[self.column]
        # From the last start backwards: the first that is not after the row is its period.
        branches = [(time >= _literal(start, time.type()), start) for start in reversed(self.starts)]
        return ibis.cases(*branches, else_=ibis.null("string"))


def _literal(day: str, kind: Any) -> Any:
    if kind.is_timestamp():
        return ibis.timestamp(day) if kind.timezone is None else ibis.literal(day).cast(kind)
    if kind.is_date():
        return ibis.date(day)
    if kind.is_integer():
        return int(day[:10].replace("-", ""))
    return day


def find_periods(raws: Sequence[Any], column: str, every: str | None, starts: Sequence[str], where: str) -> Periods:
    """The periods that the rows fall into: as listed, or every day, week, month, quarter or year in their range."""
    for raw in raws:
        kind = raw[column].type()
        if not (kind.is_timestamp() or kind.is_date() or kind.is_string() or kind.is_integer()):
            raise LogError(f"must contain dates; got {kind}.", where, column=column)
    if starts:
        return Periods(column, tuple(starts))
    edges: list[datetime.date] = []
    for raw in raws:
        time = raw[column]
        found = fetch(raw.agg(low=time.min().cast("string"), high=time.max().cast("string")))
        edges += [_day(str(found[end][0]), where, column) for end in ("low", "high") if found[end][0] is not None]
    if not edges:
        raise LogError("contains no dates.", where, column=column)
    assert every is not None
    out, day = [], _floor(min(edges), every)
    while day <= max(edges):
        out.append(day.isoformat())
        day = _floor(day + datetime.timedelta(days=_LONGEST[every]), every)
        if len(out) > _MOST:
            raise LogError(f"spans more than {_MOST} periods of a {every}; are these dates?", where, column=column)
    return Periods(column, tuple(out))


# This many days after the start of a period always lie in the next one.
_LONGEST = {"day": 1, "week": 7, "month": 31, "quarter": 92, "year": 366}


def _floor(day: datetime.date, every: str) -> datetime.date:
    if every == "day":
        return day
    if every == "week":
        return day - datetime.timedelta(days=day.weekday())
    months = [1, 4, 7, 10] if every == "quarter" else [1] if every == "year" else list(range(1, 13))
    return datetime.date(day.year, months[bisect.bisect_right(months, day.month) - 1], 1)


def _day(text: str, where: str, column: str) -> datetime.date:
    try:
        return datetime.date.fromisoformat(text[:10] if "-" in text[:10] else text[:8])
    except ValueError:
        raise LogError(f"must contain ISO dates (2024-01-31); got {text!r}.", where, column=column) from None
