"""An index that somebody else made, with opensearch-py's own client against a double that replies in the engine's own shape."""

import asyncio

import pytest

pytest.importorskip("opensearchpy", reason="needs the extra `opensearch`")

from helpers.opensearch_server import OpenSearchDouble, running

from refinery.contract.records import Passage
from refinery.errors import RecipeError, RetrievalError
from refinery.retrievers.base import Hit, RetrieverConfig
from refinery.retrievers.search.build import build_retriever

# As https://www.elastic.co/guide/en/elasticsearch/reference/8.17/search-multi-search.html and search-your-data show them.
LYON = {"_index": "news", "_id": "x7", "_score": 1.3862942, "_source": {"head": {"line": "Lyon"}, "body": ["A city.", "In France."]}}
OSLO = {"_index": "news", "_id": "y1", "_score": 0.5, "_source": {"body": "Oslo is a city.", "nr": 7}}


def replies(*rows):
    hits = {"total": {"value": len(rows), "relation": "eq"}, "max_score": 1.3862942, "hits": list(rows)}
    shards = {"total": 1, "successful": 1, "skipped": 0, "failed": 0}
    return {"took": 3, "responses": [{"took": 2, "timed_out": False, "_shards": shards, "hits": hits, "status": 200}]}


@pytest.fixture
def build():
    """Builds the retriever over an index with these rows, and gives the double too."""
    double = OpenSearchDouble()
    with running(double) as address:

        def made(*rows, answer=None, **options):
            double._answer = lambda method, path: answer or (200, replies(*rows))
            values = {"url": address, "index": "news", "text_field": "body", "tries": 1, **options}
            return build_retriever(RetrieverConfig(name="existing_index", options=values)), double

        yield made


def found(retriever, query="city", k=5):
    return asyncio.run(retriever.search(query, k=k))


def test_rows_become_passages_by_the_names_of_their_fields(build):
    retriever, _ = build(LYON, OSLO, title_field="head.line")
    assert found(retriever) == [
        Hit(Passage(id="x7", title="Lyon", text="A city. In France."), 1.3862942),
        Hit(Passage(id="y1", title="", text="Oslo is a city."), 0.5),
    ]


def test_the_query_is_a_multi_match_over_the_fields(build):
    retriever, double = build(LYON, title_field="head.line", search_fields=["head.line^2", "body"], query_type="cross_fields")
    found(retriever, "in OR (France", k=3)
    assert double.bodies[-1] == {
        "query": {"multi_match": {"query": "in OR (France", "fields": ["head.line^2", "body"], "type": "cross_fields"}},
        "size": 3,
        "_source": ["head.line", "body"],
    }


def test_a_field_of_ones_own_is_the_id(build):
    retriever, _ = build(OSLO, id_field="nr")
    assert [hit.passage.id for hit in found(retriever)] == ["7"]


def test_the_key_is_read_from_the_environment_and_sent(build, monkeypatch):
    monkeypatch.setenv("NEWS_KEY", "s3cret")
    _, double = build(LYON, api_key_env="NEWS_KEY")
    assert {headers["Authorization"] for _, _, headers in double.requests} == {"ApiKey s3cret"}


@pytest.mark.parametrize(
    ("rows", "options", "message"),
    [
        ([OSLO], {"text_field": "text"}, r"index 'news': row 'y1' has no field 'text'. Name one of its fields: body, nr."),
        ([], {}, r"index 'news' has no rows"),
        ([], {"answer": (404, {"error": {"type": "index_not_found_exception", "reason": "no such index [news]"}, "status": 404})}, "404"),
        ([], {"answer": (401, {"error": {"type": "security_exception", "reason": "missing authentication"}, "status": 401})}, "401"),
    ],
)
def test_an_index_that_cannot_be_used_is_refused_before_the_first_search(rows, options, message, build):
    with pytest.raises(RetrievalError, match=message):
        build(*rows, **options)


def test_passages_beside_it_are_refused():
    config = RetrieverConfig(name="existing_index", passages="p.jsonl", options={"index": "news", "text_field": "body"})
    with pytest.raises(RecipeError, match="existing_index searches what is in the engine"):
        build_retriever(config)
