"""Checks a built site without a network: `python site_check.py FOLDER`.

Every link to a page, an anchor or a file of the site resolves; external links are well formed; every picture has a
description; pages load nothing from other hosts.
"""

import os
import re
import sys
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

# What a reader may follow, but no page may load.
_ELSEWHERE = ("http", "https", "mailto")
_HOST = re.compile(r"(?=.{4,253}$)(?:[a-z0-9](?:[a-z0-9-]*[a-z0-9])?\.)+[a-z]{2,}(?::\d+)?", re.IGNORECASE)


class Page(HTMLParser):
    """Links, anchors, and pictures without a description."""

    def __init__(self, text: str):
        super().__init__()
        self.links: list[str] = []
        self.loaded: list[str] = []
        self.anchors: set[str] = set()
        self.undescribed: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        told = dict(attributes)
        self.anchors |= {value for key in ("id", "name") if (value := told.get(key))}
        if tag == "a" and told.get("href"):
            self.links.append(str(told["href"]))
        if tag in ("img", "script", "iframe", "source", "link"):
            self.loaded += [str(told[key]) for key in ("src", "href") if told.get(key)]
        if tag == "img" and not (told.get("alt") or "").strip():
            self.undescribed.append(str(told.get("src", ""))[:80])


def check(site: Path) -> list[str]:
    """What is wrong, in sentences."""
    site = site.resolve()
    pages = {path: Page(path.read_text(encoding="utf-8")) for path in sorted(site.rglob("*.html"))}
    wrong = [] if pages else [f"{site} contains no page"]
    for path, page in pages.items():
        name = path.relative_to(site).as_posix()
        wrong += [f"{name}: the picture {source} has no description (alt)" for source in page.undescribed]
        for link in dict.fromkeys([*page.links, *page.loaded]):
            if reason := _fault(link, path, pages):
                wrong.append(f"{name}: {link}: {reason}")
        wrong += [f"{name}: {link} would be loaded from another host" for link in page.loaded if urlsplit(link).netloc]
    return wrong


def _fault(link: str, path: Path, pages: dict[Path, Page]) -> str | None:
    """Why a link does not resolve; None if it does."""
    try:
        parts = urlsplit(link)
    except ValueError as error:
        return str(error)
    if parts.scheme == "data":
        return None
    if parts.scheme or parts.netloc:
        known = parts.scheme in _ELSEWHERE and (parts.scheme == "mailto" or _HOST.fullmatch(parts.netloc))
        return None if known and " " not in link else "not a web address"
    target = Path(os.path.normpath(path.parent / unquote(parts.path))) if parts.path else path
    target = target / "index.html" if target not in pages and target.is_dir() else target
    if target not in pages and not target.is_file():
        return "no such file"
    if parts.fragment and target in pages and unquote(parts.fragment) not in pages[target].anchors:
        return "no such anchor"
    return None


def main(folder: str) -> None:
    """Exit with what is wrong, or say what was checked."""
    wrong = check(Path(folder))
    if wrong:
        sys.exit("\n".join([*wrong, f"{len(wrong)} faults in {folder}"]))
    pages = list(Path(folder).rglob("*.html"))
    print(f"{folder}: {len(pages)} pages; all internal links resolve, all pictures have a description")


if __name__ == "__main__":
    main(sys.argv[1])
