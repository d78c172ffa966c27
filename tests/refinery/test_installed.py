"""The command that installs an extra depends on how Refinery was installed."""

import json
from importlib.metadata import PackageNotFoundError
from pathlib import Path

import pytest

from refinery import installed


class Installed:
    """A distribution with this record of where it is from."""

    def __init__(self, origin: dict | None) -> None:
        self.origin = origin

    def read_text(self, name: str) -> str | None:
        return json.dumps(self.origin) if self.origin else None


@pytest.mark.parametrize(
    ("origin", "command"),
    [
        (None, 'pip install "rag-refinery[serve]"'),
        ({"url": "file:///home/my%20own/refinery", "dir_info": {"editable": True}}, "pip install -e '/home/my own/refinery[serve]'"),
        ({"url": "file:///tmp/refinery.whl", "archive_info": {}}, "pip install 'rag-refinery[serve] @ file:///tmp/refinery.whl'"),
    ],
    ids=["from an index", "a checkout", "a wheel"],
)
def test_an_extra_is_installed_as_refinery_was(origin, command, monkeypatch):
    monkeypatch.setattr(installed, "distribution", lambda name: Installed(origin))
    assert installed.install_extra.__wrapped__("serve") == command


def test_a_checkout_on_the_module_path_is_named(monkeypatch):
    def missing(name: str) -> Installed:
        raise PackageNotFoundError(name)

    monkeypatch.setattr(installed, "distribution", missing)
    assert str(Path(__file__).parents[2]) in installed.install_extra.__wrapped__("serve")
