"""How servers are measured, with one that only counts."""

import json
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import psutil
import pytest

from benchmarks.infer.serving import Server


class Handler(BaseHTTPRequestHandler):
    """Replies with as many tokens as are allowed, and keeps the questions."""

    asked: tuple[str, ...] = ()

    def do_POST(self):
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        type(self).asked += (body["messages"][0]["content"],)
        self.send_response(200)
        self.end_headers()
        self.wfile.write(json.dumps({"usage": {"completion_tokens": body["max_tokens"]}}).encode())

    def log_message(self, *arguments):
        """Say nothing."""


@pytest.fixture
def server():
    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as listening:
        threading.Thread(target=listening.serve_forever, daemon=True).start()
        yield Server(psutil.Process(), f"http://127.0.0.1:{listening.server_port}/v1", "model", lambda question: f"Question: {question}")
        listening.shutdown()


def test_each_client_asks_its_own_questions(server):
    rate, processor_ms = server.measure(4, tokens=3, questions=2)
    assert len(set(Handler.asked)) == 8
    assert all(question.startswith("Question: Tell me") for question in Handler.asked)
    assert rate > 0
    assert processor_ms >= 0
