"""Further processes that search an index: real ones, over a real index."""

import gc
import logging
import random

import psutil
import pytest

from refinery.contract.records import Passage, write_records
from refinery.indexes.build import build_index
from refinery.retrievers.base import RetrieverConfig
from refinery.retrievers.bm25 import Bm25, Options
from refinery.retrievers.search import side_process
from refinery.retrievers.search.postings import open_postings
from refinery.retrievers.search.side_process import SideProcesses

SIZE = 400


@pytest.fixture(scope="module")
def index(tmp_path_factory):
    folder, rng = tmp_path_factory.mktemp("index"), random.Random(0)
    texts = [" ".join(rng.choices([f"word{number}" for number in range(150)], k=rng.randrange(3, 40))) for _ in range(SIZE)]
    write_records(folder / "passages.jsonl", [Passage(id=f"p{number}", title="", text=text) for number, text in enumerate(texts)])
    build_index(folder / "passages.jsonl", folder / "index", RetrieverConfig(name="bm25"))
    return folder / "index"


@pytest.fixture
def beside(index, monkeypatch):
    """Postings whose second batch starts a process, which is waited for."""
    monkeypatch.setattr(side_process, "_SEARCHES_BEFORE", 4)
    found = SideProcesses(index, SIZE)
    for _ in range(2):
        found.best_of_each(searches(2, seed=9))
    assert found._of_thread.process.ready.wait(60)
    return found


def searches(count, *, seed):
    rng = random.Random(seed)
    return [([rng.randrange(100) for _ in range(rng.randrange(1, 9))], rng.randrange(1, 20)) for _ in range(count)]


def children():
    return [child for child in psutil.Process().children() if side_process.__name__ in " ".join(child.cmdline())]


def test_a_process_finds_to_the_bit_what_this_one_finds(beside, index):
    asked = searches(50, seed=1)
    postings = open_postings(index, SIZE)
    beside._postings = None  # so that only the process can have answered
    assert beside.best_of_each(asked) == postings.best_of_each(asked)
    assert len(children()) == 1


def test_searches_one_at_a_time_start_no_process(index, monkeypatch):
    monkeypatch.setattr(side_process, "_SEARCHES_BEFORE", 2)
    alone = SideProcesses(index, SIZE)
    for search in searches(10, seed=2):
        alone.best_of_each([search])
    assert not children()


def test_where_the_process_is_killed_its_searches_go_on_here_with_a_warning(beside, index, caplog):
    (child,) = children()
    child.kill()
    child.wait(30)
    asked = searches(5, seed=3)
    with caplog.at_level(logging.WARNING):
        found = [beside.best_of_each(asked) for _ in range(2)]
    assert found == [open_postings(index, SIZE).best_of_each(asked)] * 2
    assert [record.message.partition(":")[0] for record in caplog.records] == [
        "a process that searched beside this one has ended, and its searches go on in this one"
    ]


def test_the_process_ends_with_what_it_searched_for(beside):
    (child,) = children()
    beside._of_thread.process = None
    gc.collect()
    assert psutil.wait_procs([child], timeout=30)[1] == []


def test_a_small_index_is_searched_in_this_process_alone(index):
    Bm25.open(index, Options()).search_all([("word1 word2", 5)] * 200)
    assert not children()
