"""The lines of `refinery new` about the documents: how many of each format were cut into how many passages, and some of these."""

from collections import Counter
from collections.abc import Iterator
from pathlib import Path, PurePosixPath
from statistics import median

from refinery.contract.records import Passage, read_records
from refinery.passages.document import document_of
from refinery.text import one_line
from refinery.unspaced import count_words

_SHOWN = 3
_MOST_LETTERS = 160


def preview_lines(passages_file: Path) -> Iterator[str]:
    """What was cut, and passages from the beginning, middle and end."""
    passages = read_records(passages_file, Passage)
    documents = dict.fromkeys(map(document_of, passages))
    formats = Counter(PurePosixPath(name).suffix.lower() for name in documents)
    words = median(count_words(passage.text) for passage in passages)
    named = ", ".join(f"{count} {suffix}" for suffix, count in formats.most_common())
    yield f"{len(documents):,} documents with text ({named}) are cut into {len(passages):,} passages (median {words:.0f} words), such as:"
    for passage in passages[len(passages) // (2 * _SHOWN) :: -(-len(passages) // _SHOWN)]:
        text = one_line(passage.text)
        yield f"  {passage.title}"
        yield f"    {text if len(text) <= _MOST_LETTERS else text[: _MOST_LETTERS - 3] + '...'}"
