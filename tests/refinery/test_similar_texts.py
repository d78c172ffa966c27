import random

from hypothesis import given
from hypothesis import strategies as st

from refinery.similar_texts import SimilarTexts

WORDS = st.frozensets(st.sampled_from("a bb ccc dddd eeeee ffffff ggggggg hhhhhhhh".split()), min_size=1)


@given(st.lists(WORDS, max_size=12), WORDS)
def test_it_finds_exactly_the_sets_of_at_least_four_fifths_similarity(sets, words):
    texts = SimilarTexts[int]()
    for number, other in enumerate(sets):
        texts.add(other, number)
    expected = {number for number, other in enumerate(sets) if len(words & other) / len(words | other) >= 0.8}
    assert set(texts.similar(words)) == expected


class Counted(frozenset):
    """A set of words that counts what it is compared with."""

    compared = 0

    def intersection(self, *others):
        Counted.compared += 1
        return super().intersection(*others)


def test_long_words_that_most_texts_share_lead_to_few_comparisons():
    rng, texts = random.Random(0), SimilarTexts[int]()
    shared = ["international", "administration", "representative", "responsibilities", "characteristics"]
    for number in range(1_000):
        words = Counted([*rng.sample(shared, 3), *(f"w{rng.randrange(10**6)}" for _ in range(7))])
        assert list(texts.similar(words)) == []
        texts.add(words, number)
    assert Counted.compared < 1_000
