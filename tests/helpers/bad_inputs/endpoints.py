"""Endpoints that refuse, do not answer, or answer something else."""

from typing import Any

from helpers.bad_inputs.world import RAG, BadInput
from helpers.scripted_server import chat_reply


def refused(name: str, command: str, *says: str, by: tuple[int, str], **more: Any) -> BadInput:
    """A server that answers every request with this status and message."""
    status, message = by
    return BadInput(name, command, says, answer=lambda body: (status, {"error": {"message": message, "code": status}}), **more)


LABEL, ANSWER = "distill distill.yaml", "infer served.yaml"
NOT_RUNNING = ("Connection refused", "Is a server running there? Start it, or correct base_url")
NO_KEY, NOT_FOUND, NO_MODEL = (401, "Incorrect API key"), (404, "Not Found"), (404, "The model `teacher` does not exist")
OTHER_MODEL = (400, "only 'other' is served")
IN_THE_SAME_WAY = ("refuses every request in the same way", "400", "only 'other' is served")
ENDPOINTS = [
    refused("no key", LABEL, "cannot be used: status 401: Incorrect API key", "$REFINERY_TEST_KEY is not set", by=NO_KEY),
    refused(
        "a wrong key",
        LABEL,
        "cannot be used: status 401: Incorrect API key",
        "Check base_url, model and $REFINERY_TEST_KEY",
        by=NO_KEY,
        env={"REFINERY_TEST_KEY": "wrong"},
    ),
    BadInput("an endpoint that is down", LABEL, NOT_RUNNING),
    BadInput("a decoder's endpoint that is down", ANSWER, NOT_RUNNING),
    refused("an address without /v1", f"{LABEL} teacher.base_url={{root}}", "404", "base_url has no /v1: try ", by=NOT_FOUND),
    refused("a wrong path", LABEL, "404", "Check base_url, model and", by=NOT_FOUND),
    refused("a model that is not served", LABEL, "404", "model 'teacher'", "Check base_url, model", by=NO_MODEL),
    BadInput(
        "an address without http",
        f"{LABEL} teacher.base_url=127.0.0.1:1",
        ("distill.yaml: teacher.base_url: an address must start with http:// or https://",),
    ),
    BadInput(
        "a key in the address",
        f"{LABEL} teacher.base_url=http://me:secret@host/v1",
        ("distill.yaml: teacher.base_url", "Leave it out"),
    ),
    refused("a server that refuses every request", f"{LABEL} max_failure_share=1", *IN_THE_SAME_WAY, by=OTHER_MODEL),
    refused("a decoder's server that refuses every request", ANSWER, *IN_THE_SAME_WAY, by=OTHER_MODEL),
    BadInput(
        "a reply that is not a chat",
        LABEL,
        ("4 of 4 rows were rejected", "the reply has no choices"),
        answer=lambda body: (200, {"hello": "there"}),
        keeps=("run/failures.jsonl", "run/inputs.jsonl", "run/stopped.json", "run/train.jsonl"),
    ),
    BadInput(
        "a web page instead of an API",
        LABEL,
        ("the reply is not JSON", "Check base_url"),
        answer=lambda body: (200, b"<html></html>"),
    ),
    BadInput(
        "replies that are not JSON",
        LABEL,
        ("rows were rejected", "malformed: there is no JSON object in it; reply: 'It depends.'"),
        answer=lambda body: (200, chat_reply("It depends.")),
        keeps=(
            "run/effects.sqlite",
            "run/effects.sqlite.lock",
            "run/failures.jsonl",
            "run/inputs.jsonl",
            "run/stopped.json",
            "run/train.jsonl",
        ),
    ),
    BadInput(
        "a retriever's server that is down",
        "infer http.yaml",
        ("all 4 questions failed (search_failed 4)", "Check that the server runs: refinery serve-retriever"),
        {"http.yaml": RAG | {"retriever": {"name": "http", "options": {"url": "{root}/retrieve", "tries": 1}}}},
    ),
]
