"""Embeddings from an endpoint, over loopback and the real openai client."""

import asyncio

import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer

from refinery.contract.records import Question
from refinery.errors import RetrievalError
from refinery.retrievers.base import RetrieverConfig
from refinery.retrievers.search.build import build_retriever

ASKED = web.AppKey("asked", list)
WORDS = ["film", "born", "france", "norway"]


def endpoint(status=200):
    """An embeddings server whose vectors count a few words, and that remembers the texts it was sent."""
    app = web.Application()
    app[ASKED] = []

    async def embeddings(request):
        body = await request.json()
        app[ASKED].append(body["input"])
        assert body["model"] == "text-embedding-3-large"
        rows = [[2.0 * text.lower().count(word) for word in WORDS] for text in body["input"]]
        data = [{"object": "embedding", "index": number, "embedding": row} for number, row in enumerate(rows)]
        usage = {"prompt_tokens": 1, "total_tokens": 1}
        return web.json_response({"object": "list", "data": data, "model": body["model"], "usage": usage}, status=status)

    app.add_routes([web.post("/v1/embeddings", embeddings)])
    return app


def found_through(app, *searches):
    async def run():
        async with TestServer(app) as server:
            encoder = {"model": "text-embedding-3-large", "base_url": str(server.make_url("/v1"))}
            config = RetrieverConfig(name="candidates", options={"scoring": "embeddings", "encoder": encoder})
            retriever = build_retriever(config)
            return [await retriever.search(query, k=2, question=question) for query, question in searches]

    return asyncio.run(run())


def test_a_questions_paragraphs_are_sent_once_and_ranked_by_cosine(passages):
    question = Question(id="q", text="Which?", passages=passages)
    app = endpoint()
    found = found_through(app, ("the film", question), ("in Norway", question), ("in Norway", question))
    assert [hits[0].passage.id for hits in found] == ["dune", "oslo", "oslo"]
    assert found[0][0].retrieval_score == pytest.approx(1.0)
    assert [len(texts) for texts in app[ASKED]] == [4, 1, 1]


def test_an_endpoint_that_refuses_is_an_error_of_the_search(passages):
    with pytest.raises(RetrievalError, match=r"no embeddings from 'text-embedding-3-large' .* Check the endpoint and its key"):
        found_through(endpoint(status=401), ("the film", Question(id="q", text="Which?", passages=passages)))
