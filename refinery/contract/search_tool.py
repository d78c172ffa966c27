"""The one tool that a model may call, `search`, and the messages of a call and of what it found."""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from refinery.contract.formats import SEARCH_ACTIONS, SearchAction

SEARCH = "search"
SEARCH_TOOL: dict[str, Any] = {
    "type": "function",
    "function": {
        "name": SEARCH,
        "description": "Search for passages that help to answer the question.",
        "parameters": {
            "type": "object",
            "properties": {
                "kind": {
                    "type": "string",
                    "enum": [*SEARCH_ACTIONS],
                    "description": "rewrite: the question in other words; decompose: a sub-question; disambiguate: one of its meanings",
                },
                "query": {"type": "string", "description": "what to search for"},
            },
            "required": ["kind", "query"],
        },
    },
}


@dataclass(frozen=True, slots=True)
class SearchCall:
    """A search that a model asks for."""

    kind: SearchAction
    query: str


def calls_message(calls: Sequence[SearchCall], *, as_json: bool = False) -> dict[str, Any]:
    """The assistant's message with these calls. Templates read their arguments as objects, chat endpoints as JSON."""

    def tool_call(number: int, call: SearchCall) -> dict[str, Any]:
        arguments = {"kind": call.kind, "query": call.query}
        function = {"name": SEARCH, "arguments": json.dumps(arguments, ensure_ascii=False) if as_json else arguments}
        return {"type": "function", "id": _call_id(number), "function": function}

    return {"role": "assistant", "content": "", "tool_calls": [tool_call(number, call) for number, call in enumerate(calls)]}


def found_message(text: str, number: int = 0) -> dict[str, Any]:
    """The tool's message with the passages that the call with this number in its turn has found."""
    return {"role": "tool", "name": SEARCH, "tool_call_id": _call_id(number), "content": text}


def _call_id(number: int) -> str:
    return f"search{number:03}"  # nine letters and digits, as Mistral's templates ask
