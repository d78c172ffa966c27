"""Search-R1's `/retrieve` contract over any retriever: POST {queries, topk, return_scores} returns {result: [[...], ...]}."""

import asyncio
import threading
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from typing import Any

from aiohttp import web
from aiohttp.typedefs import Middleware
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from refinery.contract.records import Passage
from refinery.errors import RefineryError
from refinery.retrievers.base import Hit, Retriever
from refinery.runtime.http_checks import Guard, RequestFault, read_json_body
from refinery.runtime.observe import telemetry
from refinery.runtime.observe.prometheus import CONTENT_TYPE, OTHER, PATH, ServerMetrics

_MOST_BYTES = 1 << 24  # of a request
_MOST_HITS = 1 << 16  # of a request: its queries times topk, which its reply and memory are proportional to
_MOST_IN_FLIGHT = 64

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


class _Request(BaseModel):
    model_config = ConfigDict(extra="ignore")

    queries: list[str] = Field(max_length=4_096)
    topk: int | None = Field(default=None, ge=0, le=1_000)  # 0 and null mean the server's own number, as in Search-R1
    return_scores: bool = False


def retrieve_app(retriever: Retriever, *, topk: int, guard: Guard | None = None) -> web.Application:
    """The server. Queries that arrive together, in one request or in several, are searched together on a separate thread."""
    searches, guard, metrics = _SearchThread(retriever), guard or Guard(), ServerMetrics()
    in_flight = 0

    async def retrieve(request: web.Request) -> web.Response:
        nonlocal in_flight
        asked = await _parsed(request, topk)
        if in_flight >= _MOST_IN_FLIGHT:
            raise RequestFault(429, f"{in_flight} requests are being searched, which is the maximum. Try again later.")
        in_flight += 1
        try:
            metrics.count("searches", "", by=len(asked.queries))
            found = await searches.search(asked.queries, asked.topk or topk)
        except RefineryError as error:
            metrics.count("failures", "", telemetry.kind_of(error))
            raise RequestFault(502, str(error)) from None
        finally:
            in_flight -= 1
        return web.json_response({"result": [[_rendered(hit, scores=asked.return_scores) for hit in hits] for hits in found]})

    async def health(request: web.Request) -> web.Response:
        return web.json_response({"status": "ok", "revision": retriever.revision, "corpus_hash": retriever.corpus_hash})

    async def page(request: web.Request) -> web.Response:
        return web.Response(body=metrics.page(), headers={"Content-Type": CONTENT_TYPE})

    @web.middleware
    async def guarded(request: web.Request, handler: Handler) -> web.StreamResponse:
        try:
            guard.check(request.headers)
            return await handler(request)
        except RequestFault as fault:
            headers = {"Retry-After": "1"} if fault.status == 429 else None
            return web.json_response({"error": str(fault)}, status=fault.status, headers=headers)

    app = web.Application(middlewares=[_observed(metrics), guarded])
    app.add_routes([web.post("/retrieve", retrieve), web.get("/health", health), web.get(PATH, page)])
    app.cleanup_ctx.append(searches.running)
    return app


def _observed(metrics: ServerMetrics) -> Middleware:
    """Middleware around everything else: a request counts under its route, and its spans continue the trace that it is part of."""

    @web.middleware
    async def observed(request: web.Request, handler: Handler) -> web.StreamResponse:
        resource = request.match_info.route.resource
        with metrics.request(resource.canonical if resource else OTHER, request.headers) as answered:
            try:
                response = await handler(request)
            except web.HTTPException as refused:
                answered.status = refused.status
                raise
            answered.status = response.status
            return response

    return observed


class _SearchThread:
    """An event loop on a separate thread that runs every search, so that the server can answer other requests meanwhile."""

    def __init__(self, retriever: Retriever) -> None:
        self._retriever = retriever
        self._loop = asyncio.new_event_loop()

    async def running(self, app: web.Application) -> AsyncIterator[None]:
        """Run the thread as long as the application runs."""
        thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        thread.start()
        yield
        self._loop.call_soon_threadsafe(self._loop.stop)
        thread.join(timeout=1)
        if not thread.is_alive():  # a thread in the middle of a search is not waited for
            self._loop.close()

    async def search(self, queries: Sequence[str], k: int) -> list[list[Hit]]:
        """The hits of each query. Raises RefineryError when a search fails."""
        return await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(self._search_all(queries, k), self._loop))

    async def _search_all(self, queries: Sequence[str], k: int) -> list[list[Hit]]:
        return await asyncio.gather(*(self._retriever.search(query, k=k) for query in queries))


async def _parsed(request: web.Request, topk: int) -> _Request:
    """The parsed request. Raises RequestFault when it breaks the contract or asks for too many hits."""
    body = await read_json_body(request.headers, request.content.iter_any(), most_bytes=_MOST_BYTES)
    try:
        asked = _Request.model_validate_json(body)
    except ValidationError as error:
        fault = error.errors()[0]
        raise RequestFault(422, f"{'.'.join(map(str, fault['loc'])) or 'body'}: {fault['msg']}") from None
    if (hits := len(asked.queries) * (asked.topk or topk)) > _MOST_HITS:
        raise RequestFault(422, f"queries: {len(asked.queries):,} times topk is {hits:,} hits; the maximum is {_MOST_HITS:,}")
    return asked


def _rendered(hit: Hit, *, scores: bool) -> dict[str, Any]:
    document = _document(hit.passage)
    return {"document": document, "score": hit.retrieval_score} if scores else document


def _document(passage: Passage) -> dict[str, str]:
    """The hit with `contents` as well, which Search-R1's clients read: the quoted title, then the text."""
    return {**passage.model_dump(), "contents": f'"{passage.title}"\n{passage.text}'}
