"""Keeps a built site beside those of other versions: `python keep_version.py site site-versions`.

Below its name, each page of a kept site links to the list of versions.

    site-versions/index.html       a list of the versions, the newest first
    site-versions/versions.json    the same for programs
    site-versions/0.2.0/           the site of a version, as it was built

The folder can be opened from a disk or served by any web server. A version that is kept again is replaced.
"""

import html
import json
import shutil
import sys
import tomllib
from pathlib import Path

ROOT = Path(__file__).parents[2]
# The theme's search field; the sidebar shows it below the name and the version.
_SEARCH = '<form class="sidebar-search-container"'
_PAGE = """<!doctype html>
<html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark"><title>performative: versions of the documentation</title>
<style>body {{ font-family: system-ui, sans-serif; max-width: 40em; margin: 3em auto; padding: 0 1em }}</style></head>
<body><h1>performative</h1><p>The documentation, by version:</p><ul>
{rows}
</ul></body></html>
"""


def keep(site: Path, kept: Path, version: str) -> list[str]:
    """Copy the site, rewrite the lists, and return the versions."""
    if not (site / "index.html").is_file():
        raise FileNotFoundError(f"{site} does not contain a site: build it first with `make docs`.")
    shutil.rmtree(kept / version, ignore_errors=True)
    shutil.copytree(site, kept / version, ignore=shutil.ignore_patterns(".doctrees", ".buildinfo"))
    for page in sorted((kept / version).rglob("*.html")):
        up = "../" * len(page.relative_to(kept).parts[:-1])
        link = f'<a class="sidebar-versions" href="{up}index.html">Other versions</a>'
        text = page.read_text(encoding="utf-8")
        page.write_text(text.replace(_SEARCH, link + _SEARCH, 1), encoding="utf-8")
    versions = sorted((path.name for path in kept.iterdir() if (path / "index.html").is_file()), key=_order)[::-1]
    told = [{"version": one, "url": f"{one}/index.html"} for one in versions]
    (kept / "versions.json").write_text(json.dumps(told, indent=1) + "\n", encoding="utf-8")
    rows = [f'<li><a href="{html.escape(one)}/index.html">{html.escape(one)}</a></li>' for one in versions]
    (kept / "index.html").write_text(_PAGE.format(rows="\n".join(rows)), encoding="utf-8")
    return versions


def _order(version: str) -> tuple[tuple[int, str], ...]:
    """Compare version numbers numerically: 0.10 comes after 0.9."""
    return tuple((int(part), "") if part.isdigit() else (-1, part) for part in version.split("."))


def main(site: str, kept: str) -> None:
    version = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["version"]
    versions = keep(Path(site), Path(kept), version)
    print(f"{kept}/{version}: stored next to {len(versions) - 1} other versions; open {kept}/index.html")


if __name__ == "__main__":
    main(*sys.argv[1:3])
