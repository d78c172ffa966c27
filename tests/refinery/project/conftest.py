"""A folder of a user's own, and a double of Ray."""

import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from refinery.cli import main


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty folder, which is the working directory."""
    monkeypatch.chdir(tmp_path)
    return tmp_path


class RayError(Exception):
    """As Ray tells of a worker that was lost too often."""


class FakeRay:
    """Runs a shard in this process when its result is asked for. `lost` are the shards whose workers die each time."""

    exceptions = SimpleNamespace(RayError=RayError)

    def __init__(self):
        self.commands, self.lost, self.options, self.connected = [], (), None, None
        self.resources = {"CPU": 2.0}

    def init(self, *, address, **_):
        self.connected = address

    def shutdown(self):
        self.connected = None

    def nodes(self):
        return [{"Alive": True, "Resources": self.resources}]

    def remote(self, _function):
        return SimpleNamespace(options=self._options)

    def _options(self, **options):
        self.options = options
        return SimpleNamespace(remote=self._start)

    def _start(self, words, *_):
        self.commands.append(tuple(words))
        return tuple(words)

    def wait(self, tasks):
        return tasks[:1], tasks[1:]

    def get(self, words):
        if any(f"shard={shard}" in words or shard in words for shard in self.lost):
            raise RayError("The worker died\nunexpectedly.")
        return "" if main(list(words)) == 0 else "it failed"


@pytest.fixture
def ray(monkeypatch):
    fake = FakeRay()
    monkeypatch.setitem(sys.modules, "ray", fake)
    return fake
