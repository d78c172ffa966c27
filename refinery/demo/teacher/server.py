"""An OpenAI-compatible chat server on loopback over any function from prompt to reply, which misbehaves on request.

Standard-library HTTP/1.1 with keep-alive, one thread per connection. It is independent of the content of requests and replies.
"""

import json
import logging
import socket
import sys
import time
import uuid
from collections.abc import Callable, Generator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Lock, Thread
from typing import Any, Literal, cast

from pydantic import BaseModel, ValidationError

logger = logging.getLogger(__name__)

MODEL = "demo-teacher"
RETRY_AFTER_SECONDS = 0.05


@dataclass(frozen=True, slots=True)
class Faults:
    """The faults to produce. `*_every=n` affects each n-th chat request, counted from 1 in order of arrival; 0 turns a fault off."""

    rate_limit_every: int = 0  # status 429 with Retry-After
    server_error_every: int = 0  # status 500
    bad_request_every: int = 0  # status 400
    refuse_every: int = 0  # a polite sentence instead of the reply
    truncate_every: int = 0  # the first half of the reply, finish_reason "length"
    malform_every: int = 0  # the first half of the reply, as if it were all
    max_in_flight: int = 0  # status 429 for a request above it
    slow_seconds: float = 0.0  # wait before each reply

    def status(self, request_number: int, in_flight: int) -> int:
        """The HTTP status of this request."""
        if (self.max_in_flight and in_flight > self.max_in_flight) or _strikes(self.rate_limit_every, request_number):
            return 429
        if _strikes(self.server_error_every, request_number):
            return 500
        return 400 if _strikes(self.bad_request_every, request_number) else 200

    def spoil(self, reply: str, request_number: int) -> tuple[str, Literal["stop", "length"]]:
        """The text to send instead of `reply`, and its finish_reason."""
        if _strikes(self.refuse_every, request_number):
            return "I'm sorry, I can't help with that.", "stop"
        if _strikes(self.truncate_every, request_number):
            return reply[: len(reply) // 2], "length"
        return (reply[: len(reply) // 2] if _strikes(self.malform_every, request_number) else reply), "stop"


@contextmanager
def serving(answer: Callable[[str], str], *, port: int = 0, faults: "Faults | None" = None) -> Generator["ChatServer", None, None]:
    """A ChatServer in this process, on a thread, until the block ends."""
    with ChatServer(answer, port=port, faults=faults) as server:
        thread = Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)
        thread.start()
        try:
            yield server
        finally:
            server.shutdown()
            thread.join()


class ChatServer(ThreadingHTTPServer):
    """Answers the first user message of each chat with `answer`; clients use `base_url`.

    `requests` counts chat requests, failed ones included; `peak_in_flight` is the most that were open at once.
    """

    request_queue_size = 128

    def __init__(self, answer: Callable[[str], str], *, port: int = 0, faults: Faults | None = None) -> None:
        self._connections: set[socket.socket] = set()  # set first, because a port in use closes the server during construction
        super().__init__(("127.0.0.1", port), _Handler)
        self.requests = 0
        self.peak_in_flight = 0
        self.base_url = f"http://127.0.0.1:{self.server_port}/v1"
        self._answer, self._faults = answer, faults or Faults()
        self._in_flight = 0
        self._lock = Lock()

    def chat(self, body: bytes) -> tuple[int, dict[str, Any]]:
        """Status and JSON of one chat request."""
        with self._lock:
            self.requests += 1
            self._in_flight += 1
            self.peak_in_flight = max(self.peak_in_flight, self._in_flight)
            number, in_flight = self.requests, self._in_flight
        try:
            status = self._faults.status(number, in_flight)
            if status != 200:
                return status, error_body(status, f"fault of request {number}, with {in_flight} in flight")
            time.sleep(self._faults.slow_seconds)
            return self._complete(body, number)
        finally:
            with self._lock:
                self._in_flight -= 1

    def _complete(self, body: bytes, number: int) -> tuple[int, dict[str, Any]]:
        try:
            request = _ChatRequest.model_validate_json(body)
        except ValidationError as error:
            fault = error.errors()[0]
            return 400, error_body(400, f"{'.'.join(map(str, fault['loc'])) or 'body'}: {fault['msg']}")
        if request.stream:
            return 400, error_body(400, "stream: this server sends whole replies only; leave it out")
        reply = self._answer(request.first_user_text())
        return 200, _completion(request, *self._faults.spoil(reply, number))

    def get_request(self) -> tuple[socket.socket, Any]:
        """Accept a connection and remember it."""
        connection, address = super().get_request()
        self._connections.add(connection)
        return connection, address

    def shutdown_request(self, request: Any) -> None:
        """Close and forget a connection."""
        self._connections.discard(request)
        super().shutdown_request(request)

    def server_close(self) -> None:
        """Stop listening, and end the kept-alive connections, whose threads would otherwise keep answering."""
        super().server_close()
        for connection in list(self._connections):
            with suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Log a client that hangs up, which is not an error of the server; print anything else as usual."""
        if isinstance(sys.exc_info()[1], ConnectionError):
            logger.debug("%s hung up", client_address)
        else:
            super().handle_error(request, client_address)


class _Handler(BaseHTTPRequestHandler):
    """Bytes in, bytes out; headers and body leave in one write."""

    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    wbufsize = -1

    def do_GET(self) -> None:
        models = {"object": "list", "data": [{"id": MODEL, "object": "model", "created": 0, "owned_by": "refinery"}]}
        self._send(200, models) if self.path == "/v1/models" else self._send(404, error_body(404, f"no GET {self.path}"))

    def do_POST(self) -> None:
        # The body is read even if it is not needed, because the next request on this connection starts after it.
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        if self.path == "/v1/chat/completions":
            self._send(*cast("ChatServer", self.server).chat(body))
        else:
            self._send(404, error_body(404, f"no POST {self.path}"))

    def _send(self, status: int, body: dict[str, Any]) -> None:
        content = json.dumps(body).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(content)))
        if status == 429:
            self.send_header("Retry-After", str(RETRY_AFTER_SECONDS))
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, format: str, *args: Any) -> None:
        logger.debug(format, *args)


class _Part(BaseModel):
    text: str = ""


class _Message(BaseModel):
    role: str
    content: str | list[_Part] | None = None

    @property
    def text(self) -> str:
        return self.content if isinstance(self.content, str) else "".join(part.text for part in self.content or [])


class _ChatRequest(BaseModel):
    """The part of an OpenAI chat request that matters here; sampling parameters are ignored."""

    model: str
    messages: list[_Message]
    stream: bool = False

    def first_user_text(self) -> str:
        """The prompt; a later turn only says that the reply did not fit."""
        return next((message.text for message in self.messages if message.role == "user"), "")


def error_body(status: int, message: str) -> dict[str, Any]:
    """An error as OpenAI words it."""
    kind = {429: "rate_limit_exceeded", 500: "server_error"}.get(status, "invalid_request_error")
    return {"error": {"message": message, "type": kind, "param": None, "code": kind}}


def _completion(request: _ChatRequest, content: str, finish_reason: str) -> dict[str, Any]:
    num_prompt_tokens = sum(len(message.text.split()) for message in request.messages)
    num_completion_tokens = max(len(content.split()), 1)  # the end of a reply without text is a token too
    message = {"role": "assistant", "content": content, "refusal": None}
    return {
        "id": f"chatcmpl-{uuid.uuid4().hex}",
        "object": "chat.completion",
        "created": int(time.time()),
        "model": request.model,
        "choices": [{"index": 0, "message": message, "logprobs": None, "finish_reason": finish_reason}],
        "usage": {
            "prompt_tokens": num_prompt_tokens,
            "completion_tokens": num_completion_tokens,
            "total_tokens": num_prompt_tokens + num_completion_tokens,
        },
    }


def _strikes(every: int, request_number: int) -> bool:
    return every > 0 and request_number % every == 0
