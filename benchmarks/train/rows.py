"""Rows as long as RQ-RAG's trajectories, of random tokens.

According to RQ-RAG App. A (Fig. 7), most of its search-augmented rows have 150 to 2,000 tokens, cut at 4,096: mostly short with a long
tail, here a log-normal with those as its 10th and 90th percentiles (median 548). A row opens with its prompt; then come searches, each a
trained query and about 250 tokens of untrained evidence, and at the end a trained answer.
"""

import math
import random
from collections.abc import Iterator

from refinery.contract.segments import IGNORED_LABEL, EncodedRow, SegmentKind

_SHORTEST, _SHORT, _LONG, _LONGEST = 50, 150, 2000, 4096
_MEDIAN = math.sqrt(_SHORT * _LONG)
_SIGMA = math.log(_LONG / _SHORT) / 2 / 1.2816  # from the 10th and the 90th percentile of a normal
_PROMPT, _ANSWER = 0.15, 0.1  # shares of the row
_QUERY: list[SegmentKind] = ["query"] * 16
_EVIDENCE: list[SegmentKind] = ["evidence"] * 250


def trajectory_rows(count: int, *, vocabulary: int, scale: float, seed: int) -> list[EncodedRow]:
    """`count` rows of at most `scale` x 4,096 tokens; the scale shortens every part equally, as a small model is narrower than a 7B."""
    rng = random.Random(seed)
    return [_row(length, vocabulary, scale, rng) for length in row_lengths(count, rng)]


def row_lengths(count: int, rng: random.Random) -> Iterator[int]:
    """The tokens of `count` rows."""
    return (min(max(int(rng.lognormvariate(math.log(_MEDIAN), _SIGMA)), _SHORTEST), _LONGEST) for _ in range(count))


def _row(length: int, vocabulary: int, scale: float, rng: random.Random) -> EncodedRow:
    answer: list[SegmentKind] = ["answer"] * max(int(_ANSWER * length), 3)
    kinds: list[SegmentKind] = ["prompt"] * max(int(_PROMPT * length), 10)
    while len(kinds) + len(answer) < length:
        kinds += _QUERY + _EVIDENCE
    kinds = kinds[: length - len(answer)] + answer
    kinds = [kinds[int((place + 1) / scale) - 1] for place in range(int(length * scale))]
    ids = [rng.randrange(10, vocabulary) for _ in kinds]
    labels = [token if kind in ("query", "answer") else IGNORED_LABEL for token, kind in zip(ids, kinds, strict=True)]
    return EncodedRow(ids, [IGNORED_LABEL, *labels[1:]], kinds)
