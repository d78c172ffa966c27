"""Endpoints that refuse, do not answer, or answer something else."""

from typing import Any

from helpers.bad_inputs.world import RAG, BadInput
from helpers.scripted_server import chat_reply


def refuses(status: int, message: str) -> Any:
    """Answers every request with this error."""
    return lambda body: (status, {"error": {"message": message, "code": status}})


ENDPOINTS = [
    BadInput(
        "no key",
        "distill distill.yaml",
        ("cannot be used: status 401: Incorrect API key", "$REFINERY_TEST_KEY is not set"),
        answer=refuses(401, "Incorrect API key"),
    ),
    BadInput(
        "a wrong key",
        "distill distill.yaml",
        ("cannot be used: status 401: Incorrect API key", "Check base_url, model and $REFINERY_TEST_KEY"),
        answer=refuses(401, "Incorrect API key"),
        env={"REFINERY_TEST_KEY": "wrong"},
    ),
    BadInput(
        "an endpoint that is down", "distill distill.yaml", ("Connection error", "Is a server running there? Start it, or correct base_url")
    ),
    BadInput(
        "a decoder's endpoint that is down",
        "infer served.yaml",
        ("Connection error", "Is a server running there? Start it, or correct base_url"),
    ),
    BadInput(
        "an address without /v1",
        "distill distill.yaml teacher.base_url={root}",
        ("404", "base_url has no /v1: try "),
        answer=refuses(404, "Not Found"),
    ),
    BadInput("a wrong path", "distill distill.yaml", ("404", "Check base_url, model and"), answer=refuses(404, "Not Found")),
    BadInput(
        "a model that is not served",
        "distill distill.yaml",
        ("404", "model 'teacher'", "Check base_url, model"),
        answer=refuses(404, "The model `teacher` does not exist"),
    ),
    BadInput(
        "an address without http",
        "distill distill.yaml teacher.base_url=127.0.0.1:1",
        ("distill.yaml: teacher.base_url: an address must start with http:// or https://",),
    ),
    BadInput(
        "a key in the address",
        "distill distill.yaml teacher.base_url=http://me:secret@host/v1",
        ("distill.yaml: teacher.base_url", "Leave it out"),
    ),
    BadInput(
        "a server that refuses every request",
        "distill distill.yaml max_failure_share=1",
        ("refuses every request in the same way", "400", "only 'other' is served"),
        answer=refuses(400, "only 'other' is served"),
    ),
    BadInput(
        "a decoder's server that refuses every request",
        "infer served.yaml",
        ("refuses every request in the same way", "400", "only 'other' is served"),
        answer=refuses(400, "only 'other' is served"),
    ),
    BadInput(
        "a reply that is not a chat",
        "distill distill.yaml",
        ("4 of 4 rows were rejected", "the reply has no choices"),
        answer=lambda body: (200, {"hello": "there"}),
        keeps=("run/failures.jsonl", "run/inputs.jsonl", "run/stopped.json"),
    ),
    BadInput(
        "a web page instead of an API",
        "distill distill.yaml",
        ("the reply is not JSON", "Check base_url"),
        answer=lambda body: (200, b"<html></html>"),
    ),
    BadInput(
        "replies that are not JSON",
        "distill distill.yaml",
        ("rows were rejected", "malformed: there is no JSON object in it; reply: 'It depends.'"),
        answer=lambda body: (200, chat_reply("It depends.")),
        keeps=("run/effects.sqlite", "run/effects.sqlite.lock", "run/failures.jsonl", "run/inputs.jsonl", "run/stopped.json"),
    ),
    BadInput(
        "a retriever's server that is down",
        "infer http.yaml",
        ("all 4 questions failed (search_failed 4)", "Check that the server runs: refinery serve-retriever"),
        {"http.yaml": RAG | {"retriever": {"name": "http", "options": {"url": "{root}/retrieve", "tries": 1}}}},
    ),
]
