"""Losses and acceptance rates of people under the deployed models."""

from typing import Any

import numpy as np

from performative.watch.batch import Rows
from performative.watch.sequences import Bounded, Moments
from performative.watch.settings import Settings

# Maximum number of groups that are monitored; people of further ones are only counted.
_GROUPS = 32


class People:
    """Running means over arriving rows: the loss, and acceptance by group."""

    def __init__(self, settings: Settings):
        self.range = settings.loss_range
        self.loss: Bounded | Moments | None = None
        self.groups: dict[str, Bounded] = {}
        self.outside, self.left_out = 0, 0

    def begin(self, bounded_loss: bool) -> None:
        """Choose the kind of sequence, once: bounds are known if given, or if the loss was computed from labels."""
        if self.loss is None:
            ends = self.range or ((0.0, 1.0) if bounded_loss else None)
            self.loss = Moments() if ends is None else Bounded(*ends)

    def add(self, part: Rows) -> None:
        if part.loss is not None and self.loss is not None:
            values = part.loss[np.isfinite(part.loss)]
            if isinstance(self.loss, Bounded):
                inside = (values >= self.loss.low) & (values <= self.loss.high)
                self.outside += int((~inside).sum())
                values = values[inside]
            if len(values):
                self.loss.add(values)
        if part.group is None or part.accepted is None:
            return
        known = np.isfinite(part.accepted)
        for name in sorted(set(part.group[known]) - {""}):
            values = part.accepted[known & (part.group == name)]
            if name not in self.groups and len(self.groups) >= _GROUPS:
                self.left_out += len(values)
            else:
                self.groups.setdefault(str(name), Bounded()).add(values)

    def widest_gap(self, alpha: float) -> dict[str, Any] | None:
        """The two groups farthest apart: acceptance rates with sequences that are valid for all groups at once.

        The j-th group to appear gets a share of alpha / (j (j + 1)), however many follow. The interval of a difference
        is computed from the endpoints, so it is valid for every pair.
        """
        if len(self.groups) < 2:
            return None
        rates = {name: one.interval(alpha / (j * (j + 1))) for j, (name, one) in enumerate(self.groups.items(), 1)}
        high = max(rates, key=lambda name: rates[name][0])
        low = min(rates, key=lambda name: rates[name][0])
        value = rates[high][0] - rates[low][0]
        ends = rates[high][1] - rates[low][2], rates[high][2] - rates[low][1]
        return {"most": high, "least": low, "value": value, "low": ends[0], "high": ends[1]}

    def to_dict(self) -> dict[str, Any]:
        kept = {"outside": self.outside, "left_out": self.left_out, "loss": None}
        if self.loss is not None:
            kept["loss"] = {"kind": type(self.loss).__name__, **vars(self.loss)}  # type: ignore[assignment]
        return kept | {"groups": {name: vars(one) for name, one in self.groups.items()}}

    def read(self, told: dict[str, Any]) -> None:
        self.outside, self.left_out = told["outside"], told["left_out"]
        self.groups = {name: Bounded(**one) for name, one in told["groups"].items()}
        if told["loss"] is not None:
            kinds = {"Bounded": Bounded, "Moments": Moments}
            values = {name: value for name, value in told["loss"].items() if name != "kind"}
            self.loss = kinds[told["loss"]["kind"]](**values)
