"""Runs the blocks of one page: `python page_runner.py IN.json PICTURES RESULT.json`, in the folder to run them in.

All blocks share one namespace. The result has one entry a block; the last one carries `error` where a block failed.
"""

import contextlib
import io
import json
import linecache
import os
import subprocess
import sys
import traceback
import warnings
from pathlib import Path
from typing import Any

_PATIENCE = 300


def run_page(blocks: list[dict[str, str]], pictures: Path) -> list[dict[str, Any]]:
    """Blocks as {language, code, name}, run in order until one fails."""
    kept, results = _kept_pictures(blocks, pictures), []
    namespace: dict[str, Any] = {"__name__": "__main__"}
    for block in blocks:
        before, start, error = len(kept), _processor_seconds(), None
        text = io.StringIO()
        with contextlib.redirect_stdout(text), _told_warnings(text):
            try:
                _run(block, namespace, text)
            except (Exception, SystemExit) as reason:
                error = _explain(reason, block["name"])
        entry: dict[str, Any] = {"text": _readable(text.getvalue()), "pictures": kept[before:]}
        results.append(entry | {"seconds": round(_processor_seconds() - start, 2)})
        if error is not None:
            results[-1]["error"] = error
            break
    return results


def _kept_pictures(blocks: list[dict[str, str]], folder: Path) -> list[str]:
    """Names of pictures as they are saved; the library is left alone where no block saves any."""
    if not any("savefig" in block["code"] for block in blocks):
        return []
    import matplotlib

    matplotlib.use("Agg")
    matplotlib.rcParams["svg.hashsalt"] = "performative"
    from page_pictures import keep_pictures

    return keep_pictures(folder)


def _processor_seconds() -> float:
    """Spent by this process and those that it started: a busy machine does not change it."""
    used = os.times()
    return used.user + used.system + used.children_user + used.children_system


def _run(block: dict[str, str], namespace: dict[str, Any], text: io.StringIO) -> None:
    if block["language"] == "bash":
        done = subprocess.run(
            ["bash", "-euo", "pipefail", "-c", block["code"]],
            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=_PATIENCE,
        )  # fmt: skip
        text.write(done.stdout)
        if done.returncode:
            raise RuntimeError(f"exit code {done.returncode}\n{done.stdout}")
        return
    # Known to linecache, so that tracebacks and inspect.getsource find the lines.
    linecache.cache[block["name"]] = (len(block["code"]), None, block["code"].splitlines(True), block["name"])
    exec(compile(block["code"], block["name"], "exec"), namespace)


@contextlib.contextmanager
def _told_warnings(text: io.StringIO) -> Any:
    """Warnings are part of what a reader would see."""
    with warnings.catch_warnings():
        warnings.simplefilter("default", UserWarning)

        def show(message: Any, category: type, *_: Any, **__: Any) -> None:
            text.write(f"{category.__name__}: {message}\n")

        warnings.showwarning = show
        yield


def _explain(reason: BaseException, name: str) -> str:
    """The message and the line of the block that it came from."""
    rows = [frame.lineno for frame in traceback.extract_tb(reason.__traceback__) if frame.filename == name]
    where = f"line {rows[-1]} of the block: " if rows else ""
    return where + "".join(traceback.format_exception_only(reason)).strip()


def _readable(text: str) -> str:
    """Without the scratch folder's own path, and without spaces at line ends."""
    text = text.replace(os.getcwd() + os.sep, "").replace(os.getcwd(), ".")
    return "\n".join(line.rstrip() for line in text.split("\n"))


if __name__ == "__main__":
    given, folder, result = map(Path, sys.argv[1:])
    result.write_text(json.dumps(run_page(json.loads(given.read_text()), folder)))
