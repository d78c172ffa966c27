import pytest

from refinery.runtime.files import atomic_swap as module
from refinery.runtime.files.atomic_swap import exchange, restore


@pytest.fixture(params=["in one step", "in three"])
def folders(request, tmp_path, monkeypatch):
    if request.param == "in three":
        monkeypatch.setattr(module, "_exchanged_at_once", lambda first, second: False)
    for name in ("old", "new"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "file").write_text(name)
    return tmp_path / "old", tmp_path / "new"


def test_two_folders_take_each_others_place(folders, tmp_path):
    old, new = folders
    exchange(old, new)
    assert ((old / "file").read_text(), (new / "file").read_text()) == ("new", "old")
    assert len(list(tmp_path.iterdir())) == 2


def test_a_stop_between_the_steps_is_repaired(folders):
    old, _ = folders
    restore(old)
    old.rename(old.with_name("old.before"))
    restore(old)
    assert (old / "file").read_text() == "old"
