"""Table output: pandas or polars frames, and LaTeX."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from performative._base.checks import is_one_of

_SPECIAL = {
    "\\": r"\textbackslash{}",
    "&": r"\&",
    "%": r"\%",
    "_": r"\_",
    "#": r"\#",
    "$": r"\$",
    "{": r"\{",
    "}": r"\}",
}


def frame_of(columns: Mapping[str, np.ndarray], kind: str) -> Any:
    """Columns as a frame."""
    if not is_one_of(kind, "pandas", "polars"):
        raise ValueError(f'kind must be "pandas" or "polars"; got {kind!r}.')
    if kind == "pandas":
        import pandas as pd

        return pd.DataFrame(dict(columns))
    try:
        import polars as pl
    except ModuleNotFoundError as error:
        raise ModuleNotFoundError(
            "kind='polars': polars is not installed: pip install polars", name="polars"
        ) from error
    return pl.DataFrame(
        {name: values.tolist() if values.dtype == object else values for name, values in columns.items()}
    )


def final_cell(values: np.ndarray) -> str:
    """Mean and standard error over repeats."""
    mean = float(np.mean(values))
    if len(values) < 2 or not np.isfinite(mean):
        return f"${mean:.4g}$" if np.isfinite(mean) else "diverged"
    return rf"${mean:.4g} \pm {float(np.std(values, ddof=1) / np.sqrt(len(values))):.2g}$"


def latex_table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A table with booktabs rules; cells in $...$ are left as math."""
    lines = [r"\begin{tabular}{" + "l" * len(head) + "}", r"\toprule", _line(head), r"\midrule"]
    return "\n".join([*lines, *map(_line, rows), r"\bottomrule", r"\end{tabular}", ""])


def _line(cells: Sequence[str]) -> str:
    return " & ".join(cell if _is_math(cell) else _escaped(cell) for cell in cells) + r" \\"


def _is_math(cell: str) -> bool:
    """Whether it is one formula, $...$; a lone dollar sign is text."""
    return cell.startswith("$") and cell.endswith("$") and cell.count("$") == 2


def _escaped(text: str) -> str:
    return "".join(_SPECIAL.get(letter, letter) for letter in text)
