"""The words of a test sentence, stored with an index of words, so that a tokenizer that has changed is noticed when the index is opened."""

import json
from collections.abc import Callable, Sequence
from pathlib import Path

from refinery.contract.records import Passage
from refinery.errors import RetrievalError
from refinery.retrievers.index.manifest import check_queries, read_manifest
from refinery.unspaced import is_unspaced

_ENGLISH = "Running shoes were generously organised in the cities' universities, 1984."
# "The lighthouse was built in 1874" in Chinese, and "museum" in Thai.
_UNSPACED = "\u706f\u5854\u5efa\u4e8e1874\u5e74 \u0e1e\u0e34\u0e1e\u0e34\u0e18\u0e20\u0e31\u0e13\u0e11\u0e4c"
_FILE = "tokenizer.json"

Words = Callable[[str], list[str]]


def write_probe(folder: Path, words: Words) -> None:
    """Store the words that an index is built with."""
    (folder / _FILE).write_text(json.dumps(words(_ENGLISH) + words(_UNSPACED)), encoding="utf-8")


def check_probe(folder: Path, words: Words) -> None:
    """Raise RetrievalError when the tokenizer now splits the test sentences into other words."""
    noted = json.loads((folder / _FILE).read_text(encoding="utf-8"))
    if noted == words(_ENGLISH):  # an index from before words were found in scripts that have no spaces
        if any(is_unspaced(check.query) for check in read_manifest(folder).checks):
            raise RetrievalError(
                f"{folder}: was built when text without spaces between its words, such as Chinese, was not split. Build it again."
            )
    elif (found := words(_ENGLISH) + words(_UNSPACED)) != noted:
        raise RetrievalError(
            f"{folder}: was built with a tokenizer that splits the test sentences into {noted}, not into {found}. Build it again."
        )


def words_version(passages: Sequence[Passage]) -> list[str]:
    """What a revision has besides for a corpus without spaces between words: earlier versions found other passages in it."""
    return ["pairs"] if any(map(is_unspaced, check_queries(passages))) else []
