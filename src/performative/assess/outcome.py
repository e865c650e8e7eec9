"""The result of `assess`."""

import dataclasses
import os
from pathlib import Path
from typing import Any

from performative.assess.assessed import AbstractAssessment
from performative.assess.words import WORDS, answers_of, findings_of
from performative.findings import Finding, plain


@dataclasses.dataclass(frozen=True, eq=False, kw_only=True, repr=False)
class Assessment(AbstractAssessment):
    """Returned by `pf.assess`; `print` it, write its `page`, or use `to_dict`.

    Attributes:
        name, rows, clients: name of the table, number of rows used, and number of clients
        label, positive: the label column, and the value that means 1
        who, strategic, strength: as passed; `strength` is the mean over clients
        share: fraction of people whom the model trained once refuses before anybody responds: as passed, or the nearest
            that tied scores allow
        scenarios: one per strength, weakest first
        features: columns by their share of the response, the intercept last
        certificate: the whole `pf.Certificate` at `strength`
        notes: what was done to the table before anything was computed
    """

    @property
    def findings(self) -> tuple[Finding, ...]:
        """The answers as data: change, settle, cost, features, and groups if there are any."""
        return findings_of(self)

    @property
    def answers(self) -> list[tuple[str, str, str]]:
        """(question, the answer in a few words, why)."""
        return answers_of(self)

    def frame(self) -> Any:
        """A tidy pandas frame: one row per strength and model."""
        import pandas as pd

        rows = [
            {"strength": one.strength, "model": name, "settles": one.settles, "changed": one.changed, **vars(rates)}
            for one in self.scenarios
            for name, rates in one.models.items()
        ]
        return pd.DataFrame(rows)

    def plot(self, ax: Any = None) -> Any:
        """Plot the mean loss once deployed by strength, for each model; return the axes."""
        from performative.assess.figures import loss_view
        from performative.plotting import axes_of
        from performative.report.drawing import draw

        axes = axes_of("plot", ax)
        draw(axes, loss_view(self), above=False)
        return axes

    def page(self, path: str | os.PathLike[str]) -> Path:
        """Write one self-contained HTML file; return its path."""
        from performative._base.files import read_target, write_whole
        from performative.assess.page import page

        target = read_target(path, "an HTML file")
        write_whole(target, page(self))
        return target

    def to_dict(self) -> dict[str, Any]:
        """Convert to strict JSON-compatible values."""
        words = ("name", "rows", "clients", "label", "who", "strategic", "share", "strength", "notes")
        return {
            **{name: plain(getattr(self, name)) for name in words},
            "positive": str(self.positive),
            "scenarios": [one.to_dict() for one in self.scenarios],
            "features": [one.to_dict() for one in self.features],
            "certificate": self.certificate.to_dict(),
            "findings": WORDS.to_json(self.findings),
        }

    def __repr__(self) -> str:
        return f"Assessment({self.name!r}, rows={self.rows}, strength={self.strength:g}; print it for the answers)"

    def __str__(self) -> str:
        from performative.assess.tables import text

        return text(self)

    def _repr_html_(self) -> str:
        from performative.assess.tables import answers_table, strengths_table

        return answers_table(self).html() + strengths_table(self).html()
