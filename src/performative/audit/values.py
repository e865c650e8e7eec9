"""Columns by type: numbers, yes or no, strings, dates; empty values are NULL on every engine."""

import functools
import operator
from typing import Any

import ibis

# What counts as empty in a numeric column.
EMPTY = ("", "#N/A", "N/A", "NA", "NULL", "NaN", "nan", "n/a", "null", "None", "-nan", "<NA>")
YES = ("1", "1.0", "true", "t", "yes", "y", "good", "accepted", "accept", "approved", "granted", "pass", "passed")
NO = (
    "0",
    "0.0",
    "false",
    "f",
    "no",
    "n",
    "bad",
    "rejected",
    "reject",
    "declined",
    "denied",
    "refused",
    "fail",
    "failed",
)
# The largest number. NaN is above it, or not comparable, on every engine that has one.
_LARGEST = 1.7976931348623157e308
_NUMBER = r"^[-+]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][-+]?[0-9]+)?$"
# Engines whose TRY_CAST returns NULL for non-numbers; on others a pattern is matched first.
_TRY = ("duckdb", "snowflake", "bigquery", "pyspark")


def number(column: Any, engine: str = "duckdb", decimal: str = ".", nan: bool = False) -> Any:
    """A column in double precision; NULL if empty or not a number, and for NaN unless `nan` is set."""
    kind = column.type()
    if kind.is_null():
        return ibis.null("float64")
    if kind.is_boolean():
        return truth(column)
    if kind.is_string():
        return _parsed(column, engine, decimal)
    value = column.cast("float64")
    return value if nan or kind.is_integer() else _without_nan(value, engine)


def _parsed(text: Any, engine: str, decimal: str) -> Any:
    # An underscore is a digit separator to some engines and an error to others.
    odd = text.contains("_")
    if decimal != ".":
        odd, text = odd | text.contains("."), text.replace(decimal, ".")
    if engine in _TRY:
        # These engines accept whitespace around a number, and words for empty values are not numbers.
        return _without_nan(ibis.ifelse(odd, ibis.null("string"), text).try_cast("float64"), engine)
    text = stripped(text)
    clean = ibis.ifelse(odd | text.isin(EMPTY) | ~text.re_search(_NUMBER), ibis.null("string"), text)
    return clean.cast("float64")


def _without_nan(value: Any, engine: str) -> Any:
    # SQLite has neither NaN nor a function to test for it.
    return value if engine == "sqlite" else ibis.ifelse(value.isnan(), ibis.null("float64"), value)


def truth(condition: Any) -> Any:
    """1.0, 0.0 or NULL; not every engine can cast a condition to a number."""
    return ibis.cases((condition, 1.0), (~condition, 0.0), else_=ibis.null("float64"))


def stripped(column: Any) -> Any:
    """Text without surrounding whitespace."""
    try:
        spark = column.get_backend().name == "pyspark"
    except ibis.IbisError:
        spark = False
    # Spark misreads the escapes of the characters that Ibis trims, and would strip the letters v and f.
    if spark:
        return column.re_replace(r"^[ \t\r\n]+|[ \t\r\n]+$", "")
    # Trimming is slow, checking the ends is not.
    spaced = [end for space in " \t\r\n" for end in (column.startswith(space), column.endswith(space))]
    return ibis.ifelse(functools.reduce(operator.or_, spaced), column.strip(), column)


def is_empty(column: Any) -> Any:
    """Whether text is empty, or one of the words that spreadsheets and programs write for it."""
    return column.isnull() | stripped(column).isin(EMPTY)


def is_finite(value: Any) -> Any:
    """Whether the value is a finite number."""
    return (value.abs() <= _LARGEST).fill_null(False)


def finite(value: Any) -> Any:
    """The number, NULL if it is infinite or NaN."""
    return ibis.ifelse(value.abs() <= _LARGEST, value, ibis.null("float64"))


def is_infinite(value: Any) -> Any:
    return (value.abs() > _LARGEST).fill_null(False)


def flag(column: Any, one: str | None = None) -> Any:
    """1.0 for yes, 0.0 for no, NULL otherwise. one: the value that is 1; then all other values are 0."""
    kind = column.type()
    if kind.is_boolean():
        return truth(column)
    if kind.is_string():
        text = stripped(column).lower()
        if one is not None:
            return ibis.cases((is_empty(column), ibis.null("float64")), (text == one.lower(), 1.0), else_=0.0)
        return ibis.cases((text.isin(YES), 1.0), (text.isin(NO), 0.0), else_=ibis.null("float64"))
    value = column.cast("float64")
    return ibis.cases((value == 1.0, 1.0), (value == 0.0, 0.0), else_=ibis.null("float64"))


def word(column: Any) -> Any:
    """A column as text, NULL if empty; 1, 1.0 and " 1 " are the same."""
    kind = column.type()
    if kind.is_string():
        text = stripped(column)
    elif kind.is_floating() or kind.is_decimal():
        whole = ibis.ifelse(column == column.floor(), column.cast("int64").cast("string"), column.cast("string"))
        text = ibis.ifelse(column.abs() < 1e15, whole, column.cast("string"))
    else:
        text = column.cast("string")
    return ibis.ifelse(text.isin(("", "nan", "NaN")), ibis.null("string"), text)
