"""Servers that answer in their own way: errors, refused parameters, streams and web pages."""

from helpers.scripted_server import chat_reply
from helpers.wild_endpoints.table import OK, WildEndpoint, always, at_question, in_turn, refuses

SERVERS = [
    WildEndpoint(
        "an error in a choice (OpenRouter)", in_turn((200, {"choices": [{"error": {"code": 502, "message": "Provider down"}}]})), paid=5
    ),
    WildEndpoint("too many requests, once", in_turn(refuses(429, "slow down")), sent=5),
    WildEndpoint(
        "one prompt is moderated (Azure)",
        at_question(0, refuses(400, "The response was filtered", code="content_filter")),
        kept=3,
        paid=3,
        rejected={"refused": 1},
        says=("The response was filtered",),
    ),
    WildEndpoint(
        "a server that takes no schema",
        lambda body: refuses(400, "response_format is not supported") if "response_format" in body else OK,
        sent=5,
        says=("does not support JSON schemas for its replies; they are written into the prompts",),
    ),
    WildEndpoint(
        "a credit limit",
        in_turn(OK, then=refuses(402, "Insufficient credits")),
        kept=1,
        paid=1,
        code=2,
        says=("The account cannot pay for more requests: add credit.",),
    ),
    WildEndpoint(
        "numbers as texts in usage",
        always('{"sub_questions": ["Who directed it?", "Where was #1 born?"]}', usage={"prompt_tokens": "9", "completion_tokens": None}),
    ),
    WildEndpoint("a reply without usage, id and model", lambda body: (200, {"choices": chat_reply()["choices"]})),
]
