"""The result of a sweep: one history per setting."""

import dataclasses
import itertools
import json
import math
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from jaxtyping import PyTree

from performative._base.arguments import checked
from performative._base.describe import describe
from performative._base.files import write_whole
from performative._base.frames_out import final_cell, frame_of, latex_table
from performative._base.notebook import card, picture_of
from performative.compare import is_random, paired
from performative.history import History, Measure
from performative.sweep.names import label_of, name_of

if TYPE_CHECKING:
    import xarray

_BOOK = "sweep.json"
_MOST_SHOWN = 20  # settings in a notebook


class Best(tuple[dict[str, Any], History]):
    """(setting, history) with the smallest mean, and the settings tied with it.

    Args:
        tied: settings not significantly worse, at a joint level of 95%; None if that is undecidable: with a single
            repeat, or a measure that is not one number per repeat
    """

    tied: list[dict[str, Any]] | None

    def __new__(cls, setting: dict[str, Any], history: History, tied: list[dict[str, Any]] | None) -> "Best":
        made = super().__new__(cls, (setting, history))
        made.tied = tied
        return made

    @property
    def setting(self) -> dict[str, Any]:
        return self[0]

    @property
    def history(self) -> History:
        return self[1]

    def __repr__(self) -> str:
        beside = "unknown" if self.tied is None else "; ".join(map(name_of, self.tied)) or "none"
        return f"Best({name_of(self.setting)}; tied with it: {beside})"


@dataclasses.dataclass(frozen=True)
class Sweep:
    """One history per setting, in the order of the grid."""

    over: dict[str, list[Any]]
    settings: list[dict[str, Any]]
    histories: list[History]
    programs: int  # number of compiled programs: settings that differ only in numbers share one

    def scores(self, metric: Measure = "distance_to_stable") -> np.ndarray:
        """Mean over repeats of the final value, one per setting; infinite if a repeat diverged."""
        return np.asarray([_score(history, metric) for history in self.histories])

    def best(self, metric: Measure = "distance_to_stable") -> Best:
        """The setting with the smallest mean final value, its history, and which others are tied with it.

        Settings are compared repeat by repeat, since they use common random numbers. The best is selected from the same
        data, so the intervals hold simultaneously for all pairs: Student's t, with Bonferroni over m (m - 1) / 2.
        """
        scores = self.scores(metric)
        if not np.any(np.isfinite(scores)):
            raise ValueError(f"every setting diverged, so there is no best one by {metric!r}.")
        first = int(np.nanargmin(scores))
        rivals = [i for i in range(len(scores)) if np.isfinite(scores[i])]
        return Best(self.settings[first], self.histories[first], self._tied(first, rivals, metric))

    def _tied(self, first: int, rivals: list[int], metric: Measure) -> list[dict[str, Any]] | None:
        if len(rivals) == 1:
            return []
        values = {str(i): np.asarray(_finals(self.histories[i], metric), np.float64) for i in rivals}
        repeats = self.histories[first].repeats
        if repeats == 1 or any(each.shape != (repeats,) for each in values.values()):
            return None
        random = {str(i) for i in rivals if is_random(self.histories[i])}
        chance = 0.05 / math.comb(len(rivals), 2)
        return [
            self.settings[i]
            for i in rivals
            if i != first and paired(values, (str(i), str(first)), chance, random).low <= 0
        ]

    @property
    def is_grid(self) -> bool:
        """Whether every combination of the values is present, in order."""
        rows = list(itertools.product(*self.over.values()))
        return len(rows) == len(self.settings) and all(
            list(setting) == list(self.over) and all(map(_same, setting.values(), row))
            for setting, row in zip(self.settings, rows, strict=True)
        )

    def to_xarray(self) -> "xarray.Dataset":
        """All histories, with one axis per swept name if they form a grid, else one axis of settings."""
        import xarray as xr

        columns = {name: _column([setting.get(name, "") for setting in self.settings]) for name in self.over}
        each = [history.to_xarray() for history in self.histories]
        joined = xr.concat(each, dim="setting", combine_attrs="drop", join="outer")
        if not self.is_grid:
            return joined.assign_coords({name: ("setting", column) for name, column in columns.items()})
        sizes = {name: len(values) for name, values in self.over.items()}
        values = {name: _column(values) for name, values in self.over.items()}
        made = {}
        for name, array in joined.data_vars.items():
            rest = {str(dim): size for dim, size in array.sizes.items() if dim != "setting"}
            cube = array.transpose("setting", *rest).to_numpy().reshape(*sizes.values(), *rest.values())
            made[name] = ((*sizes, *rest), cube)
        kept = {name: joined[name] for name in joined.coords if "setting" not in joined[name].dims}
        return xr.Dataset(made, coords=kept | values)

    @checked
    def to_frame(self, kind: str = "pandas") -> Any:
        """One row per setting, repeat and record: the swept values, `repeat`, `round`, and everything recorded.

        kind: "pandas", or "polars" if installed.
        """
        import pandas as pd

        frames = []
        for number, (setting, history) in enumerate(zip(self.settings, self.histories, strict=True)):
            mine = history.to_frame()
            labels = {name: label_of(setting.get(name, "")) for name in self.over}
            for place, (name, label) in enumerate({"setting": number, **labels}.items()):
                mine.insert(place, name, label)
            frames.append(mine)
        whole = pd.concat(frames, ignore_index=True)
        return frame_of({str(name): whole[name].to_numpy() for name in whole.columns}, kind)

    def to_latex(self, *names: str) -> str:
        """A LaTeX table (booktabs), one line per setting: mean and standard error over repeats of the final values of
        these quantities; by default "distance_to_stable" or the plotted quantity."""
        from performative.plotting import pick_quantity

        wanted = names or (pick_quantity(self.histories[0], None),)
        lines = [
            [*(str(label_of(setting.get(name, ""))) for name in self.over),
             *(final_cell(np.asarray(history[name][:, -1])) for name in wanted)]
            for setting, history in zip(self.settings, self.histories, strict=True)
        ]  # fmt: skip
        return latex_table([*self.over, *wanted], lines)

    @checked
    def save(self, folder: str | os.PathLike[str]) -> Path:
        """Write a folder: one NetCDF file per history, and last `sweep.json`, which lists them."""
        target = Path(folder)
        if target.exists() and not target.is_dir():
            raise ValueError(f"folder={str(target)!r} is a file; pass a folder.")
        target.mkdir(parents=True, exist_ok=True)
        files = [history.save(target / f"setting-{i:04d}.nc").name for i, history in enumerate(self.histories)]
        settings = [{name: describe(value) for name, value in setting.items()} for setting in self.settings]
        over = {name: [describe(value) for value in values] for name, values in self.over.items()}
        book = {"over": over, "settings": settings, "programs": self.programs, "histories": files}
        write_whole(target / _BOOK, json.dumps(book, indent=1).encode())
        return target

    @classmethod
    @checked
    def load(cls, folder: str | os.PathLike[str]) -> "Sweep":
        """Read what `save` wrote. Numbers and strings are restored, parts become their descriptions."""
        book = Path(folder) / _BOOK
        if not book.is_file():
            raise FileNotFoundError(f"folder={str(folder)!r}: there is no sweep; Sweep.save writes one.")
        try:
            told = json.loads(book.read_text())
            over, settings, programs = told["over"], told["settings"], told["programs"]
            files = [Path(folder) / Path(name).name for name in told["histories"]]
        except (ValueError, KeyError, TypeError):
            raise ValueError(f"folder={str(folder)!r}: {_BOOK} is not what Sweep.save wrote.") from None
        return cls(over, settings, [History.load(file) for file in files], programs)

    def _repr_html_(self) -> str:
        from performative.plotting import label_of, pick_quantity

        name = pick_quantity(self.histories[0], None)
        finals = [(name_of(one), f"{score:.4g}") for one, score in zip(self.settings, self.scores(name), strict=True)]
        left = len(finals) - _MOST_SHOWN
        more = [("...", f"and {left} more settings")] if left > 0 else []
        heading = ("setting", f"final {label_of(name, self.histories[0])}")
        compiled = f"{self.programs} compiled program{'s' * (self.programs != 1)}"
        head = f"Sweep over {', '.join(self.over)}: {len(self.settings)} settings, {compiled}"
        return card(
            head, [heading, *finals[:_MOST_SHOWN], *more], picture=picture_of(self.plot(), "one line per setting")
        )

    @checked
    def plot(self, quantity: str | None = None, kind: str = "lines", ax: Any = None) -> Any:
        """Plot kind="lines": one line per setting against rounds. "heatmap": final values over two swept names."""
        from performative.sweep.pictures import plot_sweep

        return plot_sweep(self, quantity, kind, ax)


def _column(values: list[Any]) -> list[Any]:
    labels = [label_of(value) for value in values]
    return [str(label) for label in labels] if any(isinstance(label, str) for label in labels) else labels


def _score(history: History, metric: Measure) -> float:
    if history.status not in ("completed", "stopped"):
        return float("inf")
    return float(np.mean(_finals(history, metric)))


def _finals(history: History, metric: Measure) -> Any:
    return metric(history) if callable(metric) else history[metric][:, -1]


def _same(one: PyTree, other: PyTree) -> bool:
    return one is other or bool(np.array_equal(one, other))
