"""A folder of a user's own."""

from pathlib import Path

import pytest


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty folder, which is the working directory."""
    monkeypatch.chdir(tmp_path)
    return tmp_path
