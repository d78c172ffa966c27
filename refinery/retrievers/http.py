"""A retriever behind Search-R1's `/retrieve` contract: Search-R1's own server, or `refinery serve-retriever`."""

import asyncio
import os
from collections.abc import Sequence
from typing import Any

from pydantic import BaseModel, Field, ValidationError

from refinery.contract.records import Passage, Question
from refinery.errors import RetrievalError
from refinery.retrievers.base import Hit, Retriever, RetrieverConfig, RetrieverPlugin
from refinery.runtime.batching import Batcher
from refinery.runtime.fingerprint import text_fingerprint
from refinery.runtime.recipe import Recipe


class Options(Recipe):
    """Where the server is, and how long to wait for it."""

    url: str = Field(description="such as http://127.0.0.1:8000/retrieve", pattern=r"^https?://")
    revision: str | None = Field(default=None, description="your name for the server's corpus; needed to store searches between runs")
    api_key_env: str | None = Field(default=None, description="environment variable that holds the server's key, if it needs one")
    timeout_seconds: float = Field(default=60, gt=0)
    tries: int = Field(default=3, description="tries per request; the wait doubles before each retry", ge=1)
    queries_per_request: int = Field(default=64, ge=1)


class _Document(BaseModel):
    """A passage as the server returns it: with title and text, or with both in `contents`, the title first and in quotes."""

    id: str | int | None = None
    title: str | None = None
    text: str | None = None
    contents: str | None = None


class _Scored(BaseModel):
    document: _Document
    score: float


class _Reply(BaseModel):
    result: list[list[_Scored]]


class Http(Retriever):
    """Sends concurrent queries in one request."""

    def __init__(self, options: Options) -> None:
        self._options = options
        self._searches: Batcher[tuple[str, int], list[Hit]] = Batcher(self._post, max_batch=options.queries_per_request)
        self.revision = text_fingerprint(["http", options.url, options.revision]) if options.revision else None

    async def search(self, query: str, *, k: int, question: Question | None = None) -> list[Hit]:
        """The server's hits. Raises RetrievalError when it does not answer, or its answer breaks the contract."""
        return await self._searches((query, k))

    async def _post(self, searches: Sequence[tuple[str, int]]) -> list[list[Hit]]:
        body = {"queries": [query for query, _ in searches], "topk": max(k for _, k in searches), "return_scores": True}
        try:
            reply = _Reply.model_validate_json(await self._reply(body))
        except ValidationError as error:
            fault = error.errors()[0]
            raise RetrievalError(f"{self._options.url}: does not reply as /retrieve does ({fault['loc']}: {fault['msg']}).") from None
        if len(reply.result) != len(searches):
            raise RetrievalError(f"{self._options.url}: gave {len(reply.result)} results for {len(searches)} queries.")
        return [[_hit(scored) for scored in found[:k]] for found, (_, k) in zip(reply.result, searches, strict=True)]

    async def _reply(self, body: dict[str, Any]) -> bytes:
        import aiohttp

        key = os.environ.get(self._options.api_key_env) if self._options.api_key_env else None
        headers, reason = {"Authorization": f"Bearer {key}"} if key else {}, ""
        for attempt in range(self._options.tries):
            if attempt:
                await asyncio.sleep(2 ** (attempt - 1))
            try:
                timeout = aiohttp.ClientTimeout(total=self._options.timeout_seconds)
                async with (
                    aiohttp.ClientSession(timeout=timeout, headers=headers) as session,
                    session.post(self._options.url, json=body, allow_redirects=False) as response,
                ):
                    if response.status == 200:
                        return await response.read()
                    reason = f"status {response.status}: {(await response.text(errors='replace'))[:200]}"
                    if response.status < 500 and response.status != 429:
                        break
            except (aiohttp.ClientError, TimeoutError) as error:
                reason = str(error) or type(error).__name__
        raise RetrievalError(f"{self._options.url}: search failed ({reason}). Check that the server runs: refinery serve-retriever RECIPE.")


def _hit(scored: _Scored) -> Hit:
    document = scored.document
    title, text = document.title, document.text
    if text is None:
        first, _, rest = (document.contents or "").partition("\n")
        title, text = first.strip('"'), rest
    passage_id = text_fingerprint([title or "", text]) if document.id is None else str(document.id)
    return Hit(Passage(id=passage_id, title=title or "", text=text), scored.score)


def build(config: RetrieverConfig, options: Options) -> Http:
    """A retriever over the server's corpus."""
    return Http(options)


RETRIEVER = RetrieverPlugin(build, Options)
