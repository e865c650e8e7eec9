"""The notebooks run from the first cell to the last, say nothing on standard error, and are kept without outputs."""

import json
import re
from pathlib import Path

import pytest

nbformat = pytest.importorskip("nbformat", reason="the extra performative[docs] is not installed")
nbclient = pytest.importorskip("nbclient", reason="the extra performative[docs] is not installed")
FOLDER = Path(__file__).parents[1] / "docs" / "notebooks"
NOTEBOOKS = sorted(path.stem for path in FOLDER.glob("*.ipynb"))


def test_there_are_six_and_all_are_listed():
    assert len(NOTEBOOKS) == 6
    index = (FOLDER / "index.md").read_text(encoding="utf-8")
    assert all(index.count(f"]({name}.ipynb)") == 1 and f"\n{name}\n" in index for name in NOTEBOOKS)


@pytest.mark.parametrize("name", NOTEBOOKS)
def test_it_is_kept_without_outputs(name):
    text = (FOLDER / f"{name}.ipynb").read_text(encoding="utf-8")
    notebook = json.loads(text)
    nbformat.validate(notebook)
    assert len(text) < 10_000 and notebook["metadata"]["kernelspec"]["name"] == "python3"
    code = [cell for cell in notebook["cells"] if cell["cell_type"] == "code"]
    assert all(cell["outputs"] == [] and cell["execution_count"] is None for cell in code)
    lines = [line.rstrip("\n") for cell in code for line in cell["source"]]
    assert max(map(len, lines)) <= 100
    assert notebook["cells"][0]["source"][0].startswith("# "), "it begins with a title"
    linked = re.findall(r"\]\(([^)#:]+)\)", "".join(line for cell in notebook["cells"] for line in cell["source"]))
    assert not [link for link in linked if not (FOLDER / link).is_file()]


@pytest.mark.slow
@pytest.mark.parametrize("name", NOTEBOOKS)
def test_it_runs(name, tmp_path):
    if "federation" in name:
        pytest.importorskip("flwr", reason="the extra performative[flower] is not installed")
    notebook = nbformat.read(FOLDER / f"{name}.ipynb", as_version=4)
    where = {"metadata": {"path": str(tmp_path)}}
    nbclient.NotebookClient(notebook, timeout=300, resources=where).execute()
    code = [cell for cell in notebook.cells if cell.cell_type == "code"]
    said = [out.text for cell in code for out in cell.outputs if out.output_type == "stream" and out.name == "stderr"]
    assert said == []
    shown = {kind for cell in code for out in cell.outputs for kind in out.get("data", {})}
    assert "image/png" in shown, "a picture"
    assert "text/html" in shown or "federation" in name, "a card or a table"
    for cell in code:
        drawn = any("image/png" in out.get("data", {}) for out in cell.outputs)
        alt = cell.metadata.get("mystnb", {}).get("image", {}).get("alt", "")
        assert (len(alt) > 30) == drawn, f"a picture has a description, and nothing else has:\n{cell.source}"
