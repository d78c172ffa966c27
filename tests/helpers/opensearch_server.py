"""A double of OpenSearch's REST API on loopback: what its documentation says of the requests that the retriever sends.

It scores BM25 over lower-cased words, without stop words or stems: enough to see rows, orders and errors go through, and no search engine.
"""

import asyncio
import json
import math
import threading
from collections import Counter
from contextlib import contextmanager
from typing import Any

from aiohttp import web


class OpenSearchDouble:
    """`requests` remembers (method, path, headers). `answer(method, path)` may give (status, JSON) in place of the double's reply."""

    def __init__(self, answer=lambda method, path: None) -> None:
        self.indices: dict[str, dict[str, Any]] = {}
        self.requests: list[tuple[str, str, dict[str, str]]] = []
        self.bodies: list[Any] = []
        self._answer = answer

    def app(self) -> web.Application:
        app = web.Application(client_max_size=1 << 27)
        app.router.add_route("*", "/{path:.*}", self._handle)
        return app

    async def _handle(self, request: web.Request) -> web.Response:
        path, text = request.match_info["path"], await request.text()
        self.requests.append((request.method, path, dict(request.headers)))
        self.bodies += map(json.loads, text.splitlines())
        status, value = self._answer(request.method, path) or self._reply(request.method, path.split("/"), text)
        return web.Response(status=status, text=json.dumps(value), content_type="application/json")

    def _reply(self, method: str, path: list[str], text: str) -> tuple[int, Any]:
        match method, path:
            case "POST", ["_aliases"]:
                return self._alias(json.loads(text)["actions"])
            case (("GET" | "HEAD"), ["_alias", name]):
                found = {key: {"aliases": {name: {}}} for key, index in self.indices.items() if name in index["aliases"]}
                return (200, found) if found else (404, {"error": f"alias [{name}] missing", "status": 404})
            case "PUT", [name]:
                self.indices[name] = {"rows": {}, "aliases": set(), **json.loads(text)}
                return 200, {"acknowledged": True, "index": name}
        key = next((key for key, index in self.indices.items() if path[0] == key or path[0] in index["aliases"]), None)
        if key is None:
            return 404, {"error": {"type": "index_not_found_exception", "reason": f"no such index [{path[0]}]"}, "status": 404}
        return self._of_index(key, method, path[1:], text)

    def _of_index(self, key: str, method: str, action: list[str], text: str) -> tuple[int, Any]:
        index = self.indices[key]
        match method, action:
            case "HEAD", []:
                return 200, {}
            case "POST", ["_bulk"]:
                return self._bulk(index, [json.loads(line) for line in text.splitlines()])
            case "POST", ["_refresh"]:
                return 200, {}
            case "PUT", ["_mapping"]:
                index["mappings"] |= json.loads(text)
                return 200, {"acknowledged": True}
            case "GET", ["_mapping"]:
                return 200, {key: {"mappings": index["mappings"]}}
            case _, ["_count"]:
                return 200, {"count": len(index["rows"])}
            case _, ["_msearch"]:
                lines = [json.loads(line) for line in text.splitlines()]
                return 200, {"responses": [self._search(index, body) for body in lines[1::2]]}
        raise AssertionError((method, action))

    def _alias(self, actions: list[dict[str, Any]]) -> tuple[int, Any]:
        for action in actions:
            ((verb, what),) = action.items()
            aliases = self.indices[what["index"]]["aliases"]
            (aliases.add if verb == "add" else aliases.discard)(what["alias"])
        return 200, {"acknowledged": True}

    def _bulk(self, index: dict[str, Any], lines: list[dict[str, Any]]) -> tuple[int, Any]:
        for action, row in zip(lines[::2], lines[1::2], strict=True):
            assert set(row) == set(index["mappings"]["properties"])
            index["rows"][action["index"]["_id"]] = row
        return 200, {"errors": False, "items": [{"index": {"_id": action["index"]["_id"], "status": 201}} for action in lines[::2]]}

    def _search(self, index: dict[str, Any], body: dict[str, Any]) -> dict[str, Any]:
        if body["size"] > 10_000:
            return {"error": {"type": "illegal_argument_exception", "reason": "Result window is too large"}, "status": 400}
        rows, words = list(index["rows"].values()), body["query"]["match"]["searched"].lower().split()
        scores = [_score(words, row, rows) for row in rows]
        best = sorted((i for i in range(len(rows)) if scores[i] > 0), key=lambda i: (-scores[i], rows[i]["position"]))[: body["size"]]
        hits = [{"_id": str(i), "_score": scores[i], "_source": {key: rows[i][key] for key in body["_source"]}} for i in best]
        return {"hits": {"hits": hits}, "status": 200, "timed_out": False, "_shards": {"failed": 0}}


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


def _score(words: list[str], row: dict[str, Any], rows: list[dict[str, Any]], k1: float = 0.9, b: float = 0.4) -> float:
    counts, all_words = Counter(_words(row)), [_words(one) for one in rows]
    norm = k1 * (1 - b + b * sum(counts.values()) / (sum(map(len, all_words)) / len(rows)))
    frequencies = {word: sum(word in one for one in all_words) for word in words}
    return sum(
        math.log(1 + (len(rows) - frequencies[word] + 0.5) / (frequencies[word] + 0.5)) * counts[word] / (counts[word] + norm)
        for word in words
        if counts[word]
    )


def _words(row: dict[str, Any]) -> list[str]:
    return "".join(letter if letter.isalnum() else " " for letter in row["searched"].lower()).split()
