"""opensearch-py's own client against a double of the engine on loopback, which answers as the engine's documentation says."""

import asyncio

import pytest

pytest.importorskip("opensearchpy", reason="needs the extra `opensearch`")

from helpers.opensearch_server import OpenSearchDouble, running

from refinery.contract.records import write_records
from refinery.errors import RetrievalError
from refinery.indexes.build import build_index
from refinery.retrievers.base import RetrieverConfig
from refinery.retrievers.bm25 import Bm25
from refinery.retrievers.bm25 import Options as Bm25Options
from refinery.retrievers.search.build import build_retriever


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


def test_queries_asked_for_together_share_a_request_and_fail_alone(index, double):
    engine = build_retriever(RetrieverConfig(name="opensearch", index=index)).retriever
    before = len(double.requests)

    async def together():
        return await asyncio.gather(*(engine.search("city", k=k) for k in (1, 2, 20_000, 3)), return_exceptions=True)

    found = asyncio.run(together())
    assert [isinstance(hits, RetrievalError) for hits in found] == [False, False, True, False]
    assert "Result window is too large" in str(found[2])
    assert len(double.requests) - before == 5  # all four, two halves, and the second half's two


def test_a_row_that_the_engine_does_not_take_stops_the_load(source, options, tmp_path, double):
    failed = {"index": {"_id": "0", "status": 400, "error": {"type": "mapper_parsing_exception", "reason": "no such field"}}}
    double._answer = lambda method, path: (200, {"errors": True, "items": [failed]}) if "_bulk" in path else None
    with pytest.raises(RetrievalError, match="row 0: no such field"):
        build_index(source, tmp_path / "index", RetrieverConfig(name="opensearch", options=options))


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
