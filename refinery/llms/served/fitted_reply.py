"""Fit the JSON of a reply to the shape that was asked for, where nobody doubts what is meant: `{"Label": "Relevant."}`, `{"answer": 1874}`.

Each value is fitted by the type of its field: names and labels without case and closing period, yes or no for true or false, a number
where a text is wanted, one value where a list is wanted, the only text of an object where a text is wanted. No meaning changes: what does
not fit stays as it is, and the schema refuses it.
"""

import json
import re
from types import UnionType
from typing import Annotated, Any, Literal, TypeVar, Union, get_args, get_origin

from pydantic import BaseModel, ValidationError

from refinery.llms.served.wire import whole_text

T = TypeVar("T", bound=BaseModel)

_AROUND = " \t\n\"'*`."
_TRUTHS = {"yes": True, "true": True, "no": False, "false": False}
_ITEM = re.compile(r"^[ \t]*(?:\d+[.)]|[-*•])[ \t]+(\S.*)$", re.MULTILINE)


def validated(part: str, schema: type[T]) -> T:
    """The JSON as a `schema`, as it is or fitted. Raises ValidationError for what it is not, about the JSON as it is."""
    try:
        return schema.model_validate_json(part)
    except ValidationError as error:
        try:
            # As JSON once more, because a text may contain half a surrogate pair, which no file can.
            return schema.model_validate_json(whole_text(json.dumps(_object(json.loads(part), schema), ensure_ascii=False)))
        except (ValueError, RecursionError):
            raise error from None


def _object(value: Any, schema: type[BaseModel]) -> Any:
    """An object whose fields are named as the schema's, each fitted to its type."""
    if not isinstance(value, dict):
        return value
    names = {_plain(name): name for name in schema.model_fields}
    renamed = {names.get(_plain(name), name): inner for name, inner in value.items()}
    if len(renamed) < len(value):  # `label` beside `Label`: which of them is meant?
        return value
    fields = schema.model_fields
    return {name: _fitted(inner, fields[name].annotation) if name in fields else inner for name, inner in renamed.items()}


def _fitted(value: Any, kind: Any) -> Any:
    origin, inner = get_origin(kind), get_args(kind)
    if origin is Annotated:
        return _fitted(value, inner[0])
    if origin in (Union, UnionType):
        kinds = [one for one in inner if one is not type(None)]
        return _fitted(value, kinds[0]) if len(kinds) == 1 and value is not None else value
    if origin is Literal:
        return _label(value, inner)
    if origin is list:
        return [_fitted(one, inner[0]) for one in _listed(value, inner[0])]
    if isinstance(kind, type) and issubclass(kind, BaseModel):
        return _object(value, kind)
    return _simple(value, kind)


def _label(value: Any, labels: tuple[Any, ...]) -> Any:
    said = ("yes" if value else "no") if isinstance(value, bool) and {"yes", "no"} <= {*labels} else value
    named = [label for label in labels if isinstance(said, str) and said.strip(_AROUND).lower() == str(label).lower()]
    return named[0] if len(named) == 1 else value


def _listed(value: Any, kind: Any) -> list[Any]:
    """The items of a list that was written as a text, as a numbered object, or as its only item."""
    if isinstance(value, list):
        return value
    if isinstance(value, dict) and value and all(str(name).strip().isdigit() for name in value):
        return list(value.values())
    if isinstance(value, str):
        lines = [line for line in value.splitlines() if line.strip()]
        if lines and len(items := _ITEM.findall(value)) == len(lines):
            return [item.strip() for item in items]
        if kind is int and re.fullmatch(r"\[?[\d\s,]+\]?", value.strip()):
            return [int(number) for number in re.findall(r"\d+", value)]
    return [value]


def _simple(value: Any, kind: Any) -> Any:
    if kind is bool and isinstance(value, str):
        return _TRUTHS.get(value.strip(_AROUND).lower(), value)
    if kind is int and isinstance(value, str) and (found := re.fullmatch(r"\[?(\d+)\]?\.?", value.strip())):
        return int(found[1])
    if kind is str and isinstance(value, int | float) and not isinstance(value, bool):
        return str(value)
    if kind is str and isinstance(value, dict) and len(value) == 1 and isinstance(text := next(iter(value.values())), str):
        return text
    return value


def _plain(name: str) -> str:
    return re.sub(r"[\s_-]+", "_", name.strip().lower())
