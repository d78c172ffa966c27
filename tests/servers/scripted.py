"""An HTTP server on loopback that answers each POST by a script: any status, any bytes, any headers."""

import json
import threading
from collections.abc import Callable, Generator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

Answer = tuple[int, Any] | tuple[int, Any, dict[str, str]]  # status, JSON or bytes, headers


class ScriptedServer(ThreadingHTTPServer):
    """`answer` gets the JSON of a request; `bodies` and `headers` remember what was sent."""

    request_queue_size = 128
    daemon_threads = True

    def __init__(self, answer: Callable[[dict[str, Any]], Answer]) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.answer, self.bodies, self.headers = answer, list[dict[str, Any]](), list[dict[str, str]]()
        self.base_url = f"http://127.0.0.1:{self.server_port}/v1"


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    wbufsize = -1

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers.get("Content-Length") or 0)))
        self.server.bodies.append(body)
        self.server.headers.append(dict(self.headers))
        status, value, *headers = self.server.answer(body)
        content = value if isinstance(value, bytes) else json.dumps(value).encode()
        self.send_response(status)
        self.send_header("Content-Length", str(len(content)))
        for name, header in (headers[0] if headers else {}).items():
            self.send_header(name, header)
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, format: str, *args: Any) -> None:
        return


@contextmanager
def scripted(answer: Callable[[dict[str, Any]], Answer]) -> Generator[ScriptedServer, None, None]:
    """A server in this process, on a thread, until the block ends."""
    with ScriptedServer(answer) as server:
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
