"""A picture that a block saves is kept twice: for a light page and for a dark one."""

from pathlib import Path
from typing import Any

DARK = {"ink": "#d7dae3", "paper": "none"}
# What matplotlib and the package's own style draw text, axes and reference lines with.
_INK = 0.35
_PAPER = 0.93
_READABLE = 0.6
# An SVG beyond this is slower to draw than its PNG.
_LARGE = 400_000


def keep_pictures(folder: Path) -> list[str]:
    """From now on `Figure.savefig` also writes NAME-light and NAME-dark into `folder`; returns the list of names."""
    from matplotlib.figure import Figure

    kept: list[str] = []
    save = Figure.savefig

    def both(figure: Any, target: Any, *args: Any, **options: Any) -> None:
        save(figure, target, *args, **options)
        if not isinstance(target, (str, Path)):
            return
        name = Path(target).stem
        if name not in kept:
            kept.append(name)
        figure.patch.set_alpha(0)
        _write(save, figure, folder / f"{name}-light")
        undo = _recolor(figure)
        try:
            _write(save, figure, folder / f"{name}-dark")
        finally:
            for setter, value in reversed(undo):
                setter(value)

    Figure.savefig = both  # type: ignore[method-assign]  # the point: blocks call savefig as anyone would
    return kept


def _write(save: Any, figure: Any, path: Path) -> None:
    svg = path.with_suffix(".svg")
    save(figure, svg, metadata={"Date": None}, transparent=False)
    if svg.stat().st_size > _LARGE:
        save(figure, path.with_suffix(".png"), dpi=180)
        svg.unlink()


def _recolor(figure: Any) -> list[tuple[Any, Any]]:
    """Dark grays become light and white becomes clear; returns what undoes it."""
    undo: list[tuple[Any, Any]] = []

    def change(artist: Any, what: str) -> None:
        getter, setter = getattr(artist, f"get_{what}", None), getattr(artist, f"set_{what}", None)
        if getter is None or setter is None:
            return
        before = getter()
        after = _turned(before)
        if after is not None:
            undo.append((setter, before))
            setter(after)

    artists = figure.findobj()
    # The arrow of an annotation is not among its children.
    for artist in [*artists, *(a.arrow_patch for a in artists if getattr(a, "arrow_patch", None) is not None)]:
        for what in ("color", "facecolor", "edgecolor", "markeredgecolor", "markerfacecolor"):
            change(artist, what)
    return undo


def _turned(color: Any) -> Any:
    """The color for a dark page, None where it can stay."""
    from matplotlib.colors import is_color_like, to_rgba

    if not is_color_like(color) or (isinstance(color, str) and color in ("none", "auto")):
        # A collection has a list of colors; one of them is turned, many stay as they are.
        try:
            color = tuple(color[0]) if len(color) == 1 else None
        except TypeError:
            return None
        if color is None or not is_color_like(color):
            return None
    *rgb, alpha = to_rgba(color)
    gray = max(rgb) - min(rgb) < 0.12
    if alpha == 0:
        return None
    if not gray:
        light = sum(weight * part for weight, part in zip((0.2126, 0.7152, 0.0722), rgb, strict=True))
        # Towards white until it can be read on a dark page.
        share = max(0.0, (_READABLE - light) / (1 - light))
        return (*(part + share * (1 - part) for part in rgb), alpha) if share else None
    if max(rgb) <= _INK:
        return (*to_rgba(DARK["ink"])[:3], alpha)
    return (0.0, 0.0, 0.0, 0.0) if min(rgb) >= _PAPER else None
