"""The teacher: typed replies from a chat endpoint, every one kept in a store before a row uses it.

The store is the checkpoint: a rerun asks again only what was never answered. Its key holds everything that can change a reply.
"""

import asyncio
import hashlib
import json
import sqlite3
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeVar

from pydantic import BaseModel, ValidationError

from refinery.errors import LLMError
from refinery.llms.openai import ChatEndpoint, EndpointConfig, RefusedRequest, Reply

T = TypeVar("T", bound=BaseModel)


class RejectedRow(LLMError):
    """This row cannot be labelled; `reason` is what `metrics.json` counts it under."""

    def __init__(self, reason: str, detail: str) -> None:
        super().__init__(f"{reason}: {detail}")
        self.reason = reason


@dataclass(slots=True)
class Asked:
    """What one row has asked of the teacher, for its provenance."""

    request_ids: list[str] = field(default_factory=list)
    num_prompt_tokens: int = 0
    num_completion_tokens: int = 0


class Teacher:
    """Asks the endpoint and parses its replies; `calls` and `hits` count what was sent and what the store answered."""

    def __init__(self, config: EndpointConfig, store: Path) -> None:
        self.config = config
        self.calls = 0
        self.hits = 0
        self._endpoint = ChatEndpoint(config)
        self._store = _ReplyStore(store)
        self._in_flight: dict[str, asyncio.Task[Reply]] = {}

    @property
    def retries(self) -> int:
        """Requests sent again after an error that may pass."""
        return self._endpoint.retries

    async def ask(self, prompt: str, schema: type[T], asked: Asked) -> T:
        """The reply to `prompt` as a `schema`. Raises RejectedRow when there is none, LLMError when the endpoint is unusable."""
        reply = await self._reply(prompt, schema)
        asked.request_ids.append(reply.request_id)
        asked.num_prompt_tokens += reply.num_prompt_tokens
        asked.num_completion_tokens += reply.num_completion_tokens
        if reply.finish_reason == "length":
            raise RejectedRow("truncated", f"the reply was cut at {self.config.max_tokens} tokens; raise teacher.max_tokens")
        try:
            return schema.model_validate_json(_json_part(reply.text))
        except ValidationError as error:
            reason = "refused" if "{" not in reply.text else "malformed"
            raise RejectedRow(reason, f"{error.errors()[0]['msg']}; reply: {reply.text[:200]!r}") from None

    async def _reply(self, prompt: str, schema: type[BaseModel]) -> Reply:
        """From the store, from an equal request in flight, or from the endpoint."""
        key = self._key(prompt, schema)
        stored = self._store.get(key)
        if stored is not None:
            self.hits += 1
            return stored
        if key not in self._in_flight:
            self._in_flight[key] = asyncio.ensure_future(self._pay(key, prompt, schema))
            self._in_flight[key].add_done_callback(lambda task: self._landed(key, task))
        # Shielded, so that a cancelled row does not take the request away from its twins.
        return await asyncio.shield(self._in_flight[key])

    def _landed(self, key: str, task: asyncio.Task[Reply]) -> None:
        del self._in_flight[key]
        # Looked at here, so that asyncio does not report an error whose rows have all been cancelled.
        if not task.cancelled():
            task.exception()

    async def _pay(self, key: str, prompt: str, schema: type[BaseModel]) -> Reply:
        self.calls += 1
        try:
            reply = await self._endpoint.reply(prompt, json_schema=schema.model_json_schema())
        except RefusedRequest as error:
            raise RejectedRow("refused", str(error)) from None
        self._store.put(key, reply)
        return reply

    def _key(self, prompt: str, schema: type[BaseModel]) -> str:
        # Concurrency, tries and timeouts cannot change a reply; everything else can.
        sampling = self.config.model_dump(include={"base_url", "model", "temperature", "max_tokens"})
        text = json.dumps([sampling, schema.model_json_schema(), prompt], sort_keys=True)
        return hashlib.sha256(text.encode()).hexdigest()

    async def close(self) -> None:
        """Give up what is still in flight, and close the endpoint and the store."""
        in_flight = list(self._in_flight.values())
        for task in in_flight:
            task.cancel()
        await asyncio.gather(*in_flight, return_exceptions=True)
        await self._endpoint.close()
        self._store.close()


def _json_part(text: str) -> str:
    """The outermost braces of a reply, which drops code fences and small talk."""
    start, end = text.find("{"), text.rfind("}")
    return text[start : end + 1] if 0 <= start < end else text


class _ReplyStore:
    """Replies by key in sqlite; each is committed before it is used."""

    def __init__(self, path: Path) -> None:
        self._database = sqlite3.connect(path)
        self._database.execute("PRAGMA journal_mode=WAL")
        self._database.execute("CREATE TABLE IF NOT EXISTS replies (key TEXT PRIMARY KEY, reply TEXT NOT NULL)")

    def get(self, key: str) -> Reply | None:
        row = self._database.execute("SELECT reply FROM replies WHERE key = ?", (key,)).fetchone()
        return Reply(**json.loads(row[0])) if row else None

    def put(self, key: str, reply: Reply) -> None:
        values = {name: getattr(reply, name) for name in Reply.__slots__}
        with self._database:
            self._database.execute("INSERT OR REPLACE INTO replies VALUES (?, ?)", (key, json.dumps(values)))

    def close(self) -> None:
        self._database.close()
