"""Search-R1's `/retrieve` contract over any retriever: POST {queries, topk, return_scores}, and {result: [[...], ...]} comes back."""

import asyncio
from typing import Any

from aiohttp import web
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from refinery.errors import RefineryError
from refinery.records import Passage
from refinery.retrievers.base import Hit, Retriever

_MOST_BYTES = 1 << 26  # of a request


class _Request(BaseModel):
    model_config = ConfigDict(extra="ignore")

    queries: list[str] = Field(max_length=4_096)
    topk: int | None = Field(None, ge=0, le=1_000)  # 0 and null mean the server's own number, as in Search-R1
    return_scores: bool = False


def retrieve_app(retriever: Retriever, *, topk: int) -> web.Application:
    """The server. Queries of one request, and of requests that arrive together, are searched together."""

    async def retrieve(request: web.Request) -> web.Response:
        try:
            asked = _Request.model_validate_json(await request.read())
        except ValidationError as error:
            fault = error.errors()[0]
            return _error(422, f"{'.'.join(map(str, fault['loc'])) or 'body'}: {fault['msg']}")
        k = asked.topk or topk
        try:
            found = await asyncio.gather(*(retriever.search(query, k=k) for query in asked.queries))
        except RefineryError as error:
            return _error(502, str(error))
        return web.json_response({"result": [[_rendered(hit, scores=asked.return_scores) for hit in hits] for hits in found]})

    async def health(request: web.Request) -> web.Response:
        known = {name: getattr(retriever, name, None) for name in ("revision", "corpus_hash")}
        return web.json_response({"status": "ok", **known})

    app = web.Application(client_max_size=_MOST_BYTES)
    app.add_routes([web.post("/retrieve", retrieve), web.get("/health", health)])
    return app


def _rendered(hit: Hit, *, scores: bool) -> dict[str, Any]:
    document = _document(hit.passage)
    return {"document": document, "score": hit.retrieval_score} if scores else document


def _document(passage: Passage) -> dict[str, str]:
    """With `contents` too: what Search-R1's clients read, the title first and in quotes."""
    return {**passage.model_dump(), "contents": f'"{passage.title}"\n{passage.text}'}


def _error(status: int, message: str) -> web.Response:
    return web.json_response({"error": message}, status=status)
