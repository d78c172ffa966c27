"""A mock OpenAI-compatible endpoint, cheap enough to measure a client with it: `python -m benchmarks.distill.endpoint SETTINGS`.

It counts its requests and reports them at `/stats`. It also implements the Batch API, with faults that users of the real one report.
"""

import asyncio
import gc
import json
import random
import sys
import zlib
from dataclasses import asdict, dataclass, field
from typing import Any

from aiohttp import web

REPLY = json.dumps({"sub_questions": ["Who directed the film?", "Where was #1 born?"]})


@dataclass(frozen=True, slots=True)
class Settings:
    """The endpoint's behavior."""

    port: int = 0
    latency_seconds: float = 0.2
    latency_sigma: float = 0.0  # sigma of a log-normal latency with that mean
    max_in_flight: int = 0  # more requests get status 429 with Retry-After 1
    refused_share: float = 0.0  # share of prompts that get status 400, as from a content filter
    takes_schemas: bool = True
    refuses: str = ""  # a parameter that gets status 400, as `temperature` from reasoning models
    model: str = ""  # the name in its replies
    no_schema_words: str = "response_format is not supported"
    batch_omits_every: int = 0  # every n-th line of a batch gets no result, as after expiry
    batch_fails_with: str = ""  # error code with which a whole batch fails the first time
    batch_create_seconds: float = 0.0  # until the answer to the creation of a job, which exists from the beginning
    batch_adds: tuple[str, ...] = ()  # lines in each output file before the results


@dataclass(slots=True)
class Stats:
    """Counts of the requests."""

    requests: int = 0
    answered: int = 0
    refused: int = 0
    in_flight: int = 0
    peak_in_flight: int = 0
    batches: int = 0
    keys: set[str] = field(default_factory=set)


class Endpoint:
    """The app and its state."""

    def __init__(self, settings: Settings) -> None:
        self.settings, self.stats = settings, Stats()
        self._random = random.Random(0)
        self._files: dict[str, bytes] = {}
        self._batches: dict[str, dict[str, Any]] = {}
        self.app = web.Application(client_max_size=300_000_000)
        self.app.add_routes(
            [
                web.post("/v1/chat/completions", self.chat),
                web.get("/v1/models", self.models),
                web.get("/stats", self.tell),
                web.post("/v1/files", self.upload),
                web.get("/v1/files/{id}/content", self.content),
                web.post("/v1/batches", self.create_batch),
                web.get("/v1/batches", self.list_batches),
                web.get("/v1/batches/{id}", self.get_batch),
            ]
        )

    async def tell(self, request: web.Request) -> web.Response:
        """The counts so far."""
        return web.json_response(asdict(self.stats) | {"keys": sorted(self.stats.keys)})

    async def models(self, request: web.Request) -> web.Response:
        """The one model, for clients that ask whether the endpoint is up."""
        return web.json_response({"object": "list", "data": [{"id": self.settings.model or "mock", "object": "model"}]})

    async def chat(self, request: web.Request) -> web.Response:
        """One completion."""
        body = json.loads(await request.read())
        self.stats.requests += 1
        self.stats.keys.add(request.headers.get("Authorization", ""))
        if self.settings.max_in_flight and self.stats.in_flight >= self.settings.max_in_flight:
            return web.json_response(_error("too many requests"), status=429, headers={"Retry-After": "1"})
        self.stats.in_flight += 1
        self.stats.peak_in_flight = max(self.stats.peak_in_flight, self.stats.in_flight)
        try:
            await asyncio.sleep(self._latency())
            status, reply = self._answer(body)
            return web.json_response(reply, status=status)
        finally:
            self.stats.in_flight -= 1

    def _latency(self) -> float:
        mean, sigma = self.settings.latency_seconds, self.settings.latency_sigma
        return mean * self._random.lognormvariate(-sigma * sigma / 2, sigma) if sigma else mean

    def _answer(self, body: dict[str, Any]) -> tuple[int, dict[str, Any]]:
        if not body["messages"]:  # curator sends this to read the limits in the headers
            return 400, _error("[] is too short - 'messages'")
        prompt = body["messages"][0]["content"]
        if "response_format" in body and not self.settings.takes_schemas:
            return 400, _error(self.settings.no_schema_words)
        if self.settings.refuses in body:
            return 400, _error(f"Unsupported value: '{self.settings.refuses}' is not supported with this model.")
        if refuses(prompt, self.settings.refused_share):
            self.stats.refused += 1
            return 400, _error("content filter")
        self.stats.answered += 1
        message = {"role": "assistant", "content": REPLY}
        usage = {"prompt_tokens": len(prompt) // 4, "completion_tokens": 20, "total_tokens": len(prompt) // 4 + 20}
        model = self.settings.model or body["model"]
        choice = {"index": 0, "message": message, "finish_reason": "stop"}
        return 200, {
            "id": f"chatcmpl-{self.stats.answered}",
            "object": "chat.completion",
            "model": model,
            "choices": [choice],
            "usage": usage,
        }

    async def upload(self, request: web.Request) -> web.Response:
        """Store a file."""
        file = (await request.post())["file"]
        assert isinstance(file, web.FileField)
        return web.json_response(self._keep(file.file.read()))

    def _keep(self, content: bytes) -> dict[str, Any]:
        name = f"file-{len(self._files)}"
        self._files[name] = content
        return {
            "id": name,
            "object": "file",
            "bytes": len(content),
            "created_at": 0,
            "filename": name,
            "purpose": "batch",
            "status": "processed",
        }

    async def content(self, request: web.Request) -> web.Response:
        """A file's bytes."""
        return web.Response(body=self._files[request.match_info["id"]])

    async def create_batch(self, request: web.Request) -> web.Response:
        """Accept a job; it ends at the first poll after the latency."""
        body = json.loads(await request.read())
        self.stats.batches += 1
        job = {
            "id": f"batch_{self.stats.batches}",
            "object": "batch",
            "endpoint": body["endpoint"],
            "input_file_id": body["input_file_id"],
            "completion_window": "24h",
            "created_at": 0,
            "status": "in_progress",
            "metadata": body.get("metadata"),
        }
        self._batches[job["id"]] = job | {"ends": asyncio.get_running_loop().time() + self.settings.latency_seconds}
        await asyncio.sleep(self.settings.batch_create_seconds)
        return web.json_response(job)

    async def list_batches(self, request: web.Request) -> web.Response:
        """All jobs, the latest first, in pages of `limit` jobs after the job `after`."""
        ids = list(self._batches)[::-1]
        start = ids.index(request.query["after"]) + 1 if "after" in request.query else 0
        page = ids[start : start + int(request.query["limit"])]
        jobs = [{name: value for name, value in self._batches[id].items() if name != "ends"} for id in page]
        return web.json_response({"object": "list", "data": jobs, "has_more": ids[-1:] != page[-1:]})

    async def get_batch(self, request: web.Request) -> web.Response:
        """A job's current state."""
        job = self._batches[request.match_info["id"]]
        if job["status"] == "in_progress" and asyncio.get_running_loop().time() >= job["ends"]:
            job.update(self._end(job))
        return web.json_response({name: value for name, value in job.items() if name != "ends"})

    def _end(self, job: dict[str, Any]) -> dict[str, Any]:
        if self.settings.batch_fails_with and job["id"] == "batch_1":
            fault = {"code": self.settings.batch_fails_with, "message": "Enqueued token limit reached", "line": None, "param": None}
            return {"status": "failed", "errors": {"object": "list", "data": [fault]}}
        good, bad = list(self.settings.batch_adds), []
        for number, line in enumerate(self._files[job["input_file_id"]].splitlines(), 1):
            if self.settings.batch_omits_every and number % self.settings.batch_omits_every == 0:
                continue
            asked = json.loads(line)
            self.stats.requests += 1
            status, reply = self._answer(asked["body"])
            result = {"custom_id": asked["custom_id"], "response": {"status_code": status, "body": reply}, "error": None}
            (good if status == 200 else bad).append(json.dumps(result))
        files = {"output_file_id": good, "error_file_id": bad}  # there is no file if there is nothing to write
        kept = {name: self._keep("\n".join(lines).encode())["id"] for name, lines in files.items() if lines}
        return {"status": "expired" if self.settings.batch_omits_every and job["id"] == "batch_1" else "completed", **kept}


def refuses(prompt: str, share: float) -> bool:
    """Whether a prompt is among the `share` of prompts that get status 400, always the same ones."""
    return zlib.crc32(prompt.encode()) % 1000 < share * 1000


def _error(message: str) -> dict[str, Any]:
    return {"error": {"message": message, "type": "invalid_request_error", "param": None, "code": None}}


async def _serve(settings: Settings) -> None:
    gc.freeze()  # its pauses would count as the client's
    gc.set_threshold(50_000)
    runner = web.AppRunner(Endpoint(settings).app, access_log=None)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", settings.port)
    await site.start()
    print(runner.addresses[0][1], flush=True)
    await asyncio.Event().wait()


if __name__ == "__main__":
    asyncio.run(_serve(Settings(**json.loads(sys.argv[1]))))
