"""Plots of sweeps."""

from collections.abc import Mapping, Sequence
from typing import Any, Protocol, runtime_checkable

import numpy as np

from performative.plotting import Recorded, axes_of, pick_quantity, plot_history
from performative.sweep.names import name_of

# Maximum number of lines in a legend; more are distinguished only by color.
_LEGEND = 12


@runtime_checkable
class Swept(Protocol):
    """What a plot needs from a `Sweep`."""

    @property
    def over(self) -> Mapping[str, Sequence[Any]]: ...

    @property
    def settings(self) -> Sequence[dict[str, Any]]: ...

    @property
    def is_grid(self) -> bool: ...

    @property
    def histories(self) -> Sequence[Recorded]: ...

    def scores(self, quantity: str) -> np.ndarray: ...


def plot_sweep(sweep: Swept, quantity: str | None, kind: str, ax: Any) -> Any:
    """Matplotlib axes with one line per setting, or a heatmap of final values."""
    if kind not in ("lines", "heatmap"):
        raise ValueError(f'kind must be "lines" or "heatmap"; got {kind!r}.')
    ax = axes_of("Sweep.plot", ax, (7.2, 4.2))
    return _lines(sweep, quantity, ax) if kind == "lines" else _heatmap(sweep, quantity, ax)


def _lines(sweep: Swept, quantity: str | None, ax: Any) -> Any:
    from matplotlib import colormaps

    count = len(sweep.settings)
    colors = colormaps["viridis"](np.linspace(0, 0.9, count))
    ax.set_prop_cycle(color=colors)
    for setting, history in zip(sweep.settings, sweep.histories, strict=True):
        plot_history(history, quantity, ax, name_of(setting))
    if count > 1 and count <= _LEGEND:
        ax.legend(loc="center left", bbox_to_anchor=(1.01, 0.5), frameon=False)
    elif ax.get_legend() is not None:
        ax.get_legend().remove()
    return ax


def _heatmap(sweep: Swept, quantity: str | None, ax: Any) -> Any:
    names = [name for name, values in sweep.over.items() if len(values) > 1]
    if len(names) != 2 or not sweep.is_grid:
        told = ", ".join(f"{name} ({len(values)})" for name, values in sweep.over.items())
        raise ValueError(f'kind="heatmap" needs a grid of two names with several values each; got {told}.')
    name = pick_quantity(sweep.histories[0], quantity)
    sizes = [len(values) for values in sweep.over.values()]
    finals = sweep.scores(name).reshape(sizes)
    finals = np.squeeze(finals, axis=tuple(i for i, size in enumerate(sizes) if size == 1))
    if not np.any(np.isfinite(finals)):
        raise ValueError("every setting diverged, so there are no final values to plot.")
    shown = np.where(np.isfinite(finals), finals, np.nan)
    image = ax.imshow(shown, origin="lower", aspect="auto", cmap="viridis")
    ax.figure.colorbar(image, ax=ax, label=f"final {name.replace('_', ' ')}")
    for axis, swept in ((ax.yaxis, names[0]), (ax.xaxis, names[1])):
        labels = [name_of({"": value})[1:] for value in sweep.over[swept]]
        axis.set_ticks(range(len(labels)), labels=labels)
        axis.set_label_text(swept)
    middle = (np.nanmin(shown) + np.nanmax(shown)) / 2
    for place in np.ndindex(shown.shape):
        dark = shown[place] < middle
        told = f"{shown[place]:.3g}" if np.isfinite(shown[place]) else "diverged"
        ax.text(place[1], place[0], told, ha="center", va="center", color="white" if dark else "black", fontsize=8)
    return ax
