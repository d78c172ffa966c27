"""A reply store from outside: one file, named in a recipe, that a run fills and replays."""

import json

import pytest

from benchmarks.distill.endpoint import Settings
from benchmarks.distill.run import endpoint, stats
from distill.__main__ import main
from distill.viewing.page import write

JSON_STORE = '''
import asyncio, json
from pathlib import Path
from refinery.stores.base import ReplyStore, StorePlugin


class JsonStore(ReplyStore):
    """Everything in one JSON file, written whole each time."""

    def __init__(self, place):
        self.path = Path(place)
        empty = {"values": {}, "costs": {}, "batches": {}}
        self.kept = json.loads(self.path.read_text()) if self.path.exists() else empty

    def get(self, key):
        return self.kept["values"].get(key.hex())

    async def put(self, key, value):
        self._keep("values", key.hex(), value)

    def costs(self, job):
        return self.kept["costs"].get(job, {})

    def put_costs(self, job, costs):
        self._keep("costs", job, costs)
        (done := asyncio.get_running_loop().create_future()).set_result(None)
        return done

    def batches(self):
        return self.kept["batches"]

    async def put_batch(self, batch_id, keys):
        self._keep("batches", batch_id, keys)

    async def drop_batch(self, batch_id):
        self.kept["batches"].pop(batch_id, None)

    def close(self):
        self.path.write_text(json.dumps(self.kept))

    def _keep(self, part, key, value):
        self.kept[part][key] = json.loads(json.dumps(value))


def open_store(place):
    return JsonStore(place)


STORE = StorePlugin(open_store, exists=lambda place: Path(place).exists(), file_name="replies.json")
'''


@pytest.mark.parametrize(("name", "place"), [("my_lab.jsons", None), ("my_lab.jsons:open_store", "kept.json")])
def test_a_run_is_kept_in_it_and_replayed(mock_recipe, my_lab, tmp_path, name, place):
    my_lab("jsons", JSON_STORE)
    with endpoint(Settings(latency_seconds=0.0)) as url:
        path = str(mock_recipe(url, store_kind=name, store=place, teacher={"price": {"prompt": 1.0, "completion": 1.0}}))
        assert main([path]) == 0
        assert main([path, "--resume", "teacher.max_tokens=600"]) == 0  # no reply was cut
        assert stats(url)["requests"] == 40
    kept = json.loads((tmp_path / (place or "run/replies.json")).read_text())
    assert len(kept["values"]) == 40
    assert not (tmp_path / "run" / "effects.sqlite").exists()


def test_the_page_and_the_estimate_read_it(mock_recipe, my_lab, tmp_path, capsys, read_page):
    my_lab("jsons", JSON_STORE)
    with endpoint(Settings(latency_seconds=0.0)) as url:
        path = str(mock_recipe(url, store_kind="my_lab.jsons"))
        assert main([path, "--dry-run", "--trust", "my_lab.jsons"]) == 0
        assert not (tmp_path / "run" / "replies.json").exists()  # looking makes none
        assert main([path, "limit=20"]) == 0
        assert main([path, "--dry-run", "--trust", "my_lab.jsons"]) == 0
    assert "40 rows, estimated from 20 paid rows" in capsys.readouterr().out
    write([tmp_path / "run"], tmp_path / "page.html", limit=1)
    _, details = read_page(tmp_path / "page.html")
    assert details[0]["runs"][0]["exchanges"][0]["reply"].startswith('{"sub_questions"')


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        ("", "store_kind: reply store 'my_lab.wrong': {} declares neither STORE (a StorePlugin) nor the function open_store(place)."),
        ("def open_store(): ...", "store_kind: reply store 'my_lab.wrong': cannot be called as open_store(place)"),
        ("def open_store(place): return {}", "reply store 'my_lab.wrong': a dict has no batches, close, costs, drop_batch, get_undigested"),
    ],
)
def test_a_wrong_one_is_told_what_is_missing(mock_recipe, my_lab, tmp_path, capsys, text, fault):
    my_lab("wrong", text)
    assert main([str(mock_recipe("http://127.0.0.1:1", store_kind="my_lab.wrong", store="x"))]) == 2
    assert fault.format(tmp_path / "my_lab" / "wrong.py") in capsys.readouterr().err


def test_a_store_without_a_file_of_its_own_must_be_named(mock_recipe, my_lab, capsys):
    my_lab("database", "def open_store(place): ...")
    assert main([str(mock_recipe("http://127.0.0.1:1", store_kind="my_lab.database"))]) == 2
    assert "store: is missing, and store_kind 'my_lab.database' needs it." in capsys.readouterr().err
