"""What turns pages into a site: blocks that run, tables that are generated, a build that refuses."""

import re
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

pytest.importorskip("mkdocs")
ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT / "docs" / "_hooks"))

import page_cache  # noqa: E402
import page_tables  # noqa: E402
import site_hook  # noqa: E402
from mkdocs.exceptions import PluginError  # noqa: E402
from page_blocks import Output, read_blocks, with_outputs  # noqa: E402

PAGE = """# Title

```python
x = 2
print("first", x)
```

```python no-run
raise SystemExit
```

- a list

    ```python
    raise SystemExit
    ```

```python fold title="Drawn" alt="A line."
import matplotlib.pyplot as plt
import warnings
figure, ax = plt.subplots()
ax.plot([0, x], color="black")
figure.savefig("line.png")
warnings.warn("mind the gap", UserWarning)
```

```bash run
ls; echo $((1 + 1))
```
"""


@pytest.fixture
def empty_cache(tmp_path, monkeypatch):
    monkeypatch.setattr(page_cache, "CACHE", tmp_path / "cache")
    # Else a change of the package while the test runs would count.
    monkeypatch.setenv("DOCS_STALE", "1")
    return tmp_path / "cache"


def test_blocks_run_in_one_namespace_and_are_kept(empty_cache, monkeypatch):
    result = page_cache.execute_pages({"page.md": PAGE})["page.md"]
    assert result.outputs == [
        Output("first 2\n", ()),
        Output("UserWarning: mind the gap\n", ("line",)),
        Output("line.png\n2\n", ()),
    ]
    light, dark = (result.picture("line", theme).read_text() for theme in ("light", "dark"))
    assert light != dark and "#d7dae3" in dark and "#d7dae3" not in light
    monkeypatch.setattr(page_cache, "_execute", lambda *_: pytest.fail("it was known already"))
    assert page_cache.execute_pages({"page.md": PAGE})["page.md"] == result
    assert page_cache.execute_pages({}) == {}
    assert not any(empty_cache.iterdir()), "what no page asks for is forgotten"


def test_what_is_kept_depends_on_the_package_unless_a_writer_says_otherwise(tmp_path, monkeypatch):
    monkeypatch.setattr(page_cache, "ROOT", tmp_path)
    source = tmp_path / "src" / "performative" / "a.py"
    source.parent.mkdir(parents=True)
    digests = []
    for stale, text in (("", "x = 1"), ("", "x = 2"), ("1", "x = 1"), ("1", "x = 2")):
        monkeypatch.setenv("DOCS_STALE", stale)
        source.write_text(text)
        digests.append(page_cache._package_digest())
    assert digests[0] != digests[1] and digests[2] == digests[3]


def test_a_block_that_fails_is_named_with_page_line_and_error(empty_cache):
    with pytest.raises(page_cache.BlockFailed) as failure:
        page_cache.execute_pages({"bad.md": "```python\ny = 1\n```\n\ntext\n\n```python\ny += 1\ny / 0\n```\n"})
    assert str(failure.value) == "bad.md: block 2 (line 7): line 2 of the block: ZeroDivisionError: division by zero"
    with pytest.raises(page_cache.BlockFailed, match=r"open\.md: line 1: the block that begins here has no end"):
        page_cache.execute_pages({"open.md": "```python\nx = 1\n"})


def test_a_shell_block_that_fails_is_named_too(empty_cache):
    with pytest.raises(page_cache.BlockFailed, match=r"block 1 \(line 1\): RuntimeError: exit code 3"):
        page_cache.execute_pages({"bad.md": "```bash run\nexit 3\n```\n"})


def test_outputs_stand_below_their_blocks():
    outputs = [Output("first 2\n", ()), Output("a ``` fence\n", ("line",)), Output("", ())]
    shown = with_outputs(PAGE, outputs, lambda name, theme: f"made/{name}-{theme}.svg")
    assert shown.index('print("first", x)') < shown.index("\nfirst 2\n") < shown.index("- a list")
    picture = "![A line.](made/line-light.svg#only-light)![A line.](made/line-dark.svg#only-dark)"
    assert shown.index("\na ``` fence\n") < shown.index(picture) < shown.index('??? code "Drawn"')
    assert "    figure, ax = plt.subplots()" in shown and "```````\n" in shown
    assert "no-run" not in shown and "```bash\n" in shown


def test_long_prose_is_wrapped_and_tables_are_not():
    prose, table = "  - " + "word " * 30, "cell   " * 30
    shown = with_outputs("```python\nx\n```", [Output(f"{prose}\n{table}\n", ())], lambda *_: "")
    assert max(map(len, shown.replace(table.rstrip(), "").split("\n"))) <= 92
    assert "\n    word" in shown and table.rstrip() in shown


def test_the_reference_is_what_is_found(tmp_path):
    nav = [{"Start": "index.md"}, {"API reference": "api/"}]
    config = SimpleNamespace(docs_dir=str(tmp_path), nav=list(nav))
    assert site_hook.on_config(config).nav == nav[:1]
    (tmp_path / "api").mkdir()
    for name in ("batches", "index"):
        (tmp_path / "api" / f"{name}.md").write_text("# x")
    config.nav = list(nav)
    assert site_hook.on_config(config).nav == [nav[0], {"API reference": ["api/index.md", "api/batches.md"]}]


def test_a_page_that_loads_from_elsewhere_is_refused(tmp_path):
    config = SimpleNamespace(site_dir=str(tmp_path), site_url=None)
    (tmp_path / "a.html").write_text('<a href="https://flower.ai">read on</a><script src="assets/x.js"></script>')
    site_hook.on_post_build(config)
    for loaded in (
        '<script async src="https://cdn.example/x.js">',
        '<link rel="stylesheet" href=//fonts.example/f.css>',
    ):
        (tmp_path / "a.html").write_text(loaded)
        with pytest.raises(PluginError, match="from elsewhere"):
            site_hook.on_post_build(config)


def test_the_table_of_theorems_has_every_result():
    from performative.theory.index import PAPERS, THEOREMS

    table = page_tables.theorems()
    for row in THEOREMS:
        assert f"| {row.number} |" in table
    assert "`pf.theory.theorem_3_1`" in table and "Theorem 3.1, Theorem 3.2, Theorem 3.3: what is corrected" in table
    assert table.count("\n| ") == len(THEOREMS) + 2 * len(PAPERS), "a bar in a cell would make another column"
    assert all(line.count("|") == 5 for line in table.split("\n") if line.startswith("| "))


def test_the_ledger_shows_every_claim(monkeypatch):
    from page_evidence import anchor

    rows = [
        {
            "key": f"{paper}/x#c", "paper": paper, "place": "Figure 1", "claim": "a < b", "how": "so", "number": "3",
            "verdict": verdict, "reason": "", "quick": False,
        }
        for paper, verdict in (("p_fedavg", "reproduced"), ("ours", "not reproducible as printed"))
    ]  # fmt: skip
    from performative.papers import ledger

    monkeypatch.setattr(ledger, "read", lambda out=None: rows)
    shown = page_tables.ledger()
    assert "| **all** | 2 | 1 | 1 |" in shown and "a &lt; b" in shown
    assert all(f'id="{anchor(*row["key"].split("#"))}"' in shown for row in rows)


def test_the_gallery_says_how_to_make_it_or_shows_what_is_there(tmp_path, monkeypatch):
    from performative.papers.catalog import find, names

    monkeypatch.setattr(page_tables, "RESULTS", tmp_path / "performative-results")
    page_tables.forget()
    assert "performative reproduce --all --quick" in page_tables.gallery() and page_tables.gallery_files() == {}
    name = names()[0]
    known = find(name).claims[0].id
    folder = page_tables.RESULTS / name
    folder.mkdir(parents=True)
    (folder / "figure.svg").write_text("<svg/>")
    told = '{"name": "%s", "paper": "%s", "title": "T", "place": "Figure 9", "quick": true, "status": "completed", '
    claims = '"seconds": 3.2, "claims": [{"id": "%s", "claim": "holds", "verdict": "reproduced"}, '
    gone = '{"id": "gone", "claim": "was dropped", "verdict": "reproduced"}]}'
    (folder / "manifest.json").write_text(told % (name, name.split("/")[0]) + claims % known + gone)
    page_tables.forget()
    (uri,) = page_tables.gallery_files()
    shown = page_tables.gallery()
    assert uri in shown and "Figure 9" in shown and f"`claim:{name}#{known}`" in shown
    assert "was dropped" in shown and "#gone" not in shown
    page_tables.forget()


def test_marks_in_pages_have_a_table():
    """`entries` is no table: it is replaced before the blocks of a page run."""
    texts = [path.read_text() for path in (ROOT / "docs").rglob("*.md")]
    marks = {name for text in texts for name, _ in site_hook._PLACEHOLDER.findall(text)}
    assert marks == {"entries", *page_tables.TABLES}
    assert page_tables.changelog().startswith("## ")


def test_the_table_of_parts_has_every_part_of_a_slot_once():
    """What a file may name in a slot is what the page lists, each with a link into the reference."""
    import performative as pf

    slots = (line.split(" | ") for line in page_tables.parts().split("\n")[2:])
    rows = {
        slot.removeprefix("| "): re.findall(r"\[`(\w+)`\]\[performative\.[\w.]+\]", cell) for slot, _, cell in slots
    }
    assert {"population", "batch", "estimator", "participation", "channel", "aggregator", "rate", "deploy"} <= set(rows)
    for slot, module in (("aggregator", pf.aggregators), ("channel", pf.channels), ("population", pf.populations)):
        things = {name: getattr(module, name) for name in module.__all__ if not name.startswith("Abstract")}
        assert sorted(rows[slot]) == sorted(name for name, thing in things.items() if isinstance(thing, type))
    assert "LocalWork" in rows["participation"] and "Exponential" not in rows["participation"]
    assert rows["rate"] == ["constant", "harmonic", "theorem"]


def test_an_example_of_a_docstring_runs_on_its_page(monkeypatch):
    """mkdocs hands a page over twice, to run its blocks and to render it: both see the same blocks."""
    monkeypatch.setattr(site_hook.page_reference, "_docstring", lambda path: "One.\n\nExample:\n\n    print(7)\n")
    written = "# T\n\n::: performative.run\n    options:\n      members: false\n\n```python\nprint(8)\n```\n"
    ran = {}
    execute = lambda pages: ran.update(pages) or {"api/t.md": SimpleNamespace(outputs=outputs, seconds=0)}  # noqa: E731
    outputs = [Output("first\n", ()), Output("second\n", ())]
    monkeypatch.setattr(site_hook, "execute_pages", execute)
    monkeypatch.setattr(site_hook.page_tables, "gallery_files", dict)
    file = SimpleNamespace(src_uri="api/t.md", content_string=written)

    class Files(list):
        def documentation_pages(self):
            return [file]

    site_hook.on_files(Files(), None)
    assert [block.code for block in read_blocks(ran["api/t.md"])] == ["print(7)", "print(8)"]
    shown = site_hook.on_page_markdown(written, SimpleNamespace(file=file), None, None)
    assert shown.index("members: false") < shown.index("print(7)") < shown.index("first") < shown.index("print(8)")
    site_hook._executed.clear()


def test_every_running_block_is_counted_once():
    assert [block.runs for block in read_blocks(PAGE)] == [True, False, True, True, True]
