"""The manifest of an index folder, and the check that the folder still matches it."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from refinery.contract.records import Passage, Record
from refinery.errors import RetrievalError
from refinery.passages.corpus import Corpus, searched_text
from refinery.retrievers.base import IndexedRetriever, IndexOptions
from refinery.runtime.files.fingerprint import running_fingerprint
from refinery.unspaced import first_words

MANIFEST_FILE = "index.json"
_CHECKS, _CHECKED_HITS = 8, 3
_CHECK_WORDS = 12
_SCORE_TOLERANCE = 0.02  # relative; encoders vary this much between devices and number formats, a wrong id map far more
_BLOCK, _BLOCKS = 1 << 16, 64


class Check(Record):
    """A query and the hit that it found when the index was built."""

    query: str
    passage_id: str
    retrieval_score: float


class Manifest(Record):
    """The retriever and options of an index, what it was built from, and the hashes and checks that identify it.

    `questions` is the hash of those whose passages were left out, `added` that of the passages that were indexed besides the source's.
    """

    name: str
    options: dict[str, Any]
    source: str
    num_passages: int
    num_dropped: int
    questions: str
    added: str = ""
    corpus_hash: str
    files: dict[str, str]
    checks: list[Check]


def read_manifest(folder: Path) -> Manifest:
    """The manifest of a finished index. Raises RetrievalError when the folder has none."""
    try:
        return Manifest.model_validate_json((folder / MANIFEST_FILE).read_text(encoding="utf-8"))
    except OSError:
        raise RetrievalError(f"{folder}: holds no finished index. Build it: refinery index PASSAGES --output {folder}.") from None
    except (ValidationError, UnicodeDecodeError):
        raise RetrievalError(f"{folder / MANIFEST_FILE}: is not the manifest of an index. Build the index again.") from None


def open_index(folder: Path, name: str, options: IndexOptions) -> tuple[Corpus, Manifest]:
    """The passages and the manifest of an index, after a check that its files and options are those that it was built with.

    Raises RetrievalError when they are not. Options that only affect searching may differ.
    """
    manifest = read_manifest(folder)
    check_name(folder, manifest, name)
    check_options(folder, manifest, {key: getattr(options, key) for key in manifest.options if key not in options.SEARCH_ONLY})
    for file, checksum in manifest.files.items():
        if not (folder / file).is_file() or sampled_checksum(folder / file) != checksum:
            raise RetrievalError(f"{folder / file}: is missing or has changed since the index was built. Copy the index again, or rebuild.")
    return Corpus(folder), manifest


def check_name(folder: Path, manifest: Manifest, name: str) -> None:
    """Raise RetrievalError for an index that was built for another retriever."""
    if manifest.name != name:
        raise RetrievalError(
            f"{folder}: is an index for retriever '{manifest.name}', but the recipe names '{name}'. Set name: {manifest.name}."
        )


def check_options(folder: Path, manifest: Manifest, options: Mapping[str, Any]) -> None:
    """Raise RetrievalError for an index that was built with other values of these options."""
    for key, value in options.items():
        if (built := manifest.options.get(key)) != value:
            raise RetrievalError(
                f"{folder}: was built with {key}={built!r}, but the recipe says {value!r}. Remove the key, or build again."
            )


def sampled_checksum(path: Path) -> str:
    """A hash of a file's length and of 64 blocks of 64 KiB spread over it. It covers all of a file up to 4 MiB, and is always fast."""
    size = path.stat().st_size
    digest = running_fingerprint(str(size).encode())
    with path.open("rb") as file:
        for number in range(_BLOCKS):
            file.seek(max(number * _BLOCK, number * (size - _BLOCK) // (_BLOCKS - 1)) if size > _BLOCK * _BLOCKS else number * _BLOCK)
            digest.update(file.read(_BLOCK))
    return digest.hexdigest()


def make_checks(passages: Sequence[Passage], retriever: IndexedRetriever) -> list[Check]:
    """Queries made from passages spread over the corpus, with the hit that each finds."""
    queries = check_queries(passages)
    found = retriever.search_all([(query, 1) for query in queries])
    return [
        Check(query=query, passage_id=hits[0].passage.id, retrieval_score=hits[0].retrieval_score)
        for query, hits in zip(queries, found, strict=True)
        if hits
    ]


def check_queries(passages: Sequence[Passage]) -> list[str]:
    """The first words of passages spread over the corpus."""
    step = max(len(passages) // _CHECKS, 1)
    return [first_words(searched_text(passages[i]), _CHECK_WORDS) for i in range(0, len(passages), step)][:_CHECKS]


def self_test(folder: Path, retriever: IndexedRetriever) -> None:
    """Repeat the searches made when the index was built. Raises RetrievalError when their hits differ."""
    checks = read_manifest(folder).checks
    for check, hits in zip(checks, retriever.search_all([(check.query, _CHECKED_HITS) for check in checks]), strict=True):
        scores = {hit.passage.id: hit.retrieval_score for hit in hits}
        score = scores.get(check.passage_id)
        if score is None or abs(score - check.retrieval_score) > _SCORE_TOLERANCE * abs(check.retrieval_score):
            raise RetrievalError(
                f"{folder}: query {check.query!r} found passage '{check.passage_id}' with {check.retrieval_score:.4f} when the index was "
                f"built, and now {json.dumps({key: round(value, 4) for key, value in scores.items()})}. Check the encoder, or build again."
            )
