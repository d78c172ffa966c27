"""A corpus of any size, drawn from real passages."""

import random
import re
from collections.abc import Iterator, Sequence
from itertools import islice

from refinery.contract.records import Passage

_SENTENCE_END = re.compile(r"(?<=[.!?])\s+")


def draw_passages(real: Sequence[Passage], count: int) -> Iterator[Passage]:
    """The real passages, then drawn ones up to `count`.

    A drawn passage has a real one's title and number of sentences. One sentence comes from a random passage, so that few drawn passages
    repeat the real one and tie with it; each other sentence is equally likely to be the passage's own or a random one. So lengths, words
    and their frequencies are those of real text, but drawn passages add no new words.
    """
    yield from islice(real, count)
    rng = random.Random(0)
    sentences_of = [_SENTENCE_END.split(passage.text) for passage in real]
    sentences = [sentence for of in sentences_of for sentence in of]
    for number in range(count - len(real)):
        place = rng.randrange(len(real))
        other = rng.randrange(len(sentences_of[place]))
        text = " ".join(own if at != other and rng.random() < 0.5 else rng.choice(sentences) for at, own in enumerate(sentences_of[place]))
        yield Passage(id=f"drawn:{number}", title=real[place].title, text=text)
