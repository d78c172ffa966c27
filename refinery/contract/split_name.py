"""The names that a split may have, because `refinery distill` writes its rows to `<split>.jsonl` in the run's folder."""

import re

INPUTS_FILE = "inputs.jsonl"  # in the same folder: the questions, or other rows, that were to be labeled
_STEM = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_-]*(\.[A-Za-z0-9_-]+)*")
_LONGEST = 64
_OTHER_FILES = ("failures", "passages", "inputs")  # in the run's folder, like `<split>.messages.jsonl`
SPLIT_RULE = (
    f"Use at most {_LONGEST} letters, digits, '_', '-' and '.', beginning with a letter, a digit or '_', "
    f"and none of {', '.join(_OTHER_FILES)} or *.messages"
)


def is_split(name: str) -> bool:
    """Whether `<name>.jsonl` can be a file of rows: it is in the run's own folder and differs from the run's other files."""
    stem = name.lower()
    return len(name) <= _LONGEST and bool(_STEM.fullmatch(name)) and stem not in _OTHER_FILES and not stem.endswith(".messages")
