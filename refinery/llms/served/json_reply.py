"""A model's reply read as one JSON object of a known shape. Nothing in it is ever evaluated."""

import json
from contextlib import suppress
from typing import TypeVar

from pydantic import BaseModel, ValidationError

from refinery.llms.served.wire import whole_text

T = TypeVar("T", bound=BaseModel)


def parse_json_reply(text: str, schema: type[T]) -> T:
    """The reply's JSON object as a `schema`, its punctuation mended where need be. Raises ValueError that says what is wrong."""
    start, end = text.find("{"), text.rfind("}")
    if start < 0:
        raise ValueError("there is no JSON object in it")
    part = text[start : end + 1] if end > start else text[start:]  # drops code fences and small talk
    try:
        return schema.model_validate_json(part)
    except ValidationError as error:
        fault = error.errors()[0]
    if fault["type"] == "json_invalid" and end > start:
        # Quotes and commas can be mended. An object without its end cannot: what is missing would go unseen.
        from json_repair import repair_json

        # What is nested too deep to be mended keeps pydantic's word for it.
        with suppress(RecursionError):
            try:
                # Through JSON once more: mended text may hold half a surrogate pair, which no file can.
                return schema.model_validate_json(whole_text(json.dumps(repair_json(part, return_objects=True), ensure_ascii=False)))
            except ValidationError as error:
                fault = error.errors()[0]
    raise ValueError(f"field '{'.'.join(map(str, fault['loc'])) or 'reply'}': {fault['msg']}")


def reads_as_refusal(text: str) -> bool:
    """Whether a reply declines in words, without an object."""
    if "{" in text:
        return False
    start = text.lstrip().lower().replace("\u2019", "'")[:40]
    return start.startswith(("i'm sorry", "i am sorry", "sorry, ", "i can't ", "i cannot ", "i'm unable", "i am unable"))
