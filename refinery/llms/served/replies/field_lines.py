"""Read lines such as `Question: Who directed Dune?`, which small models write where a JSON object was requested.

Only a shape whose fields are all strings is read, or a shape whose one field is a list of such shapes. Nothing is guessed: a missing, empty
or repeated field, a line with two fields, or prose before, between or after the lines makes the whole reply unreadable.
"""

import re
from typing import Any, get_args, get_origin

from pydantic import BaseModel

from refinery.llms.served.replies.bare_reply import is_lead

# Text that may come between the lines: a line of another name (`Note: two facts.`), a heading, a rule or a code fence.
_OTHER_LINE = re.compile(r"^\W*\w+(?: \d+)?\**:|^\s*#|^\W*$|^\s*```")


def read_field_lines(text: str, schema: type[BaseModel]) -> dict[str, Any] | None:
    """The schema's values from the lines that name its fields, or None."""
    if _only_strings(schema):
        records = _records(text, schema)
        return records[0] if records and len(records) == 1 else None
    if (listed := _listed_shape(schema)) and (records := _records(text, listed)):
        return {next(iter(schema.model_fields)): records}
    return None


def _only_strings(schema: type[BaseModel]) -> bool:
    return bool(schema.model_fields) and all(field.annotation is str for field in schema.model_fields.values())


def _listed_shape(schema: type[BaseModel]) -> type[BaseModel] | None:
    """The element type if the schema's only field is a list of objects with string fields, else None."""
    annotations = [field.annotation for field in schema.model_fields.values()]
    if len(annotations) != 1 or get_origin(annotations[0]) is not list:
        return None
    (inner,) = get_args(annotations[0])
    return inner if isinstance(inner, type) and issubclass(inner, BaseModel) and _only_strings(inner) else None


def _records(text: str, shape: type[BaseModel]) -> list[dict[str, str]] | None:
    """The records of a text, in order; a field that repeats begins the next record. None if one of them is incomplete or ambiguous."""
    label = rf"({'|'.join(name.replace('_', '[ _]') for name in shape.model_fields)})(?: \d+)?"
    line = re.compile(rf"^[ \t]*(?:\d+[.)][ \t]*|[-*•#>]+[ \t]+)*\**{label}\**[ \t]*:(?:\*\*)?[ \t]*(.*)$", re.IGNORECASE | re.MULTILINE)
    another = re.compile(rf"\b{label}\**[ \t]*:", re.IGNORECASE)
    if not all(line.match(one) or _OTHER_LINE.match(one) for one in _after_lead(text, line, " ".join(shape.model_fields))):
        return None
    records: list[dict[str, str]] = []
    for said, value in line.findall(text):
        name = next(name for name in shape.model_fields if name.lower() == said.lower().replace(" ", "_"))
        if not records or name in records[-1]:
            records.append({})
        if not (plain := _without_bold(value.strip())) or another.search(plain):
            return None
        records[-1][name] = plain
    required = {name for name, field in shape.model_fields.items() if field.is_required()}
    return records if all(required <= record.keys() for record in records) else None


def _after_lead(text: str, line: re.Pattern[str], names: str) -> list[str]:
    """The lines without a lead such as `Sure! Here it is:`."""
    lead, _, rest = text.strip().partition("\n")
    return (rest if not line.match(lead) and is_lead(lead, names) else text).splitlines()


def _without_bold(value: str) -> str:
    """The value without asterisks around it, such as those that a bold label left open."""
    if value.count("**") % 2:
        value = value.removesuffix("**").removeprefix("**")
    elif value.startswith("**") and value.endswith("**") and value.count("**") == 2:
        value = value[2:-2]
    return value.strip()
