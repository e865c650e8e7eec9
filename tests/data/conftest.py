"""Where the published files are on this machine."""

import os
from pathlib import Path

import pytest

BESIDE = Path(__file__).parents[3] / "shared" / "data"


@pytest.fixture(scope="session")
def published():
    """A folder with the published files: PERFORMATIVE_DATA, or ../shared/data beside the checkout."""
    folder = Path(os.environ.get("PERFORMATIVE_DATA") or BESIDE)
    if not folder.is_dir():
        pytest.skip(f"no data here: PERFORMATIVE_DATA is not set and {BESIDE} does not exist")
    return folder


@pytest.fixture
def bare(tmp_path, monkeypatch):
    """A machine with an empty cache and no folder of data; gives the cache."""
    monkeypatch.delenv("PERFORMATIVE_DATA", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return tmp_path / "cache" / "performative" / "data"
