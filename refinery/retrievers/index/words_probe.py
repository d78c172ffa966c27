"""The words of a test sentence, stored with an index of words, so that a tokenizer that has changed is noticed when the index is opened."""

import json
from collections.abc import Callable
from pathlib import Path

from refinery.errors import RetrievalError

_SENTENCE = "Running shoes were generously organised in the cities' universities, 1984."
_FILE = "tokenizer.json"

Words = Callable[[str], list[str]]


def write_probe(folder: Path, words: Words) -> None:
    """Store the words that an index is built with."""
    (folder / _FILE).write_text(json.dumps(words(_SENTENCE)), encoding="utf-8")


def check_probe(folder: Path, words: Words) -> None:
    """Raise RetrievalError when the tokenizer now splits the test sentence into other words."""
    noted = json.loads((folder / _FILE).read_text(encoding="utf-8"))
    if (found := words(_SENTENCE)) != noted:
        raise RetrievalError(
            f"{folder}: was built with a tokenizer that splits the test sentence into {noted}, not into {found}. Build it again."
        )
