"""The memory and the disk that a build of BM25 takes, from what each of its steps keeps.

The steps follow each other, so that memory is that of the one that keeps most. Bytes are counted as the operating system counts them, with
the parts of files that a process has mapped.
"""

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from itertools import chain, islice
from math import exp, log2

from refinery.contract.records import Passage
from refinery.passages.corpus import searched_text
from refinery.retrievers.index.manifest import check_queries
from refinery.retrievers.index.postings import PAIRS_AT_ONCE
from refinery.retrievers.index.word_counts import PASSAGES_PER_PART, Tokenize, processes_for
from refinery.runtime.concurrency.subprocesses import PROCESS_BYTES

_HEAD = 1_000  # passages from which checks are drawn
_WORD = 250  # of a word of the vocabulary: its text, and its places in a set, a list and a table
_PIECE = 2 << 20  # in which Linux maps a large file that was just written


@dataclass(slots=True)
class _Sample:
    """What the first passages say of all of them; `half` is how many different words are in the first half of them."""

    passages: int = 0
    text_bytes: int = 0
    words: int = 0
    passages_of: Counter[str] = field(default_factory=Counter[str])
    half: int = 0


def bytes_of_build(num_passages: int, first: Iterable[Passage], tokenize: Tokenize) -> tuple[int, int]:
    """The (memory, disk) in bytes of a corpus that begins with the passages `first`, of all processes together."""
    passages = iter(first)
    head = list(islice(passages, _HEAD))
    sample = _read(chain(head, passages), tokenize)
    scale, of_word = num_passages / sample.passages, sample.passages_of
    pairs = scale * of_word.total()
    checked = set(chain.from_iterable(tokenize(check_queries(head))))
    counting = _counting(num_passages, sample.text_bytes / sample.passages, sample.words / sample.passages)
    joining = _joining(num_passages, pairs, scale * max(of_word.values(), default=0))
    checking = _checking(num_passages, pairs, len(checked), scale * sum(of_word[word] for word in checked))
    return round(PROCESS_BYTES + max(counting, _WORD * _vocabulary(sample, scale) + max(joining, checking))), round(pairs * 20)


def _read(passages: Iterable[Passage], tokenize: Tokenize) -> _Sample:
    """Count words one passage after another: the memory of a list of passages would not return to the system."""
    found, growth = _Sample(), list[int]()
    for passage in passages:
        text = searched_text(passage)
        (words,) = tokenize([text])
        found.passages_of.update(set(words))
        found.text_bytes, found.words = found.text_bytes + len(text.encode()), found.words + len(words)
        growth.append(len(found.passages_of))
    found.passages, found.half = len(growth), growth[(len(growth) - 1) // 2]
    return found


def _counting(num_passages: int, text: float, words: float) -> float:
    """Of counting words: in each process, one part of the corpus, with the mean bytes and words of a passage."""
    part = min(num_passages, PASSAGES_PER_PART) * (text + 700 + 70 * words)
    processes = processes_for(num_passages // PASSAGES_PER_PART)
    return part if processes == 1 else processes * (PROCESS_BYTES + part)


def _joining(num_passages: int, pairs: float, most_of_a_word: float) -> float:
    """Of joining counts: each passage's length and norm, the pairs that are joined at once, and the scores of some of these."""
    some = min(pairs, PAIRS_AT_ONCE)
    return 12 * num_passages + 12 * max(some, most_of_a_word) + 36 * some


def _checking(num_passages: int, pairs: float, words: int, their_pairs: float) -> float:
    """Of the searches that end a build: each passage's sum and whether it is high, and what they map of the index's two files.

    The words' postings lie in a few of a file's pieces, drawn at random, and the long ones in more.
    """
    pieces = 4 * pairs / _PIECE
    mapped = min(4 * pairs, _PIECE * pieces * (1 - exp(-words / pieces)) + 4 * their_pairs) if pairs else 0
    return 5 * num_passages + 2 * mapped


def _vocabulary(sample: _Sample, scale: float) -> float:
    """How many words a corpus has that is `scale` times as long: a power of the length (Heaps' law), as from half of the sample to all."""
    words = len(sample.passages_of)
    return words * scale ** log2(words / sample.half) if sample.half else words * scale
