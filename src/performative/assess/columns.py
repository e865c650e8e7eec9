"""What a column is before it is used: an identifier, a flag, or numbers that are written as text."""

import re
from typing import Any

import numpy as np

# A text column with more distinct values than this is free text or an identifier, not a category.
CATEGORIES = 20
# A column of text holds numbers if at most this fraction of its entries does not.
_ODD = 0.1
# Independent draws from R values repeat one with probability 1 - exp(-n^2 / 2R), which is 99% at R = n^2 / 10.
_DRAWN = 10
_MONEY = r"(?:€|\$|£|¥|EUR|USD|GBP|CHF)"
_DIGITS = r"(?:\d{1,3}(?:[.,' \u00a0\u202f]\d{3})+(?:[.,]\d+)?|\d+(?:[.,]\d+)?)"
_WRITTEN = re.compile(rf"(?:{_MONEY}\s*)?[+-]?\s*{_DIGITS}\s*(?:%|{_MONEY})?", re.IGNORECASE)
# 2024-05-31, 2024-05, 31.05.2024, 5/31/24, with or without a time.
_DATES = re.compile(
    r"(?:\d{4}([-/.])[01]?\d(?:\1[0-3]?\d)?|[0-3]?\d([-/])[0-3]?\d\2(?:\d\d){1,2}|[0-3]\d\.[01]\d\.\d\d|"
    r"[0-3]?\d\.[01]?\d\.\d{4})(?:[T ].*)?"
)
# Codes for a missing number. "none" and "unknown" may also be categories.
_GAPS = {"", "n.a.", "na", "n/a", "#n/a", "#na", "nan", "<na>", "null", "missing", "k.a.", "-", "--", "?", ".", "*"}
# Last words of names of identifiers.
_NAMES = {"id", "uuid", "guid", "identifier", "key", "index", "idx", "no", "nr", "number", "code", "ref", "reference"}


def stray_entry(values: Any) -> tuple[str, bool] | None:
    """The first entry that is not a plain number, in a column of text that holds numbers, otherwise None.

    The second value says that it cannot be a category: all entries are numbers, such as 12% or € 12 or 1,5, or codes
    for missing ones. If it is False, at least 9 of 10 entries are numbers: it may be a typo, or a category such as 3+.
    """
    import pandas as pd

    if values.dtype.kind in "buifcmM" or not len(values):
        return None
    text = values.astype(str).str.strip()
    kinds = pd.Series(text.unique())
    plain = set(kinds[pd.to_numeric(kinds, errors="coerce").notna()])
    numbers = plain | {entry for entry in kinds if _WRITTEN.fullmatch(entry)}
    others = set(kinds) - numbers
    if not numbers or plain == set(kinds):
        return None
    only = all(entry.lower() in _GAPS for entry in others)
    odd = text[~text.isin(list(plain if only else numbers))]
    if not only and len(odd) > _ODD * len(text):
        return None
    return str(values[odd.index[0]]) if values.index.is_unique else str(odd.iloc[0]), only


def is_identifier(column: Any) -> bool:
    """Whether a column has a different value in every row, by design: text, or whole numbers called an identifier
    or lie so close together that independent draws would repeat some."""
    kind = column.dtype.kind
    if len(column) <= CATEGORIES or kind in "fbmMc" or column.nunique() != len(column):
        return False
    if kind not in "iu":
        numbers = sum(_WRITTEN.fullmatch(entry) is not None for entry in column.astype(str).str.strip())
        return numbers < (1 - _ODD) * len(column)
    words = re.findall("[A-Z]?[a-z]+|[A-Z]+(?![a-z])", str(column.name))
    if words and words[-1].lower() in _NAMES:
        return True
    values = np.sort(column.to_numpy())
    step = int(np.gcd.reduce(np.diff(values).astype(np.uint64)))
    return int(values[-1]) - int(values[0]) <= step * len(column) ** 2 / _DRAWN


def is_dates(column: Any) -> bool:
    """Whether a column contains dates, times or durations, also if they are written as text."""
    if column.dtype.kind in "mM":
        return True
    if column.dtype.kind in "buifc":
        return False
    kinds = column.dropna().astype(str).str.strip().unique().tolist()
    return bool(kinds) and all(_DATES.fullmatch(entry) for entry in kinds)


def is_flag(column: Any) -> bool:
    """Whether a column is true or false, or 0 or 1."""
    kind = column.dtype.kind
    return kind == "b" or (kind in "iuf" and bool(column.dropna().isin([0, 1]).all()))
