"""Charts of where recipes settle."""

from typing import Any, Protocol, runtime_checkable

import numpy as np

from performative.moments.outcome import VERDICTS, Radii, verdict_of
from performative.plotting import COLORS, axes_of

# Settles, in the mean only, runs away: light, medium and dark, for color-blind readers and black-and-white print.
_FILLS = ("#D6E9F8", "#F7D17E", "#8C5A6E")
_LABELS = {
    "rate": "step size",
    "local_steps": "local steps in a round",
    "sensitivity": "sensitivity",
    "decay": "momentum",
}
# Radii beyond this look the same: only their contour at one is drawn.
_LARGE = 2.0
# Up to this many integers each get a tick.
_TICKS = 12


@runtime_checkable
class Charted(Protocol):
    """What a chart needs from a `Stability`."""

    @property
    def over(self) -> dict[str, list[Any]]: ...

    @property
    def radii(self) -> list[Radii]: ...


def plot_stability(found: Charted, ax: Any) -> Any:
    """A map over two names (the first on the horizontal axis), or lines over one."""
    names = [name for name, values in found.over.items() if len(values) > 1]
    sizes = [len(values) for values in found.over.values()]
    if not 1 <= len(names) <= 2 or int(np.prod(sizes)) != len(found.radii):
        raise ValueError(f"plot needs a grid of one or two names with several values each; got {sorted(found.over)}.")
    ax = axes_of("Stability.plot", ax, (6.4, 4.4))
    radii = np.asarray(found.radii).reshape([*(size for size in sizes if size > 1), 2])
    radii = np.nan_to_num(radii, nan=_LARGE, posinf=_LARGE)
    for axis, name in enumerate(names):
        radii = np.take(radii, np.argsort(_places(found.over[name]), kind="stable"), axis=axis)
    return _lines(found, names[0], radii, ax) if len(names) == 1 else _map(found, names, radii, ax)


def _lines(found: Charted, name: str, radii: np.ndarray, ax: Any) -> Any:
    x = np.sort(_places(found.over[name]))
    for k, (label, color) in enumerate(zip(("of the mean", "of second moments"), COLORS, strict=False)):
        ax.plot(x, radii[:, k], color=color, linestyle=("-", "--")[k], label=label)
    ax.axhline(1.0, color="black", linewidth=0.8, linestyle=":")
    ax.set_ylim(0.0, max(1.2, min(_LARGE, 1.05 * float(radii.max()))))
    _dress(ax.xaxis, name, found.over[name])
    ax.set_ylabel("spectral radius of a round")
    ax.legend(frameon=False)
    return ax


def _map(found: Charted, names: list[str], radii: np.ndarray, ax: Any) -> Any:
    from matplotlib.colors import ListedColormap
    from matplotlib.patches import Patch

    x, y = (np.sort(_places(found.over[name])) for name in names)
    kind = np.asarray([[VERDICTS.index(verdict_of(Radii(*cell))) for cell in row] for row in radii]).T
    cells = (_edges(places, found.over[name]) for places, name in zip((x, y), names, strict=True))
    ax.pcolormesh(*cells, kind, cmap=ListedColormap(_FILLS), vmin=0, vmax=2)
    if not any(_is_whole(found.over[name]) for name in names):  # there is no boundary between integers
        # On a log scale the radius of second moments is twice that of the mean if noise adds nothing to it.
        levels = np.log(np.clip(radii, 1e-3, _LARGE))
        for k, line in enumerate(("-", "--")[: 1 + int((kind == 1).any())]):
            if levels[..., k].min() < 0.0 < levels[..., k].max():
                ax.contour(x, y, levels[..., k].T, levels=[0.0], colors="0.15", linestyles=line, linewidths=1.0)
    for axis, name in zip((ax.xaxis, ax.yaxis), names, strict=True):
        _dress(axis, name, found.over[name])
    ax.legend(
        handles=[
            Patch(facecolor=fill, edgecolor="0.4", linewidth=0.5, label=word)
            for fill, word in zip(_FILLS, VERDICTS, strict=True)
        ],
        loc="lower center", bbox_to_anchor=(0.5, 1.0), ncols=3, frameon=False, fontsize=8, handlelength=1.2,
        columnspacing=1.2,
    )  # fmt: skip
    return ax


def _is_numbers(values: list[Any]) -> bool:
    return all(isinstance(value, int | float | np.number) for value in values)


def _is_whole(values: list[Any]) -> bool:
    return not _is_numbers(values) or all(float(value).is_integer() for value in values)


def _places(values: list[Any]) -> np.ndarray:
    """Positions of values on an axis: numbers at their value, others in sequence."""
    return np.asarray(values if _is_numbers(values) else range(len(values)), float)


def _is_geometric(values: list[Any]) -> bool:
    """Whether numbers grow geometrically rather than linearly, over more than a decade."""
    if not _is_numbers(values) or len(values) < 4 or min(values) <= 0 or max(values) < 10 * min(values):
        return False
    places = np.sort(_places(values))
    return bool(np.ptp(np.diff(np.log(places))) < np.ptp(np.diff(places)) / places.mean())


def _edges(places: np.ndarray, values: list[Any]) -> np.ndarray:
    """Cell boundaries, halfway between places on their axis."""
    at = np.log(places) if _is_geometric(values) else places
    between = (at[1:] + at[:-1]) / 2
    edges = np.concatenate([[2 * at[0] - between[0]], between, [2 * at[-1] - between[-1]]])
    return np.exp(edges) if _is_geometric(values) else edges


def _dress(axis: Any, name: str, values: list[Any]) -> None:
    from matplotlib.ticker import MaxNLocator, NullLocator

    last = name.split(".")[-1]
    axis.set_label_text(_LABELS.get(last, last.replace("_", " ")))
    if _is_geometric(values):
        (axis.axes.set_xscale if axis.axis_name == "x" else axis.axes.set_yscale)("log")
    if _is_whole(values) and len(values) <= _TICKS:
        places = _places(values)
        axis.set_ticks(places, [f"{value:g}" if _is_numbers(values) else str(value) for value in values])
        axis.set_minor_locator(NullLocator())
    elif _is_whole(values) and not _is_geometric(values):
        axis.set_major_locator(MaxNLocator(integer=True))
