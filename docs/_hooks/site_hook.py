"""Events of mkdocs: blocks run, tables are generated, evidence is checked, and nothing is fetched from elsewhere."""

import logging
import posixpath
import re
from pathlib import Path
from typing import Any

import page_reference
import page_tables
from mkdocs.exceptions import PluginError
from mkdocs.structure.files import File
from page_blocks import with_outputs
from page_cache import BlockFailed, Executed, execute_pages
from page_evidence import link_claims, missing_evidence

log = logging.getLogger("mkdocs.hooks.performative")
_PICTURES = "assets/made"
_PLACEHOLDER = re.compile(r"^<!-- generate: (\w+)(?: (\S+))? -->$", re.MULTILINE)
# Only what a browser loads by itself; links that a reader may follow are not among it.
_LOADED = re.compile(r"<(?:script|img|iframe|source|link)\b[^>]*?\b(?:src|href)=[\"']?((?:https?:)?//[^\"'\s>]+)")
_OPTIONAL = ("stability.md",)
_executed: dict[str, Executed] = {}


def on_config(config: Any) -> Any:
    """`api/` in the navigation stands for the pages that are found there, index.md first; a page may be missing."""
    page_reference.forget()
    page_tables.forget()
    here = Path(config.docs_dir)
    found = sorted((here / "api").rglob("*.md"), key=lambda path: (path.name != "index.md", path.as_posix()))
    pages = [path.relative_to(here).as_posix() for path in found]
    nav = []
    for item in config.nav or []:
        title, value = next(iter(item.items())) if isinstance(item, dict) else (None, item)
        if value == "api/":
            nav += [{title: pages}] if pages else []
        elif value not in _OPTIONAL or (here / value).exists():
            nav.append(item)
    config.nav = nav or config.nav
    return config


def on_files(files: Any, config: Any) -> Any:
    """Run the blocks of all pages; pictures become files of the site."""
    pages = {file.src_uri: page_reference.complete(file.content_string) for file in files.documentation_pages()}
    try:
        _executed.clear()
        _executed.update(execute_pages(pages))
    except BlockFailed as error:
        raise PluginError(str(error)) from error
    for page, result in _executed.items():
        for name in dict.fromkeys(name for output in result.outputs for name in output.pictures):
            for theme in ("light", "dark"):
                path = result.picture(name, theme)
                files.append(File.generated(config, _picture_uri(page, path), abs_src_path=str(path)))
    for uri, path in page_tables.gallery_files().items():
        files.append(File.generated(config, uri, abs_src_path=str(path)))
    taken = sorted(((result.seconds, page) for page, result in _executed.items()), reverse=True)
    total = sum(seconds for seconds, _ in taken)
    longest = ", ".join(f"{page} {seconds:.0f} s" for seconds, page in taken[:3])
    log.info("blocks of %d pages took %.0f s of processor time when they ran; most: %s", len(taken), total, longest)
    return files


def on_page_markdown(markdown: str, page: Any, config: Any, files: Any) -> str:
    """Outputs below blocks, generated tables in the place of their marks, claims as links."""
    uri = page.file.src_uri
    if lost := missing_evidence(markdown):
        log.warning("%s names evidence that does not exist: %s", uri, ", ".join(lost))
    result = _executed.get(uri)

    def link(name: str, theme: str) -> str:
        assert result is not None
        return posixpath.relpath(_picture_uri(uri, result.picture(name, theme)), posixpath.dirname(uri) or ".")

    markdown = with_outputs(page_reference.complete(markdown), result.outputs if result else [], link)
    markdown = _PLACEHOLDER.sub(lambda found: page_tables.TABLES[found[1]](*filter(None, [found[2]])), markdown)
    return link_claims(markdown, posixpath.relpath("claims.md", posixpath.dirname(uri) or "."))


def on_post_build(config: Any) -> None:
    """No page loads anything from another host."""
    for path in sorted(Path(config.site_dir).rglob("*.html")):
        outside = [url for url in _LOADED.findall(path.read_text(encoding="utf-8")) if not _is_own(url, config)]
        if outside:
            raise PluginError(f"{path.name} would load {outside[0]} from elsewhere; the site must work offline.")


def _is_own(url: str, config: Any) -> bool:
    return bool(config.site_url) and url.startswith(config.site_url)


def _picture_uri(page: str, path: Path) -> str:
    return f"{_PICTURES}/{page.removesuffix('.md').replace('/', '-')}/{path.name}"
