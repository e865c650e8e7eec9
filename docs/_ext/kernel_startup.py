"""Runs first in the kernel of a page: commands print without colors, warnings name no place in a scratch file, and
pictures that a block saves stand below it."""


def _start() -> None:  # a page finds no names but its own
    import os
    import warnings
    from pathlib import Path

    from IPython.display import SVG, Image, display

    for name in ("FORCE_COLOR", "CLICOLOR", "CLICOLOR_FORCE"):  # which kernels set for the programs that they start
        os.environ.pop(name, None)
    os.environ["TERM"] = "dumb"
    warnings.formatwarning = lambda message, category, *_, **__: f"{category.__name__}: {message}\n"
    shown: set[Path] = set()

    def show_pictures(_) -> None:
        new = {*Path().glob("*.svg"), *Path().glob("*.png")} - shown
        for path in sorted(new, key=os.path.getmtime):
            display(SVG(filename=path) if path.suffix == ".svg" else Image(filename=path))
        shown.update(new)

    get_ipython().events.register("post_run_cell", show_pictures)  # noqa: F821  a kernel has it


_start()
