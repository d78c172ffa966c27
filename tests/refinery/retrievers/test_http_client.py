"""The `http` retriever's own part: who it asks, over which connections, with which headers, and what one bad query costs."""

import asyncio

import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer

from refinery.errors import RecipeError, RetrievalError
from refinery.retrievers.base import RetrieverConfig
from refinery.retrievers.bm25 import Bm25
from refinery.retrievers.http import Http, Options
from refinery.retrievers.search.build import build_retriever
from refinery.retrievers.search.server import retrieve_app
from refinery.runtime.http_checks import Guard


def through(app, *queries, **options):
    """What a client finds behind a server; exceptions in place of hits where it finds none."""

    async def run():
        async with TestServer(app) as server:
            client = Http(Options(url=str(server.make_url("/retrieve")), **options))
            return await asyncio.gather(*(client.search(query, k=1) for query in queries), return_exceptions=True)

    return asyncio.run(run())


def serving(retrieve):
    """A server with one handler."""
    app = web.Application()
    app.add_routes([web.post("/retrieve", retrieve)])
    return app


def opened(app, **options):
    """The retriever that a recipe opens on a running server."""

    async def run():
        async with TestServer(app) as server:
            config = RetrieverConfig(name="http", options={"url": str(server.make_url("/retrieve")), **options})
            return await asyncio.to_thread(build_retriever, config)

    return asyncio.run(run())


def test_a_server_names_its_corpus(passages):
    served = Bm25(passages)
    client = opened(retrieve_app(served, topk=3))
    assert client.corpus_hash == served.corpus_hash
    assert client.revision == opened(retrieve_app(served, topk=1)).revision != opened(retrieve_app(Bm25(passages[:2]), topk=3)).revision


def test_a_server_that_names_no_corpus_is_searched_all_the_same():
    client = opened(web.Application())
    assert (client.corpus_hash, client.revision) == (None, None)


def test_a_wrong_key_is_said_when_the_recipe_is_opened(passages):
    with pytest.raises(RetrievalError, match=r"refuses the key \(status 401\). Set `api_key_env`"):
        opened(retrieve_app(Bm25(passages), topk=3, guard=Guard("secret")))


def test_a_server_that_is_not_there_yet_is_a_warning(caplog):
    build_retriever(RetrieverConfig(name="http", options={"url": "http://127.0.0.1:9/retrieve"}))
    assert "does not answer yet" in caplog.text


@pytest.mark.parametrize("status", [422, 500])
def test_a_query_that_a_server_cannot_search_does_not_fail_the_others(status):
    asked = []

    async def retrieve(request):
        queries = (await request.json())["queries"]
        asked.append(len(queries))
        return web.json_response({"result": [[]] * len(queries)}, status=status if "bad" in queries else 200)

    found = through(serving(retrieve), "a", "b", "bad", "c", tries=1)
    assert [isinstance(hits, RetrievalError) for hits in found] == [False, False, True, False]
    assert asked == [4, 2, 2, 1, 1]


def test_connections_stay_open_and_requests_run_at_once():
    ports, waiting, most = [], [], []

    async def retrieve(request):
        ports.append(request.transport.get_extra_info("peername")[1])
        waiting.append(request)
        most.append(len(waiting))
        await asyncio.sleep(0.05)
        waiting.remove(request)
        return web.json_response({"result": [[]] * len((await request.json())["queries"])})

    through(serving(retrieve), *map(str, range(8)), queries_per_request=1, requests_at_once=2)
    assert (len(ports), len(set(ports)), max(most)) == (8, 2, 2)


def test_a_connection_on_which_the_server_hung_up_is_opened_again():
    asked = []

    async def retrieve(request):
        asked.append(request)
        response = web.json_response({"result": [[]]})
        if len(asked) == 1:
            asyncio.get_running_loop().call_later(0.05, request.transport.close)
        return response

    async def run():
        async with TestServer(serving(retrieve)) as server:
            client = Http(Options(url=str(server.make_url("/retrieve")), tries=1, requests_at_once=1))
            await client.search("a", k=1)
            await asyncio.sleep(0.2)
            return await client.search("b", k=1)

    assert asyncio.run(run()) == []


def test_headers_come_from_the_environment(monkeypatch):
    seen = []

    async def retrieve(request):
        seen.append(request.headers.get("X-Tenant"))
        return web.json_response({"result": [[]]})

    monkeypatch.setenv("TENANT", "lab-7\n")
    through(serving(retrieve), "a", headers_env={"X-Tenant": "TENANT", "X-Unset": "NOT_SET"})
    assert seen == ["lab-7"]
    monkeypatch.setenv("TENANT", "a\r\nX-Evil: s3cret")
    with pytest.raises(RecipeError, match="headers_env: the value for 'X-Tenant' .* no header can have") as raised:
        Http(Options(url="http://127.0.0.1:9", headers_env={"X-Tenant": "TENANT"}))
    assert "s3cret" not in str(raised.value)
