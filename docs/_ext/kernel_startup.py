"""Runs first in the kernel of a page: commands print without colors, warnings name no location in a scratch file, and
pictures saved by a block appear below it. Notebooks show figures and values as Jupyter does."""


def _start() -> None:  # keeps these names out of the page's namespace
    import os
    import warnings
    from pathlib import Path

    from IPython.display import SVG, Image, display

    for name in ("FORCE_COLOR", "CLICOLOR", "CLICOLOR_FORCE"):  # kernels set these for their subprocesses
        os.environ.pop(name, None)
    os.environ["TERM"] = "dumb"
    warnings.formatwarning = lambda message, category, *_, **__: f"{category.__name__}: {message}\n"
    if get_ipython().ast_node_interactivity != "none":  # noqa: F821  a notebook, see conf.py
        os.environ["MPLBACKEND"] = "module://matplotlib_inline.backend_inline"
        return
    shown: set[Path] = set()

    def show_pictures(_) -> None:
        new = {*Path().glob("*.svg"), *Path().glob("*.png")} - shown
        for path in sorted(new, key=os.path.getmtime):
            display(SVG(filename=path) if path.suffix == ".svg" else Image(filename=path))
        shown.update(new)

    get_ipython().events.register("post_run_cell", show_pictures)  # noqa: F821  defined by the kernel


_start()
