"""One version, one license and one name, wherever they are written."""

import contextlib
import re
import tomllib
from importlib import metadata
from pathlib import Path

import pytest

import performative as pf
from performative.cli.app import app

ROOT = Path(__file__).parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
CITATION = (ROOT / "CITATION.cff").read_text(encoding="utf-8")


def _field(name):
    """A plain field of the citation file; a parser of YAML is not needed for one level."""
    (value,) = re.findall(rf"^{name}: (.+)$", CITATION, flags=re.MULTILINE)
    return value.strip('"')


def test_the_version_is_the_same_everywhere():
    version = PROJECT["version"]
    assert pf.__version__ == version == _field("version") == metadata.version("performative")
    newest = re.search(r"^## (\S+)", (ROOT / "CHANGELOG.md").read_text(encoding="utf-8"), flags=re.MULTILINE)
    assert newest[1] == version, "the changelog begins with another version"
    assert f"Version {version}" in pf.cite()


def test_the_citation_file_has_what_its_format_asks_for():
    assert _field("cff-version") == "1.2.0"
    assert _field("message") and _field("type") == "software"
    assert _field("license") == PROJECT["license"]
    assert PROJECT["description"].rstrip(".").lower() in _field("title").lower()
    (author,) = re.findall(r"^  - name: \"(.+)\"$", CITATION, flags=re.MULTILINE)
    assert author == PROJECT["authors"][0]["name"]
    assert author in pf.cite()
    assert re.findall(r"^  - (?!name)(.+)$", CITATION, flags=re.MULTILINE) == PROJECT["keywords"]


def test_the_command_is_the_one_that_is_installed():
    assert PROJECT["scripts"] == {"performative": "performative_command:main"}
    assert app.info.name == PROJECT["name"] == "performative"


def test_policies_name_files_and_modules_that_exist():
    for policy in ("CONTRIBUTING.md", "SECURITY.md", "docs/stability.md"):
        text = (ROOT / policy).read_text(encoding="utf-8")
        for path in re.findall(r"`((?:tests|docs|src|\.ci)/[\w./]+)`", text):
            assert (ROOT / path).exists(), f"{policy} names {path}"
        for target in re.findall(r"\]\(([\w./-]+\.md)\)", text):
            assert ((ROOT / policy).parent / target).exists(), f"{policy} links to {target}"
        for module in re.findall(r"`performative\.(\w+)`", text):
            assert hasattr(pf, module) or (ROOT / "src" / "performative" / f"{module}.py").exists(), (
                f"{policy}: {module}"
            )


def test_pinned_versions_take_every_python_that_we_take():
    """A pin that asks for a later patch of Python 3.11 sends pip on a search of a quarter of an hour."""
    specifiers = pytest.importorskip("packaging.specifiers")
    oldest = PROJECT["requires-python"].removeprefix(">=") + ".0"
    pins = [
        line.split("==") for line in (ROOT / "constraints.txt").read_text(encoding="utf-8").splitlines() if "==" in line
    ]
    for name, version in pins:
        with contextlib.suppress(metadata.PackageNotFoundError):  # not everybody installs everything
            found = metadata.distribution(name)
            asked = found.metadata["Requires-Python"]
            if found.version == version and asked:
                assert specifiers.SpecifierSet(asked).contains(oldest), f"{name}=={version} needs Python {asked}"
