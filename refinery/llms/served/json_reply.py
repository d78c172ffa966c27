"""Read a model's reply as one JSON object of a known shape, leniently, as a person would. Nothing is evaluated as code.

`read_reply('I think so: {"label": "relevant"}', Label)` gives the object and how it was read, "object".
"""

import json
import re
from collections.abc import Iterator
from contextlib import suppress
from typing import Any, Literal, TypeVar, get_args, get_origin

from pydantic import BaseModel, ValidationError

from refinery.llms.served.field_lines import read_field_lines
from refinery.llms.served.wire import whole_text

T = TypeVar("T", bound=BaseModel)

# object: as requested, with any text around it; mended: with repaired punctuation; list: a bare or numbered list, for a shape with one
# list; words: a bare label, for a shape with one choice; lines: `Field: value` lines, for a shape of strings or a list of such shapes.
Reading = Literal["object", "mended", "list", "words", "lines"]

_ITEM = re.compile(r"^\s*(?:\d+[.)]|[-*•])\s+(.+?)\s*$", re.MULTILINE)
_AROUND = " \t\n\"'*`("
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
    fault = "there is no JSON object in it"
    for part in reversed(list(_objects(text))):
        try:
            return schema.model_validate_json(part), "object"
        except ValidationError as error:
            if error.errors()[0]["type"] != "json_invalid" and not fault.startswith("field"):
                fault = _fault(error)
    if (start := text.find("{")) >= 0 and not fault.startswith("field"):
        mended, fault = _mended(text[start : text.rfind("}") + 1] or text[start:], schema, closed=text.rfind("}") > start)
        if mended is not None:
            return mended, "mended"
    with suppress(ValidationError, RecursionError):
        if "{" not in text and (read := _without_object(text, schema)):
            values, reading = read
            return schema.model_validate(values), reading
    raise ValueError(fault)


def _objects(text: str) -> Iterator[str]:
    """The balanced JSON objects of a text, in order, without objects nested in others."""
    decoder, place = json.JSONDecoder(), text.find("{")
    while place >= 0:
        try:
            _, end = decoder.raw_decode(text, place)
        except (ValueError, RecursionError):
            end = place + 1
        else:
            yield text[place:end]
        place = text.find("{", end)


def _mended(part: str, schema: type[T], *, closed: bool) -> tuple[T | None, str]:
    """The object with repaired quotes and commas, or None and why. A truncated object is not repaired, to not hide the missing part."""
    try:
        return schema.model_validate_json(part), ""
    except ValidationError as error:
        fault = error
    if fault.errors()[0]["type"] == "json_invalid" and closed:
        from json_repair import repair_json

        # An object nested too deeply to repair keeps pydantic's message.
        with suppress(RecursionError):
            try:
                # Through JSON once more, because repaired text may contain half a surrogate pair, which no file can.
                mended = json.dumps(repair_json(part, return_objects=True), ensure_ascii=False)
                return schema.model_validate_json(whole_text(mended)), ""
            except ValidationError as error:
                fault = error
    return None, _fault(fault)


def _fault(error: ValidationError) -> str:
    first = error.errors()[0]
    return f"field '{'.'.join(map(str, first['loc'])) or 'reply'}': {first['msg']}"


def _without_object(text: str, schema: type[BaseModel]) -> tuple[dict[str, Any], Reading] | None:
    """A shape of strings from lines, or the only field of a shape from its value without braces; None if neither is found."""
    if lines := read_field_lines(text, schema):
        return lines, "lines"
    if len(schema.model_fields) != 1:
        return None
    (name, field) = next(iter(schema.model_fields.items()))
    inner = [str(one) for one in get_args(field.annotation)]
    if get_origin(field.annotation) is list:
        items = _bare_list(text) or (_ITEM.findall(text) if "str" in inner[0] else [])
        return ({name: items}, "list") if items else None
    if get_origin(field.annotation) is Literal and (label := _bare_label(text, inner)):
        return {name: label}, "words"
    return None


def _bare_list(text: str) -> list[Any]:
    start, end = text.find("["), text.rfind("]")
    with suppress(ValueError):
        return json.loads(text[start : end + 1]) if 0 <= start < end else []
    return []


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
            words = set(re.findall(r"\w+", _SENTENCE_END.split(said, maxsplit=1)[0]))
            if not words.isdisjoint(label.lower() for label in labels if label != named[0]):
                return None
            return _opposite(named[0], labels) if negated else named[0]
    return None


def _opposite(label: str, labels: list[str]) -> str | None:
    """The label that is another one with a prefix, such as `irrelevant` for `relevant`, or None."""
    return next((other for other in labels if other != label and other.endswith(label)), None)


def reads_as_refusal(text: str) -> bool:
    """Whether a reply refuses in words, without an object."""
    if "{" in text:
        return False
    start = text.lstrip().lower().replace("\u2019", "'")[:40]
    return start.startswith(("i'm sorry", "i am sorry", "sorry, ", "i can't ", "i cannot ", "i'm unable", "i am unable"))
