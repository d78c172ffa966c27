"""Which names a split may have: `refinery distill` writes its rows to `<split>.jsonl` in the run's folder."""

import re

_STEM = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_-]*(\.[A-Za-z0-9_-]+)*")
_LONGEST = 64
_OTHER_FILES = ("failures", "passages")  # of the run's folder, as is `<split>.messages.jsonl`
SPLIT_RULE = (
    f"Use at most {_LONGEST} letters, digits, '_', '-' and '.', beginning with a letter, a digit or '_', "
    f"and none of {', '.join(_OTHER_FILES)} or *.messages"
)


def is_split(name: str) -> bool:
    """Whether `<name>.jsonl` is a file of rows: in the run's own folder, and no other file of the run."""
    stem = name.lower()
    return len(name) <= _LONGEST and bool(_STEM.fullmatch(name)) and stem not in _OTHER_FILES and not stem.endswith(".messages")
