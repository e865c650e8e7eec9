"""Settings of a watch, fixed at its start."""

import dataclasses
from typing import Any

from performative._base.checks import check_counts, check_number, check_rule, given
from performative.watch.guesses import check_drift


@dataclasses.dataclass(frozen=True)
class Settings:
    """See `watch`; names become tuples, and everything is checked here, as callers may pass lists."""

    drift: Any = "smooth"
    alpha: Any = 0.05
    columns: Any = None
    parameters: Any = None
    clients: Any = None
    loss_range: Any = None
    loss_limit: Any = None
    gap_limit: Any = None
    window: Any = 4096

    def __post_init__(self) -> None:
        check_drift(self.drift)
        check_number("watch", alpha=self.alpha, **given(loss_limit=self.loss_limit, gap_limit=self.gap_limit))
        check_rule("watch", "must lie between 0 and 1", alpha=self.alpha)
        check_counts(window=self.window)
        for name in ("columns", "parameters", "clients"):
            names = getattr(self, name)
            if names is None:
                continue
            if not isinstance(names, (list, tuple)) or not all(isinstance(one, str) for one in names) or not names:
                raise ValueError(f"watch: {name} must be a list of names; got {names!r}.")
            if len(set(names)) < len(names):
                raise ValueError(f"watch: {name} must name each once; got {names!r}.")
            object.__setattr__(self, name, tuple(names))
        if self.loss_range is not None:
            try:
                low, high = (float(end) for end in self.loss_range)
            except (TypeError, ValueError):
                raise ValueError(f"watch: loss_range must be (lowest, highest); got {self.loss_range!r}.") from None
            check_number("watch", loss_range=low)
            check_number("watch", loss_range=high)
            if not low < high:
                raise ValueError(f"watch: loss_range must be (lowest, highest), in order; got {self.loss_range!r}.")
            object.__setattr__(self, "loss_range", (low, high))

    def to_dict(self) -> dict[str, Any]:
        return dataclasses.asdict(self)
