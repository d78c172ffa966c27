"""Qdrant's own client: its local mode for what is found, a server on loopback for what goes wrong on the way."""

import asyncio

import pytest

pytest.importorskip("qdrant_client", reason="needs the extra `qdrant`")
pytest.importorskip("faiss")

from helpers.scripted_server import scripted

from refinery.contract.records import Passage, write_records
from refinery.errors import RecipeError, RetrievalError
from refinery.indexes.build import build_index
from refinery.retrievers import qdrant
from refinery.retrievers.base import RetrieverConfig
from refinery.retrievers.search.build import build_retriever, load_retriever_config

ROWS = [Passage(id=f"p{number}", title=f"title {number}", text=f"{number * 7919} and {number}") for number in range(60)]
QUERIES = ["17 and 3", "title 40", "something else"]


@pytest.fixture
def source(tmp_path):
    write_records(tmp_path / "p.jsonl", ROWS)
    return tmp_path / "p.jsonl"


@pytest.fixture
def options(tmp_path, tiny_encoders):
    return {"encoder": {"model": tiny_encoders["encoder"]}, "path": str(tmp_path / "qdrant"), "collection": "wiki"}


@pytest.fixture
def index(source, options, tmp_path, monkeypatch):
    monkeypatch.setattr(qdrant.Qdrant, "passages_per_request", 16)
    build_index(source, tmp_path / "index", RetrieverConfig(name="qdrant", options=options))
    return tmp_path / "index"


def test_exact_search_finds_what_our_dense_index_finds(index, source, options, search):
    engine = build_retriever(load_retriever_config(index))
    ours = build_retriever(RetrieverConfig(name="dense", passages=source, options={"encoder": options["encoder"]}))
    for query in QUERIES:
        found, expected = search(engine, query, k=10), search(ours, query, k=10)
        assert [hit.passage for hit in found] == [hit.passage for hit in expected]
        assert [hit.retrieval_score for hit in found] == pytest.approx([hit.retrieval_score for hit in expected], abs=1e-5)
    assert engine.corpus_hash == ours.corpus_hash


def test_concurrent_searches_find_what_single_ones_do(index, search):
    engine = build_retriever(RetrieverConfig(name="qdrant", index=index)).retriever

    async def together():
        return await asyncio.gather(*(engine.search(query, k=k) for query in QUERIES for k in (1, 3)))

    # Not the scores: a batch is encoded to vectors that differ by a rounding.
    one_by_one = [search(engine, query, k=k) for query in QUERIES for k in (1, 3)]
    assert [[hit.passage.id for hit in hits] for hits in asyncio.run(together())] == [
        [hit.passage.id for hit in hits] for hits in one_by_one
    ]


def test_a_filter_keeps_what_it_says_and_changes_the_key_of_stored_searches(index, search):
    only = {"must": [{"key": "title", "match": {"value": "title 7"}}]}
    engine = build_retriever(RetrieverConfig(name="qdrant", index=index, options={"filter": only}))
    assert [hit.passage.id for hit in search(engine, QUERIES[0], k=10)] == ["p7"]
    assert engine.revision != build_retriever(RetrieverConfig(name="qdrant", index=index)).revision


def test_another_encoder_is_refused(index, options):
    prompted = options | {"encoder": options["encoder"] | {"query_prompt": "query: "}}
    with pytest.raises(RetrievalError, match="was encoded with query_prompt='', but the recipe says 'query: '"):
        build_retriever(RetrieverConfig(name="qdrant", options=prompted))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"path": None}, "name either `url` .* or `path`"),
        ({"filter": {"must": [{"nonsense": 1}]}}, "options.filter: is no filter of Qdrant"),
        ({"collection": "../wiki"}, "options.collection: String should match pattern"),
    ],
)
def test_an_option_that_cannot_be_is_said(index, options, change, message):
    with pytest.raises(RecipeError, match=message):
        build_retriever(RetrieverConfig(name="qdrant", options=options | change))


def served(answer, options, *searches):
    """What searches find, or raise, on a server that gives `answer(searches)`, and the requests that it got."""
    with scripted(lambda body: answer(body["searches"])) as server:
        remote = qdrant.Options(**options | {"path": None, "url": server.address, "tries": 2})
        engine = qdrant.Qdrant(remote)

        async def together():
            return await asyncio.gather(*(engine.search(query, k=k) for query, k in searches), return_exceptions=True)

        return asyncio.run(together()), server


def replied(searches):
    point = {"id": 7, "version": 0, "score": 0.5, "payload": {"id": "p7", "title": "title 7", "text": "x"}}
    return 200, {"result": [{"points": [point]} for _ in searches], "status": "ok", "time": 0.0}


@pytest.mark.filterwarnings("ignore:Api key is used with an insecure connection")
def test_queries_asked_for_together_share_a_request_that_carries_the_key(options, monkeypatch):
    monkeypatch.setenv("QDRANT_API_KEY", "s3cret")
    found, server = served(replied, options, ("a", 1), ("b", 3))
    assert [hits[0].passage.id for hits in found] == ["p7", "p7"]
    assert [[search["limit"] for search in body["searches"]] for body in server.bodies] == [[1, 3]]
    assert {name.lower(): value for name, value in server.headers[0].items()}["api-key"] == "s3cret"


def test_a_query_that_is_refused_does_not_fail_the_others(options):
    def answer(searches):
        return (400, {"status": {"error": "no"}}) if any(search["limit"] == 9 for search in searches) else replied(searches)

    found, _ = served(answer, options, ("a", 1), ("b", 9), ("c", 2), ("d", 3))
    assert [isinstance(hits, RetrievalError) for hits in found] == [False, True, False, False]
    assert "a request failed (status 400" in str(found[1])


def test_a_server_that_stumbles_is_asked_again(options, monkeypatch):
    monkeypatch.setattr("refinery.retrievers.search.requests.time.sleep", lambda seconds: None)
    replies = iter([(503, {}), (200, None)])
    found, server = served(lambda searches: reply if (reply := next(replies))[0] == 503 else replied(searches), options, ("a", 1))
    assert (len(found[0]), len(server.bodies)) == (1, 2)
