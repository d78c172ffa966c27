"""One row of the table of servers and models: what a server does, and what a labeling run over four questions makes of it."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from helpers.scripted_server import Answer, ScriptedServer, chat_reply

LABEL = '{"sub_questions": ["Who directed it?", "Where was #1 born?"]}'
GOOD = chat_reply(LABEL)
OK = (200, GOOD)


@dataclass(frozen=True, slots=True)
class WildEndpoint:
    """A behavior and its outcome.

    `answer` gets the JSON of each POST. Of the four questions `kept` become rows, `paid` requests are answered with status 200, and
    `says` are parts of what the user reads: the log, the error, and the reasons in failures.jsonl. `rejected` counts the reasons, and
    `sent` the requests with those that were refused. `recipe` and `teacher` extend the recipe and its endpoint, where {url} is the
    address and {host} its host and port. `metrics` are values in the teacher's part of metrics.json. `code` is the exit code.
    """

    name: str
    answer: Callable[[dict[str, Any]], Answer]
    kept: int = 4
    paid: int = 4
    says: tuple[str, ...] = ()
    rejected: Mapping[str, int] = field(default_factory=dict)
    sent: int | None = None
    teacher: Mapping[str, Any] = field(default_factory=dict)
    recipe: Mapping[str, Any] = field(default_factory=dict)
    metrics: Mapping[str, Any] = field(default_factory=dict)
    env: Mapping[str, str] = field(default_factory=dict)
    code: int = 0
    server_type: type[ScriptedServer] = ScriptedServer


def stops(name: str, answer: Callable[[dict[str, Any]], Answer], **about: Any) -> WildEndpoint:
    """A behavior that ends the run before anything is paid."""
    return WildEndpoint(name, answer, kept=0, paid=0, code=2, **about)


def always(content: Any, **values: Any) -> Callable[[dict[str, Any]], Answer]:
    """Answers every request with this content in a chat completion."""
    return lambda body: (200, chat_reply(content, **values))


def message(finish_reason: str = "stop", usage: Any = None, **fields: Any) -> Callable[[dict[str, Any]], Answer]:
    """Answers every request with a chat completion whose message has these fields."""
    reply = chat_reply()
    reply["choices"] = [{"index": 0, "message": {"role": "assistant"} | fields, "finish_reason": finish_reason}]
    return lambda body: (200, reply | ({"usage": usage} if usage else {}))


def refuses(status: int, text: str, **fields: Any) -> Answer:
    """An error in OpenAI's shape."""
    return status, {"error": {"message": text, "type": "invalid_request_error"} | fields}


def in_turn(*first: Answer, then: Answer = OK) -> Callable[[dict[str, Any]], Answer]:
    """Gives each of the answers once, and then the last one."""
    answers = iter(first)
    return lambda body: next(answers, then)


def at_question(number: int, answer: Answer, otherwise: Answer = OK) -> Callable[[dict[str, Any]], Answer]:
    """Gives one question this answer, and all others the other one."""
    return lambda body: answer if f"film {number}?" in str(body) else otherwise
