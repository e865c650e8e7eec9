"""`performative demo`: does deployment change my data, does retraining settle, what does ignoring it cost?"""

from pathlib import Path

from performative.cli.demonstration.outcome import Outcome
from performative.cli.demonstration.solve import run_demo

__all__ = ["Outcome", "run_demo", "write_demo"]


def write_demo(outcome: Outcome, folder: Path) -> dict[str, Path]:
    """Write demo.png and demo.html, each atomically."""
    from performative.cli.demonstration.figures import pictures
    from performative.cli.demonstration.page import page
    from performative.cli.demonstration.words import QUESTIONS
    from performative.report import write_files
    from performative.report.drawing import png

    overview = png(pictures(outcome), QUESTIONS)
    return write_files(folder, {"PNG": ("demo.png", overview), "HTML": ("demo.html", page(outcome))})
