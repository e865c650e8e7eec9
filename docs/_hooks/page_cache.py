"""What the blocks of pages gave, kept by a hash of all that it depends on."""

import dataclasses
import glob
import hashlib
import json
import os
import shutil
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from page_blocks import Block, Output, read_blocks

ROOT = Path(__file__).parents[2]
CACHE = ROOT / ".cache" / "docs"
_HERE = Path(__file__).parent
_PATIENCE = 600
_AT_ONCE = 2


class BlockFailed(Exception):
    """A page, a block of it, and what went wrong."""


@dataclasses.dataclass(frozen=True)
class Executed:
    """What the blocks of a page gave, the folder that their pictures lie in, and their processor seconds."""

    outputs: list[Output]
    folder: Path
    seconds: float

    def picture(self, name: str, theme: str) -> Path:
        return next(self.folder.glob(f"{glob.escape(name)}-{theme}.*"))


def execute_pages(pages: dict[str, str]) -> dict[str, Executed]:
    """What the blocks of pages {name: markdown} gave, run where it is not known. All failures are told at once."""
    package = _package_digest()
    wanted: dict[str, tuple[Path, list[Block]]] = {}
    for page, markdown in pages.items():
        try:
            blocks = [block for block in read_blocks(markdown) if block.runs and not block.indent]
        except ValueError as error:
            raise BlockFailed(f"{page}: {error}") from error
        if blocks:
            wanted[page] = (CACHE / _digest(package, blocks), blocks)
    missing = [page for page, (folder, _) in wanted.items() if not (folder / "result.json").exists()]
    with ThreadPoolExecutor(_AT_ONCE) as pool:
        failures = list(filter(None, pool.map(lambda page: _execute(page, *wanted[page]), missing)))
    if failures:
        raise BlockFailed("\n".join(failures))
    _forget({folder.name for folder, _ in wanted.values()})
    return {page: _read(folder) for page, (folder, _) in wanted.items()}


def _execute(page: str, folder: Path, blocks: list[Block]) -> str | None:
    """Run a page in a process and a folder of its own; None, or what failed."""
    with tempfile.TemporaryDirectory(prefix="performative-docs-") as scratch:
        work, kept = Path(scratch) / "work", Path(scratch) / "kept"
        work.mkdir()
        kept.mkdir()
        given = [
            {"language": b.language, "code": b.code, "name": f"<{page}, block {i}>"} for i, b in enumerate(blocks, 1)
        ]
        (Path(scratch) / "blocks.json").write_text(json.dumps(given))
        result = kept / "result.json"
        command = [sys.executable, str(_HERE / "page_runner.py"), "../blocks.json", str(kept), str(result)]
        try:
            done = subprocess.run(
                command, cwd=work, env=_environment(), capture_output=True, text=True, timeout=_PATIENCE
            )
        except subprocess.TimeoutExpired:
            return f"{page}: the blocks of this page ran for more than {_PATIENCE} s."
        if done.returncode:
            return f"{page}: the process that ran its blocks ended with {done.returncode}.\n{done.stderr[-2000:]}"
        entries = json.loads(result.read_text())
        if "error" in entries[-1]:
            line = blocks[len(entries) - 1].first + 1
            return f"{page}: block {len(entries)} (line {line}): {entries[-1]['error']}"
        CACHE.mkdir(parents=True, exist_ok=True)
        shutil.rmtree(folder, ignore_errors=True)
        shutil.copytree(kept, folder)
    return None


def _environment() -> dict[str, str]:
    """A plain terminal of 88 columns on a CPU; the tools of this environment come first."""
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", "")])
    plain = {"COLUMNS": "88", "NO_COLOR": "1", "TERM": "dumb", "MPLBACKEND": "Agg", "JAX_PLATFORMS": "cpu"}
    # Blocks are small: they compile for seconds and run for milliseconds.
    quick = {"JAX_DISABLE_MOST_OPTIMIZATIONS": "1", "PYTHONHASHSEED": "0"}
    return {**os.environ, **plain, **quick, "PATH": path}


def _read(folder: Path) -> Executed:
    entries = json.loads((folder / "result.json").read_text())
    outputs = [Output(entry["text"], tuple(entry["pictures"])) for entry in entries]
    return Executed(outputs, folder, sum(entry["seconds"] for entry in entries))


def _digest(package: str, blocks: list[Block]) -> str:
    told: list[Any] = [package, [(block.language, block.code) for block in blocks]]
    return hashlib.sha256(json.dumps(told).encode()).hexdigest()[:24]


def _package_digest() -> str:
    """Of the package and of what runs the blocks. DOCS_STALE=1 leaves the package out, for those who write pages."""
    runners = [_HERE / "page_runner.py", _HERE / "page_pictures.py"]
    package = [] if os.environ.get("DOCS_STALE") == "1" else sorted((ROOT / "src" / "performative").rglob("*"))
    total = hashlib.sha256(sys.version.encode())
    for path in [*runners, *package]:
        # No block uses the experiments, and their verdicts change with every run of them.
        if path.suffix in (".py", ".toml", ".json") and "experiments" not in path.parts:
            total.update(path.read_bytes())
    return total.hexdigest()


def _forget(used: set[str]) -> None:
    """Results that no page asks for any more."""
    for folder in CACHE.iterdir() if CACHE.exists() else ():
        if folder.name not in used:
            shutil.rmtree(folder, ignore_errors=True)
