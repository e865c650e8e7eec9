"""Columns as what they are: numbers, answers to yes or no, words, dates; what is empty is NULL on every engine."""

import functools
import operator
from typing import Any

import ibis

# What counts as empty in a column of numbers.
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
# Engines whose TRY_CAST gives NULL for what is no number; others are asked by a pattern first.
_TRY = ("duckdb", "snowflake", "bigquery", "pyspark")


def number(column: Any, engine: str = "duckdb", decimal: str = ".", nan: bool = False) -> Any:
    """A column as double precision; NULL where it is empty or no number, or NaN unless `nan` lets that be."""
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
        # Space around a number is no fault to these, and words for what is empty are no numbers.
        return _without_nan(ibis.ifelse(odd, ibis.null("string"), text).try_cast("float64"), engine)
    text = stripped(text)
    clean = ibis.ifelse(odd | text.isin(EMPTY) | ~text.re_search(_NUMBER), ibis.null("string"), text)
    return clean.cast("float64")


def _without_nan(value: Any, engine: str) -> Any:
    # SQLite has no NaN and no function that asks for it.
    return value if engine == "sqlite" else ibis.ifelse(value.isnan(), ibis.null("float64"), value)


def truth(condition: Any) -> Any:
    """1.0, 0.0 or NULL; not every engine turns a condition into a number by a cast."""
    return ibis.cases((condition, 1.0), (~condition, 0.0), else_=ibis.null("float64"))


def stripped(column: Any) -> Any:
    """Text without space around it."""
    try:
        spark = column.get_backend().name == "pyspark"
    except ibis.IbisError:
        spark = False
    # Spark reads the backslashes of the characters that Ibis trims as letters, and would take v and f off words.
    if spark:
        return column.re_replace(r"^[ \t\r\n]+|[ \t\r\n]+$", "")
    # To trim is slow, to look at the ends is not.
    spaced = [end for space in " \t\r\n" for end in (column.startswith(space), column.endswith(space))]
    return ibis.ifelse(functools.reduce(operator.or_, spaced), column.strip(), column)


def is_empty(column: Any) -> Any:
    """Whether text is empty, in the words that spreadsheets and programs write for it."""
    return column.isnull() | stripped(column).isin(EMPTY)


def is_finite(value: Any) -> Any:
    """Whether there is a number, and a finite one."""
    return (value.abs() <= _LARGEST).fill_null(False)


def finite(value: Any) -> Any:
    """The number, NULL where it is infinite or NaN."""
    return ibis.ifelse(value.abs() <= _LARGEST, value, ibis.null("float64"))


def is_infinite(value: Any) -> Any:
    return (value.abs() > _LARGEST).fill_null(False)


def flag(column: Any, one: str | None = None) -> Any:
    """1.0 for yes, 0.0 for no, NULL for all else. one: the word that is 1; then the other words are 0."""
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
    """A column as text, NULL where it is empty; 1, 1.0 and " 1 " are the same word."""
    kind = column.type()
    if kind.is_string():
        text = stripped(column)
    elif kind.is_floating() or kind.is_decimal():
        whole = ibis.ifelse(column == column.floor(), column.cast("int64").cast("string"), column.cast("string"))
        text = ibis.ifelse(column.abs() < 1e15, whole, column.cast("string"))
    else:
        text = column.cast("string")
    return ibis.ifelse(text.isin(("", "nan", "NaN")), ibis.null("string"), text)
