"""The files of BM25 postings on disk, which have the names that bm25s gives them."""

import json
from pathlib import Path

from pydantic_core import from_json

# Of every word, one after another: where its postings start, its passages, and its score in each.
STARTS_FILE, PASSAGES_FILE, SCORES_FILE = "indptr.csc.index.npy", "indices.csc.index.npy", "data.csc.index.npy"
_VOCABULARY_FILE = "vocab.index.json"


def write_vocabulary(folder: Path, vocabulary: dict[str, int]) -> None:
    """Write the number of each word."""
    (folder / _VOCABULARY_FILE).write_text(json.dumps(vocabulary, ensure_ascii=False), encoding="utf-8")


def read_vocabulary(folder: Path) -> dict[str, int]:
    """The number of each word."""
    return from_json((folder / _VOCABULARY_FILE).read_bytes())
