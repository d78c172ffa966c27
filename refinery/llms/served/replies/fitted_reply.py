"""Fit the JSON of a reply to its schema where it says the same in another form: `"Relevant"`, `"[1]"` or `{"question": "Who?"}`.

Values are fitted by the types of their fields, for every task, judge and decoder alike, and only if their meaning is unambiguous. The
others are left unchanged, so the schema rejects them: `"partially relevant"`, a range, or `true` for a number.
"""

import json
import re
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, Union, get_args, get_origin

from pydantic import BaseModel

from refinery.llms.served.replies.bare_reply import items_of, opposite_label

_TRUTH = {"yes": True, "true": True, "no": False, "false": False}
_AROUND = " \t\r\n\"'`*."
_NUMBER = r"(?:(?:passage|paragraph|document|number) *)?#?\[?(-?\d+)\]?"
_ONE_NUMBER = re.compile(_NUMBER, re.IGNORECASE)
_NUMBERS = re.compile(rf"\[?{_NUMBER}(?:(?: *[,;]| +and|, *and)\s*{_NUMBER})*\]?", re.IGNORECASE)
_ONE_QUESTION = re.compile(r"[^?.:;!\n]+\?")
_LABEL_KEYS = frozenset({"label", "answer", "value", "text"})
_NEGATED_KEY = re.compile(r"(?:^|[\W_])(?:not?|non|without|wrong|bad|rejected)(?:[\W_]|$)", re.IGNORECASE)


class _Decimal(float):
    """A number with a fraction and its digits as they were written: `1.10`."""

    def __new__(cls, digits: str) -> "_Decimal":
        number = super().__new__(cls, digits)
        number.digits = digits
        return number

    digits: str


def fitted_json(part: str, schema: type[BaseModel]) -> str | None:
    """The JSON object with its names and values in the forms that the schema has, or None if it cannot be written as JSON."""
    with suppress(ValueError, RecursionError):
        return json.dumps(_object(json.loads(part, parse_float=_Decimal), schema))
    return None


def names_a_field(value: Mapping[str, Any], schema: type[BaseModel]) -> bool:
    """Whether an object has one of the schema's fields, under any spelling of its name."""
    return not {_plain(name) for name in schema.model_fields}.isdisjoint(map(_plain, value))


def _object(value: Any, schema: type[BaseModel]) -> Any:
    if not isinstance(value, dict):
        return value
    names = {_plain(name): name for name in schema.model_fields}
    spelled = [names.get(_plain(key), key) for key in value]
    # A name that occurs in two spellings is not known to mean either of them.
    keys = [name if name in schema.model_fields and spelled.count(name) == 1 else key for key, name in zip(value, spelled, strict=True)]
    fields = schema.model_fields
    return {key: _fitted(one, fields[key].annotation) if key in fields else one for key, one in zip(keys, value.values(), strict=True)}


def _plain(name: str) -> str:
    """A name without case and blanks, as in `Sub-questions` and `subQuestions`."""
    return re.sub(r"[\W_]+", "", name).casefold()


def _fitted(value: Any, wanted: Any) -> Any:
    kind = get_origin(wanted)
    if kind is Annotated:
        return _fitted(value, get_args(wanted)[0])
    if kind in (Union, UnionType):
        several = [one for one in get_args(wanted) if one is not NoneType]
        return value if value is None or len(several) != 1 else _fitted(value, several[0])
    if kind is list:
        return _list(value, get_args(wanted)[0])
    if isinstance(value, list) and len(value) == 1:
        value = value[0]
    if kind is Literal:
        return _label(value, get_args(wanted))
    if isinstance(wanted, type) and issubclass(wanted, BaseModel):
        return _object(value, wanted)
    return _OF_TYPE[wanted](value) if isinstance(wanted, type) and wanted in _OF_TYPE else value


def _list(value: Any, wanted: Any) -> Any:
    """The list that a text holds, the values of an object with numbered keys, or a list of the only value."""
    if isinstance(value, str):
        value = _listed(value.strip(), _without_rules(wanted))
    elif isinstance(value, dict):
        value = (wanted is not int and _numbered(value)) or ([value] if _is_item(value, _without_rules(wanted)) else value)
    elif wanted is int and not isinstance(value, bool | list | float | None):
        value = [value]
    if not isinstance(value, list):
        return value
    is_text = _without_rules(wanted) is str
    return [one if is_text and isinstance(one, int | float) else _fitted(one, wanted) for one in value]  # a number is not a sub-question


def _without_rules(wanted: Any) -> Any:
    return get_args(wanted)[0] if get_origin(wanted) is Annotated else wanted


def _listed(text: str, wanted: Any) -> Any:
    """The list in a text; the text itself if it may be anything else, such as a reason for giving no list."""
    if text.startswith("["):
        with suppress(ValueError, RecursionError):
            return json.loads(text, parse_float=_Decimal)
    if wanted is int:
        plain = text.strip(_AROUND)
        found = [int(number) for number in re.findall(r"-?\d+", plain)] if _NUMBERS.fullmatch(plain) else text
        return [] if plain.lower() == "none" else found
    if wanted is str:
        return items_of(text) or ([text] if _ONE_QUESTION.fullmatch(text) else text)
    return text


def _numbered(value: Mapping[str, Any]) -> list[Any] | None:
    """The values of `{"1": ..., "2": ...}`, in order."""
    return list(value.values()) if value and list(value) == [str(number) for number in range(1, len(value) + 1)] else None


def _is_item(value: Mapping[str, Any], wanted: Any) -> bool:
    """Whether an object is the only item of a list of such objects."""
    return isinstance(wanted, type) and issubclass(wanted, BaseModel) and names_a_field(value, wanted)


def _label(value: Any, labels: Sequence[Any]) -> Any:
    if isinstance(value, dict) and len(value) == 1 and _plain(next(iter(value))) in _LABEL_KEYS:
        value = next(iter(value.values()))
    if isinstance(value, bool):
        value = "yes" if value else "no"
    if not isinstance(value, str):
        return value
    words = _words(value)
    named = [label for label in labels if isinstance(label, str) and _words(label) == words]
    if not named and words.startswith("not "):
        named = [label for label in labels if label == opposite_label(words.removeprefix("not "), labels)]
    if not named and words in _TRUTH and {"yes", "no"} <= set(labels):
        named = ["yes" if _TRUTH[words] else "no"]
    return named[0] if len(named) == 1 else value


def _words(label: str) -> str:
    return re.sub(r"[\s_-]+", " ", label.strip(_AROUND)).casefold()


def _text(value: Any) -> Any:
    """A number as it is written, or the only text of an object whose other values are numbers, such as a step's."""
    if isinstance(value, _Decimal):
        return value.digits
    if isinstance(value, int) and not isinstance(value, bool):
        return str(value)
    if not isinstance(value, dict):
        return value
    texts = [(key, one) for key, one in value.items() if not _is_whole(one)]
    is_text = len(texts) == 1 and isinstance(texts[0][1], str) and not _NEGATED_KEY.search(texts[0][0])
    return texts[0][1] if is_text else value


def _is_whole(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _truth(value: Any) -> Any:
    if isinstance(value, str):
        return _TRUTH.get(value.strip(_AROUND).casefold(), value)
    return bool(value) if _is_whole(value) and value in (0, 1) else value


def _whole(value: Any) -> Any:
    if isinstance(value, _Decimal):
        return int(value) if value.is_integer() else value
    found = _ONE_NUMBER.fullmatch(value.strip(_AROUND)) if isinstance(value, str) else None
    return int(found[1]) if found else value


def _fraction(value: Any) -> Any:
    with suppress(ValueError):
        return float(value) if isinstance(value, str) else value
    return value


_OF_TYPE: dict[type, Callable[[Any], Any]] = {str: _text, bool: _truth, int: _whole, float: _fraction}
