import random

import pytest

from refinery.contract.records import Passage
from refinery.retrievers.bm25 import Options, estimate_bytes
from refinery.retrievers.index import postings_needs

MIB = 1 << 20


def drawn(count, words):
    """Passages of 60 words, each drawn from as many as `words` gives for the passage's number."""
    rng = random.Random(0)
    return [Passage(id=str(n), text=" ".join(f"word{rng.randrange(words(n))}" for _ in range(60))) for n in range(count)]


@pytest.fixture(autouse=True)
def two_processes(monkeypatch):
    monkeypatch.setattr(postings_needs, "processes_for", lambda num_parts: 2)


def memory(num_passages, words=lambda number: 5_000):
    return estimate_bytes(num_passages, iter(drawn(2_000, words)), Options())[0] / MIB


def test_the_memory_of_counting_does_not_grow_with_the_corpus():
    assert memory(100_000) == memory(1_000_000)


def test_memory_grows_with_the_words_that_the_sample_goes_on_to_bring():
    known, new = memory(20_000_000), memory(20_000_000, words=lambda number: 20 * (number + 1))
    assert new > 2 * known


def test_at_many_passages_memory_is_that_of_joining_or_of_the_searches_that_end_a_build():
    per_passage = (memory(200_000_000) - memory(100_000_000)) * MIB / 100_000_000
    assert 12 <= per_passage <= 40
