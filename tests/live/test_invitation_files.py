"""Files that a member receives: a bundle that is no folder of files, and papers that no reader gets through."""

import warnings
import zipfile
from io import BytesIO
from pathlib import Path

import pytest

pytest.importorskip("flwr", reason="the extra performative[flower] is not installed")
from performative.live.membership import host, papers


def bundle(*files, **options):
    buffer = BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as archive, warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of a name that comes twice
        for name in files:
            archive.writestr(name, options.get("content", "x = 1"))
    return buffer.getvalue()


def broken():
    """A file whose content does not fit its checksum."""
    content = bytearray(bundle("app.py", content=bytes(range(256))))
    content[60] ^= 1
    return bytes(content)


BUNDLES = {
    "above": ([bundle("../evil.py")], "outside its folder"),
    "absolute": ([bundle("/evil.py")], "outside its folder"),
    "above, in a folder": ([bundle("a/../../evil.py")], "outside its folder"),
    "the site": ([bundle(".federation/member.json")], "outside its folder"),
    "the site, by a detour": ([bundle("./.federation/keys/x")], "outside its folder"),
    "nothing": ([bundle(".")], "outside its folder"),
    "a bomb": ([bundle("app.py", content=bytes((1 << 20) + 1))], "or 1 MiB unpacked"),
    "many": ([bundle(*map(str, range(101)))], "more than 100 files"),
    "twice": ([bundle("app.py", "./app.py"), bundle("app.py", "app.py")], "not a valid bundle"),
    "file and folder": ([bundle("a", "a/b")], "not a valid bundle"),
    "long": ([bundle("a" * 256)], "not a valid bundle"),
    "damaged": ([broken(), b"", b"PK", bundle("app.py")[:-30]], "not a valid bundle"),
}


@pytest.mark.parametrize("name", BUNDLES)
def test_an_app_that_is_not_a_folder_of_files(name, tmp_path, monkeypatch):
    """Nothing is written elsewhere, and the app that was there stays."""
    monkeypatch.setattr(host, "_MOST_BYTES", 1 << 20)
    monkeypatch.setattr(host, "_MOST_FILES", 100)
    folder = tmp_path / "folder"
    folder.mkdir()
    (folder / "app.py").write_text("the old one")
    bundles, says = BUNDLES[name]
    for content in bundles:
        with pytest.raises(ValueError, match=says):
            host._unpack(content, folder)
    assert [path.name for path in tmp_path.rglob("*")] == ["folder", "app.py"]
    assert (folder / "app.py").read_text() == "the old one"


def test_papers_that_are_deeply_nested(tmp_path):
    path = tmp_path / "paper"
    path.write_text("[" * 200_000)
    for read, says in ((papers.read_invitation, "invitation file"), (papers.read_request, "join or leave file")):
        with pytest.raises(ValueError, match=f"not a federation's {says}"):
            read(path)


def test_an_app_replaces_nothing_of_its_member(tmp_path):
    """Not through a link either, nor where a folder is a file; what an interrupted attempt left is no obstacle."""
    folder, elsewhere = tmp_path / "folder", tmp_path / "elsewhere"
    for place in (folder / "notes", elsewhere):
        place.mkdir(parents=True)
        (place / "mine.md").write_text("mine")
    (folder / "link").symlink_to(elsewhere, target_is_directory=True)
    (folder / "gone").symlink_to(elsewhere / "gone")
    for name in ("link/new.py", "link/mine.md", "gone", "notes", "notes/mine.md", "notes/mine.md/new.py"):
        with pytest.raises(ValueError, match=r"is not a file of the earlier app.*move it elsewhere"):
            host._unpack(bundle("app.py", name), folder)
        assert not (folder / "app.py").exists()
    assert [path.name for path in elsewhere.iterdir()] == ["mine.md"]
    for _ in range(2):
        host._unpack(bundle("app.py", "notes/new.py"), folder)
    earlier = frozenset({Path("app.py"), Path("notes/new.py"), Path("link/mine.md")})
    host._unpack(bundle("app.py/new.py"), folder, earlier)
    assert sorted(path.name for path in folder.rglob("*.*")) == ["app.py", "mine.md", "new.py"]
    assert (elsewhere / "mine.md").read_text() == "mine"
