"""`performative demo`: does deployment change my data, does retraining settle, what does ignoring it cost?"""

from pathlib import Path

from performative.demo.outcome import Outcome
from performative.demo.solve import run_demo

__all__ = ["Outcome", "run_demo", "write_demo"]


def write_demo(outcome: Outcome, folder: Path) -> dict[str, Path]:
    """demo.png and demo.html; each appears whole or not at all."""
    from performative.demo.figures import overview
    from performative.demo.page import page
    from performative.report import write_files

    return write_files(folder, {"PNG": ("demo.png", overview(outcome)), "HTML": ("demo.html", page(outcome))})
