"""opensearch-py's own client against a double of the engine on loopback, which answers as the engine's documentation says."""

import asyncio
import threading
from contextlib import contextmanager

import pytest

pytest.importorskip("opensearchpy", reason="needs the extra `opensearch`")

from aiohttp import web
from helpers.opensearch_server import OpenSearchDouble

from refinery.contract.records import write_records
from refinery.errors import RecipeError, RetrievalError
from refinery.indexes.build import build_index
from refinery.indexes.update import update_index
from refinery.retrievers import opensearch
from refinery.retrievers.base import RetrieverConfig
from refinery.retrievers.bm25 import Bm25
from refinery.retrievers.bm25 import Options as Bm25Options
from refinery.retrievers.search.build import build_retriever


@contextmanager
def running(double):
    """The double's address, while it runs on a thread."""
    loop, started = asyncio.new_event_loop(), threading.Event()

    async def start():
        runner = web.AppRunner(double.app())
        await runner.setup()
        site = web.TCPSite(runner, "127.0.0.1", 0)
        await site.start()
        started.address = f"http://127.0.0.1:{site._server.sockets[0].getsockname()[1]}"
        started.set()
        return runner

    thread = threading.Thread(target=loop.run_forever, daemon=True)
    thread.start()
    runner = asyncio.run_coroutine_threadsafe(start(), loop).result()
    try:
        yield started.address
    finally:
        asyncio.run_coroutine_threadsafe(runner.cleanup(), loop).result()
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        loop.close()


@pytest.fixture
def double():
    return OpenSearchDouble()


@pytest.fixture
def options(double):
    with running(double) as address:
        yield {"url": address, "collection": "wiki", "tries": 2}


@pytest.fixture
def source(tmp_path, passages):
    write_records(tmp_path / "p.jsonl", passages)
    return tmp_path / "p.jsonl"


@pytest.fixture
def index(source, options, tmp_path):
    build_index(source, tmp_path / "index", RetrieverConfig(name="opensearch", options=options))
    return tmp_path / "index"


@pytest.fixture
def no_waits(monkeypatch):
    monkeypatch.setattr("refinery.retrievers.search.requests.time.sleep", lambda seconds: None)


def test_what_is_loaded_is_found_in_the_order_of_bm25(index, passages, search):
    engine = build_retriever(RetrieverConfig(name="opensearch", index=index))
    ours = Bm25(passages, Bm25Options(stemmer=None, stopwords=None))
    for query in ("Norway", "city France", "nothing here"):
        found, expected = search(engine, query), search(ours, query)
        assert [hit.passage for hit in found] == [hit.passage for hit in expected]
        assert engine.corpus_hash == ours.corpus_hash


def test_a_machine_without_the_index_folder_searches_by_name(index, options, search):
    with_folder = build_retriever(RetrieverConfig(name="opensearch", index=index))
    by_name = build_retriever(RetrieverConfig(name="opensearch", options=options))
    assert by_name.corpus_hash == with_folder.corpus_hash
    assert search(by_name, "Lyon") == search(with_folder, "Lyon")


def test_queries_asked_for_together_share_a_request_and_fail_alone(index, double):
    engine = build_retriever(RetrieverConfig(name="opensearch", index=index)).retriever
    before = len(double.requests)

    async def together():
        return await asyncio.gather(*(engine.search("city", k=k) for k in (1, 2, 20_000, 3)), return_exceptions=True)

    found = asyncio.run(together())
    assert [isinstance(hits, RetrievalError) for hits in found] == [False, False, True, False]
    assert "Result window is too large" in str(found[2])
    assert len(double.requests) - before == 5  # all four, two halves, and the second half's two


def test_an_update_loads_beside_the_old_passages_and_then_takes_their_name(source, index, passages, options, double, search, caplog):
    write_records(source, passages[:2])
    assert update_index(source, index).manifest.num_passages == 2
    assert len(double.indices) == 2
    assert len(search(build_retriever(RetrieverConfig(name="opensearch", options=options)), "city born film", k=10)) == 2
    assert "Delete that index when no run searches it" in caplog.text


def test_a_stopped_load_goes_on_where_it_was(source, options, tmp_path, double, monkeypatch):
    monkeypatch.setattr(opensearch, "_PASSAGES_PER_REQUEST", 1)
    config = RetrieverConfig(name="opensearch", options=options | {"requests_at_once": 1, "tries": 1})
    bulks = []
    double._answer = lambda method, path: (
        (403, {"error": "quota"}) if "_bulk" in path and not bulks.append(path) and len(bulks) == 3 else None
    )
    with pytest.raises(RetrievalError, match="a request failed \\(status 403"):
        build_index(source, tmp_path / "index", config)
    with pytest.raises(RetrievalError, match="has no index 'wiki'"):
        build_retriever(config)
    build_index(source, tmp_path / "index", config, resume=True)
    assert len(bulks) == 3 + 2
    assert build_retriever(config).corpus_hash


def test_a_row_that_the_engine_does_not_take_stops_the_load(source, options, tmp_path, double):
    failed = {"index": {"_id": "0", "status": 400, "error": {"type": "mapper_parsing_exception", "reason": "no such field"}}}
    double._answer = lambda method, path: (200, {"errors": True, "items": [failed]}) if "_bulk" in path else None
    with pytest.raises(RetrievalError, match="row 0: no such field"):
        build_index(source, tmp_path / "index", RetrieverConfig(name="opensearch", options=options))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda double, name: double.indices.clear(), "has no index 'wiki_"),
        (lambda double, name: double.indices[name]["rows"].popitem(), "holds 3 rows, but 4 were loaded"),
        (lambda double, name: double.indices[name]["mappings"].pop("_meta"), "was not loaded to its end by `refinery index`"),
        (
            lambda double, name: double.indices[name]["mappings"]["_meta"]["refinery"].update(corpus_hash="other"),
            "holds 4 passages of corpus other, but .*index is of 4 of corpus",
        ),
    ],
)
def test_an_index_that_is_not_the_folders_is_refused(index, double, change, message):
    (name,) = double.indices
    change(double, name)
    with pytest.raises(RetrievalError, match=message):
        build_retriever(RetrieverConfig(name="opensearch", index=index))


@pytest.mark.parametrize(
    ("variables", "header"),
    [
        ({"OPENSEARCH_API_KEY": "s3cret"}, "ApiKey s3cret"),
        ({"OPENSEARCH_USER": "me", "OPENSEARCH_PASSWORD": "it"}, "Basic bWU6aXQ="),
        ({}, None),
    ],
)
def test_keys_come_from_the_environment_and_are_not_stored(index, double, monkeypatch, variables, header):
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    build_retriever(RetrieverConfig(name="opensearch", index=index))
    assert {name.lower(): value for name, value in double.requests[-1][2].items()}.get("authorization") == header
    assert "s3cret" not in (index / "index.json").read_text(encoding="utf-8")


def test_an_engine_that_stumbles_is_asked_again(index, double, search, no_waits):
    engine = build_retriever(RetrieverConfig(name="opensearch", index=index))
    replies = [(503, {"error": "busy"})]
    double._answer = lambda method, path: replies.pop() if replies else None
    assert search(engine, "Norway")[0].passage.id == "oslo"


def test_shards_that_fail_are_no_short_answer(index, double, search, no_waits):
    engine = build_retriever(RetrieverConfig(name="opensearch", index=index))
    part = {"hits": {"hits": []}, "_shards": {"failed": 1}, "timed_out": False}
    double._answer = lambda method, path: (200, {"responses": [part]}) if "_msearch" in path else None
    with pytest.raises(RetrievalError, match="1 shards failed"):
        search(engine, "Norway")


def test_no_engine_is_said_with_what_to_check(no_waits):
    with pytest.raises(RetrievalError, match=r"http://127.0.0.1:9: a request failed \(.*\). Check that the engine runs"):
        build_retriever(RetrieverConfig(name="opensearch", options={"url": "http://127.0.0.1:9", "tries": 1}))


def test_passages_in_memory_are_refused(source):
    with pytest.raises(RecipeError, match="opensearch searches what was loaded into it"):
        build_retriever(RetrieverConfig(name="opensearch", passages=source))
