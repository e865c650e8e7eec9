"""Numbers, p-values and names as an audit writes them."""

import math
from typing import Any

import numpy as np


def sentences(parts: Any) -> str:
    """Join reasons, each with a capital letter and a full stop."""
    return " ".join(part[:1].upper() + part[1:].rstrip(".") + "." for part in parts if part)


def parameter(name: str) -> str:
    """The name used in the files, so that it is not mistaken for the feature of that name."""
    return f"theta_{name}"


def chance(p: float) -> str:
    """A p-value."""
    return "p < 0.0001" if p < 1e-4 else f"p = {p:.2g}"


def number(value: Any, digits: int = 3) -> str:
    """A few digits; rounding errors around zero are zero."""
    value = float(value)
    if math.isnan(value):
        return "unknown"
    if math.isinf(value):
        return "infinity" if value > 0 else "-infinity"
    return "0" if abs(value) < 1e-12 else f"{value:.{digits}g}"


def percent(value: float) -> str:
    return "unknown" if math.isnan(value) else f"{100 * value:.1f}%"


def span(low: Any, high: Any, digits: int = 3) -> str:
    return f"{number(low, digits)} to {number(high, digits)}"


def listed(kinds: list[str]) -> str:
    named = [repr(kind) for kind in kinds]
    return named[0] if len(named) == 1 else f"{', '.join(named[:-1])} and {named[-1]}"


def distance(here: Any, there: Any) -> float:
    return float(np.linalg.norm(np.asarray(here) - np.asarray(there)))
