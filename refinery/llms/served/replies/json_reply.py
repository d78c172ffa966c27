"""Read a model's reply as one JSON object of a known shape, leniently, as a person would. Nothing is evaluated as code.

`read_reply('I think so: {"label": "relevant"}', Label)` gives the object and how it was read, "object". Its values are fitted to their
types (fitted_reply.py); without an object, only a reply that is nothing but its answer is read (bare_reply.py, field_lines.py).
"""

import json
from collections.abc import Iterator
from contextlib import suppress
from itertools import islice
from typing import Any, Literal, TypeVar, get_args, get_origin

from pydantic import BaseModel, ValidationError

from refinery.llms.served.replies.bare_reply import is_lead, items_of, list_of, stated_label
from refinery.llms.served.replies.field_lines import read_field_lines
from refinery.llms.served.replies.fitted_reply import fitted_json, names_a_field
from refinery.llms.served.replies.json_spans import balanced_parts
from refinery.llms.served.wire.lenient_json import whole_text

T = TypeVar("T", bound=BaseModel)

# object: as requested, with any text around it; fitted: in other forms of the same values; mended: with repaired punctuation; list: a bare
# or numbered list, for a shape with one list; words: a bare label, for a shape with one choice; lines: `Field: value` lines, for a shape of
# strings or a list of such shapes.
Reading = Literal["object", "fitted", "mended", "list", "words", "lines"]

# The most parts of a reply that are tried, and that are repaired. Longer texts, and those with more brackets, are not repaired or
# read without braces, because that may take quadratic time.
_MOST_PARTS, _MOST_MENDED, _MOST_REPAIRED, _MOST_BRACKETS = 32, 3, 10_000, 300


def parse_json_reply(text: str, schema: type[T]) -> T:
    """The reply's object, read in any of these ways. Raises ValueError that describes the fault."""
    return read_reply(text, schema)[0]


def read_reply(text: str, schema: type[T]) -> tuple[T, Reading]:
    """The reply as a `schema`, and how it was read. Of several objects, the last that fits. The ValueError describes the fault."""
    try:
        return schema.model_validate_json(text, strict=True), "object"
    except ValidationError:
        return _read_leniently(text, schema)


def _read_leniently(text: str, schema: type[T]) -> tuple[T, Reading]:
    parts = [text[start:end] for start, end in islice(balanced_parts(text, "{}"), _MOST_PARTS)]
    fault = ""
    for part in parts:
        try:
            return _object(part, schema)
        except ValidationError as error:
            fault = fault or ("" if _is_malformed(error) else _fault(error))
    if not fault and "{" in text:
        mended, fault = _mended(text, parts, schema)
        if mended is not None:
            return mended, "mended"
    for values, reading in _without_object(text, schema):
        with suppress(ValidationError):
            return _fitted(json.dumps(values), schema)[0], reading
    raise ValueError(fault or "there is no JSON object in it")


def ends_with_object(text: str, schema: type[BaseModel]) -> str | None:
    """The object at the end of a text if it fits, such as the answer in the reasoning of a model that wrote no more; else None."""
    plain = text.rstrip("` \n")
    start, end = next(balanced_parts(plain, "{}"), (0, 0))
    with suppress(ValidationError):
        if 0 < end == len(plain) and _fitted(plain[start:], schema):
            return plain[start:]
    return None


def begins_with_object(text: str, schema: type[BaseModel]) -> str | None:
    """The object that a reply begins with if it fits, and if no other one begins after it; else None.

    A reply that was cut after such an object is whole: models that are held to a schema write blanks until their tokens run out, and
    others repeat the object, or explain it.
    """
    start, end = min(balanced_parts(text, "{}"), default=(0, 0))
    if not end or not is_lead(_unfenced(text[:start]), " ".join(schema.model_fields)):
        return None
    part, rest = text[start:end], "".join(_unfenced(text[end:]).split())
    said = "".join(part.split())
    if "{" in rest and not (said * (len(rest) // len(said) + 1)).startswith(rest):
        return None
    with suppress(ValueError):
        read_reply(part, schema)
        return part
    return None


def _unfenced(text: str) -> str:
    return text.replace("```json", "").replace("```", "")


def _object(part: str, schema: type[T]) -> tuple[T, Reading]:
    """The object, or one inside an object that has none of the schema's fields, as in `{"name": "answer", "arguments": {...}}`."""
    try:
        return _fitted(part, schema)
    except ValidationError as error:
        if _is_malformed(error):
            raise
        for inner in _inner_objects(part, schema):
            with suppress(ValidationError):
                return _fitted(inner, schema)
        raise


def _fitted(part: str, schema: type[T]) -> tuple[T, Reading]:
    """The object as it is, or fitted to the schema. Types are strict, because pydantic would also read `true` as the number 1."""
    try:
        return schema.model_validate_json(part, strict=True), "object"
    except ValidationError as error:
        fitted = None if _is_malformed(error) else fitted_json(part, schema)
        if fitted is None:
            raise
    return schema.model_validate_json(fitted, strict=True), "fitted"


def _inner_objects(part: str, schema: type[BaseModel]) -> Iterator[str]:
    """The objects directly or deeper in an object without the schema's fields, from the last backwards."""
    left = [json.loads(part)]
    for _ in range(_MOST_PARTS):
        if not left:
            return
        value = left.pop()
        if isinstance(value, dict) and names_a_field(value, schema):
            yield json.dumps(value)
        elif isinstance(value, dict):
            left += value.values()
        elif isinstance(value, list):
            left += value


def _mended(text: str, parts: list[str], schema: type[T]) -> tuple[T | None, str]:
    """The last object that fits once its quotes and commas are repaired, or None and why.

    A truncated object is not repaired, because that would hide the missing part. If it is nested too deeply, pydantic's message is kept.
    """
    start, end = text.find("{"), text.rfind("}") + 1
    whole = text[start:end] if end > start else text[start:]
    fault = _why_not(whole, schema)
    for part in dict.fromkeys((*parts[:_MOST_MENDED], whole)) if end > start else ():
        try:
            return _fitted(_repaired(part), schema)[0], ""
        except ValidationError as error:
            fault = fault if _is_malformed(error) else _fault(error)
    return None, fault


def _repaired(part: str) -> str:
    """The part as JSON with repaired quotes and commas, or an empty text if that would take long, or it is nested too deeply."""
    if len(part) > _MOST_REPAIRED or part.count("{") + part.count("[") > _MOST_BRACKETS:
        return ""
    from json_repair import repair_json

    with suppress(RecursionError, ValueError):
        # Through JSON once more, because repaired text may contain half a surrogate pair, which no file can.
        return whole_text(json.dumps(repair_json(part, return_objects=True), ensure_ascii=False))
    return ""


def _why_not(part: str, schema: type[BaseModel]) -> str:
    try:
        schema.model_validate_json(part)
    except ValidationError as error:
        return _fault(error)
    return ""


def _is_malformed(error: ValidationError) -> bool:
    return error.errors(include_url=False, include_context=False, include_input=False)[0]["type"] == "json_invalid"


def _fault(error: ValidationError) -> str:
    first = error.errors()[0]
    return f"field '{'.'.join(map(str, first['loc'])) or 'reply'}': {first['msg']}"


def _without_object(text: str, schema: type[BaseModel]) -> Iterator[tuple[dict[str, Any], Reading]]:
    """A shape of strings from lines, or the only field of a shape from its value without braces."""
    if len(text) > _MOST_REPAIRED:
        return
    if "{" not in text and (lines := read_field_lines(text, schema)):
        yield lines, "lines"
    if len(schema.model_fields) != 1:
        return
    (name, field) = next(iter(schema.model_fields.items()))
    inner = [str(one) for one in get_args(field.annotation)]
    if get_origin(field.annotation) is list:
        if items := list_of(text, name, _repaired):
            yield {name: items}, "list"
        if "{" not in text and "str" in inner[0] and (items := items_of(text, name)):
            yield {name: items}, "list"
    elif "{" not in text and get_origin(field.annotation) is Literal and (label := stated_label(text, inner)):
        yield {name: label}, "words"


def reads_as_refusal(text: str) -> bool:
    """Whether a reply refuses in words, without an object."""
    if "{" in text:
        return False
    start = text.lstrip().lower().replace("\u2019", "'")[:40]
    return start.startswith(("i'm sorry", "i am sorry", "sorry, ", "i can't ", "i cannot ", "i'm unable", "i am unable"))
