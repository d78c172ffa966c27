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
