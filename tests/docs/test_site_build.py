"""What turns pages into a site: blocks that run, tables that are generated, a build that refuses."""

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("myst_nb")
ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT / "docs" / "_ext"))

import page_tables  # noqa: E402

HEAD = "---\nfile_format: mystnb\nkernelspec:\n  name: python3\n---\n\n# Title\n\n"
PAGE = """```{code-cell} python
x = 2
print("first", x)
x
```

```{code-cell} python
:tags: [hide-input]
:mystnb: {code_prompt_show: "Drawn", image: {alt: "A line."}}

import matplotlib.pyplot as plt
import warnings
figure, axes = plt.subplots()
axes.plot([0, x])
figure.savefig("line.svg")
warnings.warn("mind the gap", UserWarning)
```

```{code-cell} python
%%bash -euo pipefail
ls; echo $((1 + 1)) $COLUMNS
```
"""


def build(folder: Path, page: str) -> subprocess.CompletedProcess:
    """A site of one page, by the settings of ours."""
    (folder / "index.md").write_text(HEAD + page)
    command = [sys.executable, "-m", "sphinx", "-W", "-q", "-c", ROOT / "docs", "-d", folder / "trees"]
    cache = ["-D", f"nb_execution_cache_path={folder / 'cache'}"]
    return subprocess.run([*command, *cache, folder, folder / "site"], capture_output=True, text=True, timeout=300)


def test_a_page_runs_in_one_kernel_and_an_empty_folder(tmp_path):
    done = build(tmp_path, PAGE)
    assert not done.returncode, done.stderr
    shown = (tmp_path / "site" / "index.html").read_text()
    printed = [re.sub(r"<[^>]+>", "", text).strip() for text in re.findall(r"<pre>(.*?)</pre>", shown, flags=re.DOTALL)]
    assert {"first 2", "UserWarning: mind the gap", "line.svg\n2 88"} <= set(printed)
    assert len(printed) == 6, "three blocks and what they printed; the value of a last line is not shown"
    assert re.search(r'<img alt="A line\." src="_images/\w+\.svg"', shown) and "Drawn" in shown


def test_a_notebook_shows_values_and_figures(tmp_path):
    """As Jupyter does, beside pages that show what is printed."""
    draws = "import matplotlib.pyplot as plt\nplt.plot([0, 1]);"
    alt = {"mystnb": {"image": {"alt": "A rising line."}}}
    cells = [
        {"cell_type": "markdown", "id": "a", "metadata": {}, "source": "# Walk\n\n$\\theta_i$"},
        *(
            {"cell_type": "code", "id": key, "metadata": meta, "source": text, "outputs": [], "execution_count": None}
            for key, text, meta in (("b", "40 + 2", {}), ("c", draws, alt))
        ),
    ]
    kernel = {"display_name": "Python 3", "language": "python", "name": "python3"}
    notebook = {"cells": cells, "metadata": {"kernelspec": kernel}, "nbformat": 4, "nbformat_minor": 5}
    (tmp_path / "walk.ipynb").write_text(json.dumps(notebook))
    done = build(tmp_path, "```{code-cell} python\n40 + 3\n```\n\n```{toctree}\nwalk\n```\n")
    assert not done.returncode, done.stderr
    walk, page = ((tmp_path / "site" / f"{name}.html").read_text() for name in ("walk", "index"))
    plain = re.sub(r"<[^>]+>", "", walk)
    assert "42" in plain and re.search(r'<img alt="A rising line\." src="_images/\w+\.png"', walk)
    assert "43" not in re.sub(r"<[^>]+>", "", page)
    assert re.search(r"<math>\s*<msub>\s*<mi>θ</mi>", walk) and not re.search(r"<script[^>]*mathjax", walk, re.I)


@pytest.mark.parametrize(
    ("page", "told"),
    [
        ("```{code-cell} python\nprint(1)\n1 / 0\n```\n", "ZeroDivisionError"),
        pytest.param(
            "```{code-cell} python\n%%bash -euo pipefail\nfalse | true\n```\n",
            "CalledProcessError",
            marks=pytest.mark.slow,
        ),
        pytest.param("![far](https://flower.ai/x.png)\n", "from elsewhere", marks=pytest.mark.slow),
        pytest.param("[a page](nowhere.md)\n", "nowhere.md", marks=pytest.mark.slow),
        pytest.param("$\\nosuchsign$\n", "cannot be shown", marks=pytest.mark.slow),
        pytest.param("`claim:p_fedavg/fig1a#no-such-claim`\n", "no-such-claim", marks=pytest.mark.slow),
    ],
)
def test_a_page_is_refused(tmp_path, page, told):
    done = build(tmp_path, page)
    assert done.returncode and told in done.stderr


def test_the_table_of_theorems_has_every_result():
    from performative.theory.index import PAPERS, THEOREMS

    table = page_tables.theorems()
    for row in THEOREMS:
        assert f"| {row.number} |" in table
    assert "`pf.theory.theorem_3_1`" in table and "Theorem 3.1, Theorem 3.2, Theorem 3.3: what is corrected" in table
    assert table.count("\n| ") == len(THEOREMS) + 2 * len(PAPERS), "a bar in a cell would make another column"
    assert r"$E\, \left\vert \theta_{t} - \theta_{\text{PS}} \right\vert^{2} ,$" in table
    assert all(line.count("|") == 5 for line in table.split("\n") if line.startswith("| "))


def test_the_ledger_shows_every_claim(monkeypatch):
    from performative.papers import ledger

    rows = [
        {
            "key": f"{paper}/x#c", "paper": paper, "place": "Figure 1", "claim": "a < b", "how": "so", "number": "3",
            "verdict": verdict, "reason": "", "quick": False, "kind": kind, "statement": "s", "about": [],
        }
        for paper, kind, verdict in (
            ("p_fedavg", "paper", "reproduced"), ("p_fedavg", "paper", "refuted"), ("ours", "own", "holds")
        )
    ]  # fmt: skip
    monkeypatch.setattr(ledger, "read", lambda out=None: rows)
    shown = page_tables.generate("<!-- generate: ledger -->\n\n`claim:p_fedavg/x#c`")
    assert "| paper | claims | refuted | measurements |" in shown, "the worst of the measurements of one claim"
    assert "| **all** | 1 | 1 | 2 |" in shown and "### Our own results" in shown and "a &lt; b" in shown
    assert "(p-fedavg-x-c)=\n" in shown and "(ours-x-c)=\n" in shown and "[`p_fedavg/x#c`](#p-fedavg-x-c)" in shown


def test_marks_in_pages_have_a_table():
    """`entries` is no table: entries have examples, and the reference knows them."""
    texts = [path.read_text() for path in (ROOT / "docs").rglob("*.md")]
    marks = {name for text in texts for name in re.findall(r"^<!-- generate: (\w+)", text, flags=re.MULTILINE)}
    assert marks == {"entries", *page_tables.TABLES}


def test_the_table_of_parts_has_every_part_of_a_slot_once():
    """What a file may name in a slot is what the page lists, each with a link into the reference."""
    import performative as pf

    slots = (line.split(" | ") for line in page_tables.parts().split("\n")[2:])
    rows = {slot.removeprefix("| "): re.findall(r"\{py:obj\}`(\w+) <performative\.", cell) for slot, _, cell in slots}
    assert {"population", "batch", "estimator", "participation", "channel", "aggregator", "rate", "deploy"} <= set(rows)
    for slot, module in (("aggregator", pf.aggregators), ("channel", pf.channels), ("population", pf.populations)):
        things = {name: getattr(module, name) for name in module.__all__ if not name.startswith("Abstract")}
        assert sorted(rows[slot]) == sorted(name for name, thing in things.items() if isinstance(thing, type))
    assert "LocalWork" in rows["participation"] and "Exponential" not in rows["participation"]
    assert rows["rate"] == ["Power", "Table", "constant", "harmonic", "theorem"]
