"""Pictures of where recipes settle."""

from typing import Any, Protocol, runtime_checkable

import numpy as np

from performative.moments.outcome import Radii
from performative.plotting import COLORS, axes_of

# Settles, in the mean only, runs away.
_FILLS = ("#CFE8DC", "#FBE3B4", "#F3C6B5")
_WORDS = ("settles", "settles in the mean only", "runs away")


@runtime_checkable
class Charted(Protocol):
    """What a chart takes of a `Stability`."""

    @property
    def over(self) -> dict[str, list[Any]]: ...

    @property
    def radii(self) -> list[Radii]: ...


def plot_stability(found: Charted, ax: Any) -> Any:
    """A map over two names (the first across), or lines over one."""
    names = [name for name, values in found.over.items() if len(values) > 1]
    sizes = [len(values) for values in found.over.values()]
    if not 1 <= len(names) <= 2 or int(np.prod(sizes)) != len(found.radii):
        raise ValueError(f"plot needs a grid of one or two names with several values each; got {sorted(found.over)}.")
    ax = axes_of("Stability.plot", ax, (6.4, 4.2))
    radii = np.asarray(found.radii).reshape([*(size for size in sizes if size > 1), 2])
    return _lines(found, names[0], radii, ax) if len(names) == 1 else _map(found, names, radii, ax)


def _lines(found: Charted, name: str, radii: np.ndarray, ax: Any) -> Any:
    x = np.asarray(found.over[name], float)
    for k, (label, color) in enumerate(zip(("mean", "second moments"), COLORS, strict=False)):
        ax.plot(x, radii[:, k], color=color, label=label)
    ax.axhline(1.0, color="black", linewidth=0.8, linestyle="--")
    ax.set_ylim(0.0, max(1.2, min(2.0, float(np.nanmax(radii)))))
    ax.set_xlabel(name)
    ax.set_ylabel("spectral radius of a round")
    ax.legend(frameon=False)
    return ax


def _map(found: Charted, names: list[str], radii: np.ndarray, ax: Any) -> Any:
    from matplotlib.colors import ListedColormap
    from matplotlib.patches import Patch

    x, y = (np.asarray(found.over[name], float) for name in names)
    kind = np.where(radii[..., 0] >= 1.0, 2, np.where(radii[..., 1] >= 1.0, 1, 0)).T
    ax.pcolormesh(x, y, kind, cmap=ListedColormap(_FILLS), vmin=0, vmax=2, shading="nearest")
    capped = np.minimum(radii, 2.0)
    for k, (color, line) in enumerate(((COLORS[1], "--"), (COLORS[0], "-"))):
        if capped[..., k].min() < 1.0 < capped[..., k].max():
            ax.contour(x, y, capped[..., k].T, levels=[1.0], colors=color, linestyles=line, linewidths=1.4)
    ax.set_xlabel(names[0])
    ax.set_ylabel(names[1])
    ax.legend(
        handles=[Patch(color=fill, label=word) for fill, word in zip(_FILLS, _WORDS, strict=True)],
        loc="upper right", fontsize=8, framealpha=0.9,
    )  # fmt: skip
    return ax
