"""What `assess` found."""

import dataclasses
import os
from pathlib import Path
from typing import Any

from performative.assess.assessed import AbstractAssessment
from performative.assess.words import WORDS, answers_of, findings_of
from performative.findings import Finding, plain


@dataclasses.dataclass(frozen=True, eq=False, kw_only=True, repr=False)
class Assessment(AbstractAssessment):
    """Made by `pf.assess`; `print` it, write its `page`, or take `to_dict`.

    Attributes:
        name, rows, clients: the table, the rows of it that were used, and how many clients they have
        label, positive: the column of labels, and what it calls 1
        who, strategic, share, strength: as asked; `strength` is the mean over clients
        scenarios: one for each strength, weakest first
        features: columns by how much of the response goes through them, the intercept last
        certificate: the whole `pf.Certificate` at `strength`
        notes: what was done to the table before anything was computed
    """

    @property
    def findings(self) -> tuple[Finding, ...]:
        """The answers as data: change, settle, cost, features, and groups where there are some."""
        return findings_of(self)

    @property
    def answers(self) -> list[tuple[str, str, str]]:
        """(question, the answer in a few words, why)."""
        return answers_of(self)

    def frame(self) -> Any:
        """A tidy pandas frame: one row for each strength and model."""
        import pandas as pd

        rows = [
            {"strength": one.strength, "model": name, "settles": one.settles, "changed": one.changed, **vars(rates)}
            for one in self.scenarios
            for name, rates in one.models.items()
        ]
        return pd.DataFrame(rows)

    def plot(self, ax: Any = None) -> Any:
        """Mean loss once deployed by strength, for each model; returns the axes."""
        from performative.assess.figures import loss_view
        from performative.plotting import axes_of
        from performative.report.drawing import draw

        axes = axes_of("plot", ax)
        draw(axes, loss_view(self), above=False)
        return axes

    def page(self, path: str | os.PathLike[str]) -> Path:
        """Write one HTML file that needs nothing else; returns its path."""
        from performative._base.files import read_target, write_whole
        from performative.assess.page import page

        target = read_target(path, "an HTML file")
        write_whole(target, page(self))
        return target

    def to_dict(self) -> dict[str, Any]:
        """All of it for strict JSON."""
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
