"""The result of `stress`: a table, text, a plot."""

import dataclasses
from html import escape
from typing import Any

import numpy as np

from performative.findings import plain
from performative.plotting import axes_of
from performative.report.section import Cell, Table
from performative.sklearn.measuring import EVERYBODY

_COLUMNS = {
    "accuracy": "accuracy", "acceptance": "accepted", "acceptance_deserving": "deserving accepted",
    "acceptance_others": "others accepted", "changed": "decisions changed", "moved": "people who move",
}  # fmt: skip


@dataclasses.dataclass(frozen=True, eq=False, repr=False)
class StressTest:
    """Returned by `stress`; `print` it, or use `table`.

    Attributes:
        table: one row per strength and group ("all" first). `accuracy`; `acceptance`: share assigned the desired class,
            `acceptance_deserving` and `acceptance_others` of those who truly belong to it and of those who do not;
            `changed`: decisions that differ from strength 0; `moved`, `distance`, `utility`: share who move, mean
            distance (in units of the cost) and mean utility. For "all" only, on the score of the desired class: the
            current `threshold`, `threshold_same_rate`, whose acceptance (`acceptance_same_rate`) is closest to the one
            before, and `threshold_best`, the most accurate one (`accuracy_best`)
        exact: whether responses follow a formula; otherwise they were found by search
        gain, desired, strategic: as passed
        score: "decision_function" or "predict_proba", the score of the thresholds; None if there is no score
        threshold: the current one
        shown: {strength: values [n, k] of the strategic columns that people show}
        notes: subsampling, and the limits of the search
    """

    table: Any
    exact: bool
    gain: str
    desired: Any
    strategic: tuple[str, ...]
    score: str | None
    threshold: float
    shown: dict[float, np.ndarray]
    notes: tuple[str, ...]

    @property
    def strengths(self) -> tuple[float, ...]:
        """The strengths, starting with 0."""
        return tuple(self.shown)

    def plot(self, ax: Any = None) -> Any:
        """Plot accuracy and acceptance by strength, one line per group's acceptance; return the axes."""
        ax = axes_of("plot", ax)
        everybody = self.table[self.table.group == EVERYBODY]
        ax.plot(everybody.strength, everybody.accuracy, marker="o", label="accuracy")
        for name, rows in self.table.groupby("group", sort=False):
            label = "accepted" if name == EVERYBODY else f"accepted: {name}"
            ax.plot(rows.strength, rows.acceptance, marker="o", linestyle="--", label=label)
        # Strengths span decades and begin at 0.
        positive = [s for s in self.strengths if s > 0]
        if positive:
            ax.set_xscale("symlog", linthresh=min(positive))
            ax.set_xticks(self.strengths, [f"{s:g}" for s in self.strengths])
            ax.minorticks_off()
        ax.set_xlabel("strength of the response")
        ax.set_ylabel("share of people")
        ax.legend()
        return ax

    def to_dict(self) -> dict[str, Any]:
        """Convert to strict JSON-compatible values; NaN becomes None."""
        rows = [plain(dict(row)) for row in self.table.to_dict("records")]
        facts = ("exact", "gain", "desired", "strategic", "score", "threshold", "notes")
        return {**{name: plain(getattr(self, name)) for name in facts}, "table": rows}

    def __repr__(self) -> str:
        how = "exact" if self.exact else "searched"
        return f"StressTest(strengths={self.strengths}, strategic={self.strategic}, {how}; print it for the table)"

    def __str__(self) -> str:
        return "\n".join([self.rates().text(), "", *self.sentences()])

    def _repr_html_(self) -> str:
        words = "".join(f"<p>{escape(line)}</p>" for line in self.sentences())
        return self.rates().html() + words

    def rates(self) -> Table:
        """Rates by strength and group, in percent."""
        named = len(self.table.group.unique()) > 1
        rows: list[list[Cell]] = []
        for row in self.table.to_dict("records"):
            cells = [f"{row['strength']:g}", *([row["group"]] if named else [])]
            rows.append([*cells, *("-" if np.isnan(row[c]) else f"{100 * row[c]:.1f}%" for c in _COLUMNS)])
        return Table(["strength", *(["group"] if named else []), *_COLUMNS.values()], rows)

    def sentences(self) -> list[str]:
        """A summary of the settings, thresholds, and notes."""
        how = "by a formula" if self.exact else "by search"
        what = "raise their score" if self.gain == "score" else "be accepted"
        said = [f"People change {', '.join(self.strategic)} to {what} (desired: {self.desired!r}); responses {how}."]
        last = self.table[self.table.group == EVERYBODY].iloc[-1]
        if "threshold_best" in last and np.isfinite(last.get("threshold_best", np.nan)):
            said.append(
                f"At strength {last.strength:g}, a threshold of {last.threshold_same_rate:.4g} instead of "
                f"{last.threshold:.4g} accepts {100 * last.acceptance_same_rate:.1f}%, closest to the rate before; "
                f"{last.threshold_best:.4g} is the most accurate, with {100 * last.accuracy_best:.1f}%."
            )
        return [*said, *(f"Note: {note}" for note in self.notes)]
