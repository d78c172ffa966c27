"""Send the same requests as waves of OpenAI Batch jobs: half the price, answered within a day, resumable after days.

A wave is sent once no row has made a new request for a while, because then all rows are waiting. The store remembers the jobs that were
sent until all of their replies are stored, so a resumed run collects them instead of paying again. It remembers a job under a name of our
own before the job is created, and the job carries this name, so a job is also found if the run was killed before it learned the job's id.
"""

import asyncio
import json
import time
import uuid
from collections.abc import Awaitable, Callable, Collection, Iterator
from dataclasses import dataclass
from typing import Any

from distill.teacher.config import BatchConfig
from refinery.llms.served.endpoint import EndpointConfig, RefusedRequest, Reply, UnusableEndpoint
from refinery.llms.served.paid.paid_replies import persist_in
from refinery.llms.served.protocols.openai_chat import openai_client
from refinery.llms.served.transport.chat_request import ChatRequest, parse_chat
from refinery.llms.served.transport.client import EndpointClient
from refinery.llms.served.transport.http import HttpSession
from refinery.llms.served.transport.refused_parameters import RefusedParameters
from refinery.llms.served.transport.server import Server
from refinery.llms.served.wire.lenient_json import read_json
from refinery.llms.served.wire.responses import Response, RetryableFault, is_about_schemas, read_reply
from refinery.stores.base import ReplyStore

_ENDED = ("completed", "failed", "expired", "cancelled")
_MADE_BY, _NAMED = "made_by", "named"  # keys of a job's metadata
_OUR_NAME = "rag-refinery-"  # how the store's names for jobs begin, unlike the API's ids
_RECENT_JOBS = 1000  # among which a job without a known id is looked for
_QUEUE_IS_FULL = "token_limit_exceeded"  # the organization has too many tokens enqueued; the API reports it only when the job is polled


@dataclass(slots=True)
class _Waiting:
    request: ChatRequest
    future: asyncio.Future[Reply]
    tries: int = 0
    with_schema: bool = True  # how it was sent last; jobs of an earlier run count as the first try
    sent: frozenset[str] = frozenset(("temperature", "max_tokens"))  # the keys of its body then

    @property
    def sends_schema(self) -> bool:
        """Whether it has a schema that is sent as a parameter instead of in the prompt."""
        return self.with_schema and self.request.json_schema is not None


class BatchTransport:
    """Gets replies from Batch jobs and stores all of them, even for rows that this run does not have.

    `enter` records the cost of each reply; `retries` counts requests that were sent again.
    """

    def __init__(self, config: EndpointConfig, store: ReplyStore, batch: BatchConfig, enter: Callable[[bytes, Reply], None]) -> None:
        self.config, self.batch, self._enter = config, batch, enter
        self.retries = 0
        self._sends_schemas, self._refused = True, RefusedParameters(f"Batch API (model '{config.model}')")
        self._store = store
        self._client = openai_client(config, config.base_urls[0], max_retries=5)
        self._live = EndpointClient(config, persist_in(store, enter)) if batch.stragglers == "live" else None
        self._http = HttpSession()
        self._server = Server(config, config.base_urls[0], self._http)  # which knows what a refusal in a job means
        self._waiting: dict[str, _Waiting] = {}
        self._queued: list[str] = []
        self._sent: set[str] = set()
        self._arrived = asyncio.Event()
        self._tasks: set[asyncio.Task[None]] = set()

    @property
    def in_flight(self) -> int:
        """The number of requests in jobs that have not ended."""
        return len(self._sent)

    async def reply(self, request: ChatRequest) -> Reply:
        """The reply, once its job has ended. Raises the same errors as EndpointClient.reply."""
        if not self._tasks:
            self._start()
        waiting = _Waiting(request, asyncio.get_running_loop().create_future())
        name = request.key.hex()
        self._waiting[name] = waiting
        if name not in self._sent:  # otherwise a job of an earlier run contains it
            self._queue(name)
        return await waiting.future

    def _start(self) -> None:
        for batch_id, names in self._store.batches().items():
            self._sent.update(names)
            self._spawn(self._find(batch_id, names) if batch_id.startswith(_OUR_NAME) else self._collect(batch_id, names))
        self._spawn(self._send_waves())

    async def _find(self, our_name: str, names: list[str]) -> None:
        """Collect a job whose id is unknown because the run was killed while it was created, or send its requests if there is none."""
        job_id = await self._patiently(lambda: self._id_of(our_name))
        if job_id is not None:
            await self._store.put_batch(job_id, names)
        await self._store.drop_batch(our_name)
        if job_id is not None:
            return await self._collect(job_id, names)
        self._sent.difference_update(names)
        for name in names:
            if name in self._waiting:
                self._queue(name)

    async def _id_of(self, our_name: str) -> str | None:
        """The id of the job that carries our name, or None if there is none among the recent jobs."""
        seen = 0
        async for job in self._client.batches.list(limit=100):
            if (job.metadata or {}).get(_NAMED) == our_name:
                return job.id
            if (seen := seen + 1) >= _RECENT_JOBS:
                break
        return None

    def _spawn(self, coroutine: Any) -> None:
        task = asyncio.ensure_future(coroutine)
        self._tasks.add(task)
        task.add_done_callback(self._ended)

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            self._fail_all(UnusableEndpoint(f"Batch API (model '{self.config.model}'): {error}"))

    def _queue(self, name: str) -> None:
        self._queued.append(name)
        self._arrived.set()

    async def _send_waves(self) -> None:
        while True:
            await self._arrived.wait()
            self._arrived.clear()
            while len(self._queued) < self.batch.max_requests:
                try:
                    await asyncio.wait_for(self._arrived.wait(), self.batch.quiet_seconds)
                except TimeoutError:
                    break
                self._arrived.clear()
            wave, self._queued = self._queued, []
            for lines in self._files(wave):
                await self._send(lines)

    def _files(self, wave: list[str]) -> Iterator[dict[str, bytes]]:
        """The wave's input lines by name, split into files that stay within the limits."""
        lines: dict[str, bytes] = {}
        size = 0
        for name in wave:
            waiting = self._waiting[name]
            waiting.with_schema = waiting.with_schema and self._sends_schemas
            body = self._refused.fit(waiting.request.body(self.config, send_schema=waiting.with_schema))
            waiting.sent = frozenset(body)
            line = json.dumps({"custom_id": name, "method": "POST", "url": "/v1/chat/completions", "body": body}).encode() + b"\n"
            if lines and (len(lines) >= self.batch.max_requests or size + len(line) > self.batch.max_bytes):
                yield lines
                lines, size = {}, 0
            lines[name] = line
            size += len(line)
        if lines:
            yield lines

    async def _send(self, lines: dict[str, bytes]) -> None:
        names, our_name = list(lines), f"{_OUR_NAME}{uuid.uuid4().hex}"
        await self._store.put_batch(our_name, names)
        self._sent.update(names)
        uploaded = await self._client.files.create(file=("requests.jsonl", b"".join(lines.values())), purpose="batch")
        job = await self._client.batches.create(
            input_file_id=uploaded.id,
            endpoint="/v1/chat/completions",
            completion_window="24h",
            metadata={_MADE_BY: "rag-refinery", _NAMED: our_name},
        )
        await self._store.put_batch(job.id, names)
        await self._store.drop_batch(our_name)
        self._spawn(self._collect(job.id, names))

    async def _collect(self, batch_id: str, names: list[str]) -> None:
        """Wait for a job to end, store its replies, and send the unanswered requests again."""
        while (job := await self._patiently(lambda: self._client.batches.retrieve(batch_id))).status not in _ENDED:
            await asyncio.sleep(self.batch.poll_seconds)
        fault = job.errors.data[0] if job.errors and job.errors.data else None
        if job.status == "failed" and (fault is None or fault.code != _QUEUE_IS_FULL):
            await self._store.drop_batch(batch_id)
            raise UnusableEndpoint(f"job {batch_id} failed: {fault.message if fault else 'no reason given'}")
        left, ended_at = set(names), time.monotonic()
        # A job without replies has no output file, and a job without faults has no error file.
        for file_id in filter(None, (job.output_file_id, job.error_file_id)):
            content = await self._patiently(lambda file_id=file_id: self._client.files.content(file_id))
            for line in content.content.splitlines():
                left -= await self._take(line, names, ended_at)
        await self._store.drop_batch(batch_id)
        self._sent.difference_update(names)
        if job.status == "failed":
            await asyncio.sleep(self.batch.poll_seconds)  # the queue has to drain first
        for name in left & self._waiting.keys():
            self._send_again(name, free=job.status == "failed")

    async def _patiently(self, ask: Callable[[], Awaitable[Any]]) -> Any:
        """The API's answer, retried during an outage, because the job continues meanwhile."""
        import openai

        began = time.monotonic()
        while True:
            try:
                return await ask()
            except (openai.APIConnectionError, openai.InternalServerError, openai.RateLimitError):
                if time.monotonic() - began > self.config.outage_patience_seconds:
                    raise
            await asyncio.sleep(self.batch.poll_seconds)

    async def _take(self, line: bytes, names: Collection[str], ended_at: float) -> set[str]:
        """Process one line of a job that ended then. Returns the name that it settles, or nothing if the request has to be sent again."""
        name, response = _result(line)
        if name not in names or response is None:
            return set()
        waiting = self._waiting.get(name)
        if waiting and waiting.sends_schema and is_about_schemas(response.status, response.content):
            self._sends_schemas = waiting.with_schema = False
            waiting.tries -= 1  # sending it again without the schema does not count as a try
            return set()
        if waiting and self._refused.learn(response.status, response.content, waiting.sent):
            waiting.tries -= 1
            return set()
        try:
            reply = parse_chat(read_reply(response), self.config)
        except RetryableFault:
            return set()
        except (RefusedRequest, UnusableEndpoint) as error:
            verdict = await self._server.verdict(error, ended_at) if waiting else error
            if isinstance(verdict, RetryableFault):
                return set()
            self._settle(waiting, verdict)
        else:
            self._enter(key := bytes.fromhex(name), reply)
            await self._store.put(key, reply.stored())
            self._settle(waiting, reply)
        self._waiting.pop(name, None)
        return {name}

    def _settle(self, waiting: _Waiting | None, outcome: Reply | Exception) -> None:
        if waiting is None or waiting.future.done():
            return
        if isinstance(outcome, Reply):
            waiting.future.set_result(outcome)
        else:
            waiting.future.set_exception(outcome)

    def _send_again(self, name: str, *, free: bool) -> None:
        waiting = self._waiting[name]
        waiting.tries += not free
        self.retries += 1
        if waiting.tries >= self.config.max_tries:
            del self._waiting[name]
            waiting.future.set_exception(RefusedRequest(f"{waiting.tries} jobs left it unanswered", reason="no_reply"))
        elif self._live:
            self._spawn(self._ask_live(name))
        else:
            self._queue(name)

    async def _ask_live(self, name: str) -> None:
        assert self._live is not None
        waiting = self._waiting.pop(name)
        try:
            reply = await self._live.reply(waiting.request)
            waiting.future.set_result(reply)
        except (RefusedRequest, UnusableEndpoint) as error:
            waiting.future.set_exception(error)

    def _fail_all(self, error: Exception) -> None:
        for waiting in self._waiting.values():
            if not waiting.future.done():
                waiting.future.set_exception(error)
        self._waiting.clear()

    async def close(self) -> None:
        """Stop waiting for the jobs; they keep running, and the store remembers them."""
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self._client.close()
        await self._http.close()
        if self._live:
            await self._live.close()


def _result(line: bytes) -> tuple[str, Response | None]:
    """The request's name and the response in one line of a result file; None if the response cannot be read."""
    try:
        result = read_json(line)
        response = result["response"]
        return str(result["custom_id"]), Response(int(response["status_code"]), {}, json.dumps(response["body"]).encode())
    except (ValueError, TypeError, LookupError, RecursionError):
        return "", None
