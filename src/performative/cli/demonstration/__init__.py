"""`performative demo`: does deployment change my data, does retraining settle, what does ignoring it cost?"""

from pathlib import Path

from performative.cli.demonstration.outcome import Outcome
from performative.cli.demonstration.solve import run_demo

__all__ = ["Outcome", "run_demo", "write_demo"]


def write_demo(outcome: Outcome, folder: Path) -> dict[str, Path]:
    """demo.png and demo.html; each appears whole or not at all."""
    from performative.cli.demonstration.figures import overview
    from performative.cli.demonstration.page import page
    from performative.report import write_files

    return write_files(folder, {"PNG": ("demo.png", overview(outcome)), "HTML": ("demo.html", page(outcome))})
