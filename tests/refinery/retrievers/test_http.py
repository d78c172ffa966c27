"""Search-R1's /retrieve contract, from both sides, over a loopback server."""

import asyncio
import json
import socket
import subprocess
import sys
import threading
import urllib.request

import pytest
from aiohttp import web
from aiohttp.test_utils import TestClient, TestServer
from helpers.unservable import UNSERVABLE

from refinery.cli import main
from refinery.contract.records import write_records
from refinery.errors import RetrievalError
from refinery.retrievers.base import RetrieverConfig
from refinery.retrievers.bm25 import Bm25
from refinery.retrievers.fake import FakeRetriever
from refinery.retrievers.http import Http, Options, build
from refinery.retrievers.search.build import build_retriever
from refinery.retrievers.search.server import retrieve_app
from refinery.runtime.files.fingerprint import text_fingerprint
from refinery.runtime.http_checks import Guard

ASKED = web.AppKey("asked", list)


def post(retriever, body, *, topk=3, headers=None, **guard):
    """(status, JSON) of one request; `body` may be bytes."""

    async def run():
        async with TestClient(TestServer(retrieve_app(retriever, topk=topk, **guard))) as client:
            sent = {"data": body} if isinstance(body, bytes) else {"json": body}
            headers_sent = ({"Content-Type": "application/json"} if isinstance(body, bytes) else {}) | (headers or {})
            async with client.post("/retrieve", **sent, headers=headers_sent) as response:
                return response.status, await response.json()

    return asyncio.run(run())


def through(app, *searches, **options):
    """What a client finds behind a server; exceptions in place of hits where it finds none."""

    async def run():
        async with TestServer(app) as server:
            client = Http(Options(url=str(server.make_url("/retrieve")), **options))
            return await asyncio.gather(*(client.search(query, k=k) for query, k in searches), return_exceptions=True)

    return asyncio.run(run())


def replying(*replies):
    """A server that gives (status, text) in turn, and remembers the requests."""
    app, waiting = web.Application(client_max_size=1 << 26), list(replies)
    app[ASKED] = []

    async def retrieve(request):
        app[ASKED].append(await request.json())
        status, text = waiting.pop(0) if len(waiting) > 1 else waiting[0]
        return web.Response(status=status, text=text, content_type="application/json")

    app.add_routes([web.post("/retrieve", retrieve)])
    return app


def test_documents_come_with_scores_or_without(passages):
    asked = {"queries": ["Norway", "zyxw"], "topk": 2}
    status, plain = post(Bm25(passages), asked)
    _, scored = post(Bm25(passages), asked | {"return_scores": True})
    document = {"id": "oslo", "title": "Oslo", "text": "Oslo is a city in Norway.", "contents": '"Oslo"\nOslo is a city in Norway.'}
    assert (status, plain) == (200, {"result": [[document], []]})
    assert scored["result"][0][0]["document"] == document
    assert scored["result"][0][0]["score"] > 0


def test_a_request_without_a_number_gets_the_servers(passages):
    for topk in (None, 0):
        assert len(post(Bm25(passages), {"queries": ["city film born"], "topk": topk}, topk=1)[1]["result"][0]) == 1


@pytest.mark.parametrize(
    ("body", "message"),
    [
        (b"not json", "body: Invalid JSON"),
        (b'{"queries": ["\xff"]}', "body: Invalid JSON"),
        ({"queries": "Lyon"}, "queries: Input should be a valid array"),
        ({"queries": ["Lyon"], "topk": 100_000}, "topk: Input should be less than or equal to 1000"),
        ({}, "queries: Field required"),
        ({"queries": ["Lyon"] * 1_000, "topk": 100}, "queries: 1,000 times topk is 100,000 hits; the maximum is 65,536"),
        ({"queries": ["Lyon"] * 4_096, "topk": 0}, "queries: 4,096 times topk is 69,632 hits; the maximum is 65,536"),
    ],
)
def test_a_request_outside_the_contract_says_what_is_wrong(passages, body, message):
    status, reply = post(Bm25(passages), body, topk=17)
    assert status == 422
    assert reply["error"].startswith(message)


def test_a_search_that_fails_is_a_status_and_not_the_end_of_the_server():
    def script(query):
        raise RetrievalError("the web is down")

    assert post(FakeRetriever(script), {"queries": ["Lyon"]}) == (502, {"error": "the web is down"})


def test_the_client_finds_what_the_server_searches(passages, search):
    searches = [("Norway", 1), ("a city in France", 3), ("zyxw", 2)]
    found = through(retrieve_app(Bm25(passages), topk=3), *searches)
    assert found == [search(Bm25(passages), query, k=k) for query, k in searches]


def test_queries_asked_for_together_are_sent_together():
    app = replying((200, '{"result": [[], [], []]}'))
    assert through(app, ("a", 1), ("b", 5), ("c", 2)) == [[], [], []]
    assert app[ASKED] == [{"queries": ["a", "b", "c"], "topk": 5, "return_scores": True}]


@pytest.mark.parametrize(
    ("document", "passage_id"),
    [
        pytest.param({"id": "7", "contents": '"Lyon"\nA city\nin France.'}, "7", id="e5"),
        pytest.param({"title": "Lyon", "text": "A city\nin France.", "contents": '"Lyon"\nA city\nin France.'}, None, id="bm25"),
    ],
)
def test_search_r1s_own_server_is_a_retriever_without_a_revision(document, passage_id):
    """Its retrieval_server.py has no /health, and gives ids only if it reads the passages from the corpus."""

    async def run():
        app = replying((200, json.dumps({"result": [[{"document": document, "score": 0.5}]]})))
        async with TestServer(app) as server:
            options = Options(url=str(server.make_url("/retrieve")))
            client = await asyncio.to_thread(build, RetrieverConfig(name="http"), options)
            return client, await client.search("Where is Lyon?", k=3), app[ASKED]

    client, [hit], asked = asyncio.run(run())
    assert (hit.passage.title, hit.passage.text, hit.retrieval_score) == ("Lyon", "A city\nin France.", 0.5)
    assert hit.passage.id == (passage_id or text_fingerprint(["Lyon", "A city\nin France."]))
    assert (client.revision, client.corpus_hash) == (None, None)
    assert asked == [{"queries": ["Where is Lyon?"], "topk": 3, "return_scores": True}]


def test_a_server_that_stumbles_is_asked_again():
    app = replying((503, "busy"), (200, '{"result": [[]]}'))
    assert through(app, ("Lyon", 1)) == [[]]
    assert len(app[ASKED]) == 2


@pytest.mark.parametrize(
    ("status", "text", "requests", "message"),
    [
        (422, "no", 1, "search failed \\(status 422: no\\)"),
        (500, "oops", 2, "search failed \\(status 500: oops\\)"),
        (200, "<html>", 1, "does not reply as /retrieve does"),
        (200, '{"result": [[{"document": {}}]]}', 1, "does not reply as /retrieve does"),
        (200, '{"result": [[], []]}', 1, "gave 2 results for 1 queries"),
    ],
)
def test_a_server_that_does_not_answer_by_the_contract_is_an_error_of_the_query(status, text, requests, message):
    app = replying((status, text))
    [error] = through(app, ("Lyon", 1), tries=2)
    with pytest.raises(RetrievalError, match=message):
        raise error
    assert len(app[ASKED]) == requests


def test_a_server_that_is_not_there_is_an_error_of_the_query(search):
    with pytest.raises(RetrievalError, match=r"http://127.0.0.1:9/retrieve: search failed .* refinery serve-retriever RECIPE"):
        search(Http(Options(url="http://127.0.0.1:9/retrieve", tries=1)), "Lyon")


def test_the_command_serves_a_recipe(tmp_path, passages):
    write_records(tmp_path / "passages.jsonl", passages)
    (tmp_path / "bm25.yaml").write_text("name: bm25\n", encoding="utf-8")
    command = [sys.executable, "-u", "-m", "refinery.cli", "serve-retriever", str(tmp_path / "bm25.yaml"), "--port", "0"]
    options = ["--set", f"passages={tmp_path / 'passages.jsonl'}"]
    with subprocess.Popen([*command, *options], stdout=subprocess.PIPE, text=True) as server:
        try:
            address = server.stdout.readline().strip().removeprefix("bm25 at ").removesuffix("/retrieve")
            body = urllib.request.Request(
                f"{address}/retrieve", data=b'{"queries": ["Norway"]}', headers={"Content-Type": "application/json"}
            )
            with urllib.request.urlopen(body) as reply:
                assert b'"id": "oslo"' in reply.read()
            with urllib.request.urlopen(f"{address}/health") as reply:
                assert Bm25(passages).corpus_hash.encode() in reply.read()
        finally:
            server.terminate()


@pytest.mark.parametrize(
    ("body", "headers", "status"),
    [
        (b'{"queries": ["Lyon"]}', {"Content-Type": "text/plain"}, 415),
        (b'{"queries": ["Lyon"]}', {"Host": "evil.example"}, 400),
        (b'{"queries": ["Lyon"]}', {"Host": "127.0.0.1.evil.example:80"}, 400),
        (b'{"queries": ["Lyon"]}', {"Host": "[::1]:80"}, 200),
        (b'{"queries": ["' + b"x" * (1 << 24) + b'"]}', {}, 413),
    ],
    ids=["form", "other host", "longer host", "ipv6", "large"],
)
def test_a_page_elsewhere_and_a_body_without_end_are_refused(passages, body, headers, status):
    assert post(Bm25(passages), body, headers=headers, guard=Guard(hosts=("127.0.0.1", "::1")))[0] == status


@pytest.mark.parametrize(("variable", "is_answered"), [("A_KEY", True), ("NOT_SET", False), (None, False)])
def test_a_server_with_a_key_answers_who_sends_it(passages, monkeypatch, variable, is_answered):
    monkeypatch.setenv("A_KEY", "secret")
    [found] = through(retrieve_app(Bm25(passages), topk=3, guard=Guard("secret")), ("Norway", 3), api_key_env=variable)
    assert isinstance(found, list) if is_answered else "status 401" in str(found)


def test_whoever_asks_for_something_else_during_a_search_is_answered():
    waiting, in_time = threading.Event(), []
    slow = FakeRetriever(lambda query: in_time.append(waiting.wait(timeout=5)) or [])

    async def run():
        async with TestClient(TestServer(retrieve_app(slow, topk=3))) as client:
            search = asyncio.ensure_future(client.post("/retrieve", json={"queries": ["Lyon"]}))
            await asyncio.sleep(0.1)
            async with client.get("/health") as response:
                waiting.set()
                return response.status, (await search).status

    assert (asyncio.run(run()), in_time) == ((200, 200), [True])


def test_more_requests_than_can_be_searched_are_sent_away(monkeypatch):
    monkeypatch.setattr("refinery.retrievers.search.server._MOST_IN_FLIGHT", 1)
    waiting = threading.Event()

    async def run():
        async with TestClient(TestServer(retrieve_app(FakeRetriever(lambda query: waiting.wait(timeout=5) and []), topk=3))) as client:
            first = asyncio.ensure_future(client.post("/retrieve", json={"queries": ["Lyon"]}))
            await asyncio.sleep(0.1)
            refused = await client.post("/retrieve", json={"queries": ["Oslo"]})
            waiting.set()
            return refused.status, refused.headers["Retry-After"], (await first).status

    assert asyncio.run(run()) == (429, "1", 200)


def test_a_server_keeps_its_searches_where_it_was_told_to(tmp_path, passages):
    write_records(tmp_path / "passages.jsonl", passages)
    config = RetrieverConfig(passages=tmp_path / "passages.jsonl", cache=tmp_path / "searches.sqlite")
    assert post(build_retriever(config), {"queries": ["Norway"]}) == post(Bm25(passages), {"queries": ["Norway"]})


@pytest.mark.parametrize(("arguments", "message"), UNSERVABLE)
def test_what_cannot_be_served_is_one_line(tmp_path, capsys, passages, arguments, message):
    write_records(tmp_path / "passages.jsonl", passages)
    (tmp_path / "bm25.yaml").write_text(f"name: bm25\npassages: {tmp_path / 'passages.jsonl'}\n", encoding="utf-8")
    with socket.create_server(("127.0.0.1", 0)) as taken:
        arguments = [str(taken.getsockname()[1]) if argument == "taken" else argument for argument in arguments]
        assert main(["serve-retriever", str(tmp_path / "bm25.yaml"), *arguments]) == 2
    error = capsys.readouterr().err
    assert message in error
    assert len(error.splitlines()) == 1
