"""Figures and pages written by commands, and `write`: one interactive HTML file of a result."""

import os
from pathlib import Path

from performative.report.writing import write


def write_files(folder: Path, files: dict[str, tuple[str, bytes]]) -> dict[str, Path]:
    """Write {kind: (name, content)} into a folder: all to temporary files first, then renamed."""
    folder.mkdir(parents=True, exist_ok=True)
    parts = []
    for name, content in files.values():
        part = folder / f".{name}.part"
        part.write_bytes(content)
        parts.append((part, folder / name))
    for part, target in parts:
        os.replace(part, target)
    return {kind: folder / name for kind, (name, _) in files.items()}


__all__ = ["write", "write_files"]
