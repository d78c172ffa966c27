"""One-line descriptions of faults in a file's rows."""

import json
import re
from typing import Any, cast

from pydantic import ValidationError

from refinery.text import not_utf8

_FIELDS_SHOWN = 12
_TABLE = re.compile(r"\.(csv|tsv)(\.gz)?:\d+$")


def row_fault(line: bytes, error: ValidationError, record: str, where: str) -> str:
    """A message about the fault in a JSON line that is not a valid `record`. It starts with `where`."""
    first = error.errors()[0]
    if first["type"] == "json_invalid" or line.lstrip().startswith(b"[{"):
        return _json_fault(line, where)
    field = ".".join(str(part) for part in first["loc"]) or "row"
    fault = "is missing" if first["type"] == "missing" else first["msg"]
    return f"{where}: field '{field}': {fault}.{_fields(first)} Expected a {record} row."


def _fields(fault: Any) -> str:
    """For a row that lacks a required field: the fields that it does have, because it may follow another schema."""
    if fault["type"] != "missing" or not isinstance(fault["input"], dict):
        return ""
    found = list(cast("dict[str, Any]", fault["input"]))[:_FIELDS_SHOWN]
    return f" The row has {', '.join(map(repr, found))}." if found else ""


def _json_fault(line: bytes, where: str) -> str:
    if line.strip() == b"[" or line.lstrip().startswith(b"[{"):
        return f"{where}: begins a JSON array. Write one object per line, without brackets and commas around them."
    try:
        json.loads(line.decode())
    except UnicodeDecodeError as error:
        return f"{where}: {not_utf8(line, error, of=' of the line')}"
    except json.JSONDecodeError as error:
        if _TABLE.search(where):
            return f"{where}: is a table, not JSON. Save it as .jsonl or .parquet, its columns as fields, or name a reader of yours."
        return f"{where}: not valid JSON at column {error.colno} ({error.msg})."
    except RecursionError:
        return f"{where}: nests too deeply to be read. Check what wrote this row."
    return f"{where}: not valid JSON."
