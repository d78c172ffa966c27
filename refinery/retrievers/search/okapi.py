"""BM25 as RQ-RAG's `bm25_candidates` scores a row's own paragraphs: rank_bm25's BM25Okapi over words split at single spaces.

Words keep their case and punctuation. A word in more than half of the few paragraphs would score negative without `epsilon`.
"""

import math
from collections import Counter
from collections.abc import Sequence

_K1, _B, _EPSILON = 1.5, 0.75, 0.25
_MOST_CHARACTERS = 300  # of a query (data_curation/tools/bm25_candidates.py)


def okapi_scores(query: str, texts: Sequence[str]) -> list[float]:
    """One score per text; any of them may be 0 or less."""
    counts = [Counter(text.split(" ")) for text in texts]
    lengths = [sum(count.values()) for count in counts]
    mean_length = sum(lengths) / len(lengths)
    idf = _inverse_frequencies(counts)
    return [
        sum(
            idf.get(word, 0.0) * count[word] * (_K1 + 1) / (count[word] + _K1 * (1 - _B + _B * length / mean_length))
            for word in query[:_MOST_CHARACTERS].split(" ")
        )
        for count, length in zip(counts, lengths, strict=True)
    ]


def _inverse_frequencies(counts: Sequence[Counter[str]]) -> dict[str, float]:
    """The inverse document frequency of every word. A negative one, of a word in most texts, becomes a quarter of the mean."""
    frequencies = Counter(word for count in counts for word in count)
    idf = {word: math.log(len(counts) - frequency + 0.5) - math.log(frequency + 0.5) for word, frequency in frequencies.items()}
    floor = _EPSILON * sum(idf.values()) / len(idf)
    return {word: floor if value < 0 else value for word, value in idf.items()}
