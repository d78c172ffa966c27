"""The one HTTP server on loopback that answers by a script: any status, any bytes, any headers."""

import json
import sys
import threading
from collections.abc import Callable, Generator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

Answer = tuple[int, Any] | tuple[int, Any, dict[str, str]]  # status, JSON or bytes, headers


class ScriptedServer(ThreadingHTTPServer):
    """`answer` gets the JSON of each POST, and `listing` is what each GET gets; `bodies` and `headers` remember what was posted."""

    request_queue_size = 128
    daemon_threads = True

    def __init__(self, answer: Callable[[dict[str, Any]], Answer], listing: Answer) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.answer, self.listing, self.bodies, self.headers = answer, listing, list[dict[str, Any]](), list[dict[str, str]]()
        self.address = f"http://127.0.0.1:{self.server_port}"
        self.base_url = f"{self.address}/v1"

    def respond(self, path: str, headers: dict[str, str], body: dict[str, Any]) -> Answer:
        """What a POST gets; a server that minds its path and headers has its own."""
        return self.answer(body)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A client that hangs up is no error of the test's, and its standard error may be what a test reads."""
        if not isinstance(sys.exception(), ConnectionError):
            super().handle_error(request, client_address)


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    wbufsize = -1

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers.get("Content-Length") or 0)))
        self.server.bodies.append(body)
        self.server.headers.append(dict(self.headers))
        self._reply(*self.server.respond(self.path, dict(self.headers), body))

    def do_GET(self) -> None:
        self._reply(*self.server.listing)

    def _reply(self, status: int, value: Any, headers: dict[str, str] | None = None) -> None:
        content = value if isinstance(value, bytes) else json.dumps(value).encode()
        self.send_response(status)
        self.send_header("Content-Length", str(len(content)))
        for name, header in (headers or {}).items():
            self.send_header(name, header)
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, format: str, *args: Any) -> None:
        return


@contextmanager
def scripted(
    answer: Callable[[dict[str, Any]], Answer], *, listing: Answer = (404, {}), server_type: type[ScriptedServer] = ScriptedServer
) -> Generator[ScriptedServer, None, None]:
    """A server in this process, on a thread, until the block ends."""
    with server_type(answer, listing) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)
        thread.start()
        try:
            yield server
        finally:
            server.shutdown()
            thread.join()


def chat_reply(content: Any = '{"sub_questions": ["Who directed it?", "Where was #1 born?"]}', **values: Any) -> dict[str, Any]:
    """A chat completion, as OpenAI sends it."""
    choice = {"index": 0, "message": {"role": "assistant", "content": content}, "finish_reason": "stop"}
    usage = {"prompt_tokens": 9, "completion_tokens": 3, "total_tokens": 12}
    return {"id": "chatcmpl-1", "object": "chat.completion", "model": "m", "choices": [choice], "usage": usage} | values


def prompt_of(body: dict[str, Any]) -> str:
    """The first message of a chat."""
    return body["messages"][0]["content"]
