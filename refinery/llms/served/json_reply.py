"""Read a model's reply as one JSON object of a known shape, leniently, as a person would. Nothing is evaluated as code.

`read_reply('I think so: {"label": "relevant"}', Label)` gives the object and how it was read, "object".
"""

import json
import re
from collections.abc import Iterator
from contextlib import suppress
from itertools import islice
from typing import Any, Literal, TypeVar, get_args, get_origin

from pydantic import BaseModel, ValidationError

from refinery.llms.served.balanced import balanced_parts
from refinery.llms.served.field_lines import read_field_lines
from refinery.llms.served.fitted_reply import validated
from refinery.llms.served.wire import whole_text

T = TypeVar("T", bound=BaseModel)

# object: as requested, with any text around it; mended: with repaired punctuation; list: a bare or numbered list, for a shape with one
# list; words: a bare label, for a shape with one choice; lines: `Field: value` lines, for a shape of strings or a list of such shapes.
Reading = Literal["object", "mended", "list", "words", "lines"]

_ITEM = re.compile(r"^[ \t]*(?:\d+[.)]|[-*•])[ \t]+(\S.*)$")
_FENCE = re.compile(r"^\s*```\w*[ \t]*$", re.MULTILINE)
_BEFORE_LIST = re.compile(r"^[^\[\].;\n]{0,60}:\s*(?=\[)")  # such as `The relevant ones: `
# What may stand before items: `Sub-questions:`, `Here are the queries:`.
_LIST_LEAD = re.compile(
    r"[\s*#]*(?:here (?:are|is)|these are|my)?\s*(?:the|some|two|three|four)?\s*(?:[\w-]+ )?(?:sub[- ]?)?"
    r"(?:questions?|quer(?:y|ies)|steps?|answers?|items?|lists?|search(?:es)?)[\s*]*:[\s*]*$",
    re.IGNORECASE,
)
_QUOTED_ITEMS = re.compile(r"\[\s*'")
# The most parts of a reply that are tried, and that are repaired. Longer texts, and those with more brackets, are not repaired or
# read without braces, because that may take quadratic time.
_MOST_PARTS, _MOST_MENDED, _MOST_REPAIRED, _MOST_BRACKETS = 32, 3, 10_000, 300
_AROUND = " \t\n\"'*`("
_SHORTEST_LABEL = 3  # letters of `yes`
_LEAD = re.compile(r"^[\w ]{0,30}:[\s\"'*`(]*")  # such as `Answer:** `
_SENTENCE_END = re.compile(r"[.!;\n]")
_AFTER = re.compile(r"[\n\"'*`).,:;!]")
_STATED = re.compile(r"^(?:the |this |my )?[\w ]{0,30}\b(?:is|was)\b[\s:\"'*`(]*")  # such as `The answer is "`, `This paragraph is `
_AFTER_STATED = re.compile(r"[\n\"'*`).,:;!]| to the question\b| because\b")


def parse_json_reply(text: str, schema: type[T]) -> T:
    """The reply's object, read in any of these ways. Raises ValueError that says what is wrong."""
    return read_reply(text, schema)[0]


def read_reply(text: str, schema: type[T]) -> tuple[T, Reading]:
    """The reply as a `schema`, and how it was read. Of several objects, the last that fits. Raises ValueError that says what is wrong."""
    with suppress(ValidationError):
        return validated(text, schema), "object"
    parts = [text[start:end] for start, end in islice(balanced_parts(text, "{}"), _MOST_PARTS)]
    fault = ""
    for part in parts:
        try:
            return _object(part, schema), "object"
        except ValidationError as error:
            fault = fault or ("" if _is_malformed(error) else _fault(error))
    if not fault and "{" in text:
        mended, fault = _mended(text, parts, schema)
        if mended is not None:
            return mended, "mended"
    for values, reading in _without_object(text, schema):
        with suppress(ValidationError):
            return schema.model_validate(values), reading
    raise ValueError(fault or "there is no JSON object in it")


def ends_with_object(text: str, schema: type[BaseModel]) -> str | None:
    """The object at the end of a text if it fits, such as the answer in the reasoning of a model that wrote no more; else None."""
    plain = text.rstrip("` \n\t\r")
    start, end = next(balanced_parts(plain, "{}"), (0, 0))
    with suppress(ValidationError):
        if 0 < end == len(plain) and validated(plain[start:], schema):
            return plain[start:]
    return None


def _object(part: str, schema: type[T]) -> T:
    """The object, or one inside an object that has none of the schema's fields, as in `{"name": "answer", "arguments": {...}}`."""
    try:
        return validated(part, schema)
    except ValidationError as error:
        if _is_malformed(error):
            raise
        for inner in _inner_objects(part, schema):
            with suppress(ValidationError):
                return validated(inner, schema)
        raise


def _inner_objects(part: str, schema: type[BaseModel]) -> Iterator[str]:
    """The objects directly or deeper in an object without the schema's fields, from the last backwards."""
    left = [json.loads(part)]
    for _ in range(_MOST_PARTS):
        if not left:
            return
        value = left.pop()
        if isinstance(value, dict) and schema.model_fields.keys().isdisjoint(value):
            left += value.values()
        elif isinstance(value, dict):
            yield json.dumps(value)
        elif isinstance(value, list):
            left += value


def _mended(text: str, parts: list[str], schema: type[T]) -> tuple[T | None, str]:
    """The last object that fits once its quotes and commas are repaired, or None and why.

    A truncated object is not repaired, to not hide the missing part. An object that is nested too deeply keeps pydantic's message.
    """
    start, end = text.find("{"), text.rfind("}") + 1
    whole = text[start:end] if end > start else text[start:]
    fault = _why_not(whole, schema)
    for part in dict.fromkeys((*parts[:_MOST_MENDED], whole)) if end > start else ():
        try:
            return schema.model_validate_json(_repaired(part)), ""
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
        if (items := _bare_list(text)) is not None:
            yield {name: items}, "list"
        if "{" not in text and "str" in inner[0] and (items := _items(text)):
            yield {name: items}, "list"
    elif "{" not in text and get_origin(field.annotation) is Literal and (label := _bare_label(text, inner)):
        yield {name: label}, "words"


def _bare_list(text: str) -> list[Any] | None:
    """The list that is the whole reply, in a fence or not. A list within prose is a part of it, such as the number of a passage."""
    part = _BEFORE_LIST.sub("", _unfenced(text))
    with suppress(ValueError, RecursionError):
        # Only quotes are repaired: `[sic]` is not a list.
        found = json.loads(_repaired(part) if _QUOTED_ITEMS.match(part) else part)
        if isinstance(found, list) and found:
            return found
    return None


def _items(text: str) -> list[str]:
    """The items of a reply that is nothing but items, after a lead such as `Sub-questions:`."""
    lines = [line for line in _unfenced(text).splitlines() if line.strip()]
    if lines and _LIST_LEAD.match(lines[0]):
        lines = lines[1:]
    items = [found[1].strip() for line in lines if (found := _ITEM.match(line))]
    return items if len(items) == len(lines) else []


def _unfenced(text: str) -> str:
    return _FENCE.sub("", text).strip()


def _bare_label(text: str, labels: list[str]) -> str | None:
    """The label that the reply begins with or states, in a sentence that names no other label.

    It may come after `Answer:` or `The answer is`, and within quotes or asterisks. `is not relevant` states the label `irrelevant`.
    """
    plain = text.lower().strip(_AROUND)
    for said, after in ((plain, _AFTER), (_LEAD.sub("", plain, count=1), _AFTER), (_STATED.sub("", plain, count=1), _AFTER_STATED)):
        negated = said.startswith("not ")
        said = said.removeprefix("not ").lstrip(_AROUND)
        named = [
            label for label in labels if said.startswith(label.lower()) and (len(said) == len(label) or after.match(said[len(label) :]))
        ]
        if len(named) == 1:
            if _names_another(said, [label.lower() for label in labels if label != named[0]]):
                return None
            return _opposite(named[0], labels) if negated else named[0]
    return None


def _names_another(said: str, others: list[str]) -> bool:
    """Whether the first sentence names another label, or a later one does: a model may change its mind.

    `no` and the like are words of any later sentence, and count there only if they are stated as the label.
    """
    first, *later = _SENTENCE_END.split(said, maxsplit=1)
    rest = " ".join(later)
    stated = {found[1] for found in re.finditer(r"(?:answer|label|verdict)\b(?: is| it)?[\s:\"'*`]*(\w+)", rest)}
    words = {word for word in re.findall(r"\w+", rest) if len(word) > _SHORTEST_LABEL}
    return not {*re.findall(r"\w+", first), *stated, *words}.isdisjoint(others)


def _opposite(label: str, labels: list[str]) -> str | None:
    """The label that is another one with a prefix, such as `irrelevant` for `relevant`, or None."""
    return next((other for other in labels if other != label and other.endswith(label)), None)


def reads_as_refusal(text: str) -> bool:
    """Whether a reply refuses in words, without an object."""
    if "{" in text:
        return False
    start = text.lstrip().lower().replace("\u2019", "'")[:40]
    return start.startswith(("i'm sorry", "i am sorry", "sorry, ", "i can't ", "i cannot ", "i'm unable", "i am unable"))
