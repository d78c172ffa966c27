import random
from concurrent.futures import ThreadPoolExecutor
from itertools import chain

import bm25s
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from refinery.contract.records import Passage
from refinery.errors import RetrievalError
from refinery.passages.corpus import searched_text
from refinery.retrievers.bm25 import Bm25, Options
from refinery.retrievers.index.words import Tokenizer
from refinery.retrievers.search import postings as search_postings
from refinery.retrievers.search.postings import Postings


def reference(index, words, k):
    """What bm25s scores, and a full sort of it, in which ties go to the first passage."""
    scores = index.get_scores_from_ids(words)
    best = sorted((i for i in np.flatnonzero(scores > 0).tolist()), key=lambda i: (-scores[i], i))[:k]
    return [(i, float(scores[i])) for i in best]


def indexed(texts):
    index = bm25s.BM25(k1=0.9, b=0.4)
    index.index(texts, show_progress=False)
    postings = Postings(
        starts=index.scores["indptr"], passages=index.scores["indices"], scores=index.scores["data"], num_passages=len(texts)
    )
    return index, postings


def drawn(rng, *, passages, words, longest):
    """Passages of words as rare as words are; a few passages are there twice."""
    weights = [1 / (rank + 1) for rank in range(words)]
    texts = [rng.choices([f"w{number}" for number in range(words)], weights, k=rng.randrange(longest)) for _ in range(passages)]
    return [*texts, ["w0"], *texts[: passages // 10]]


@settings(max_examples=25, deadline=None)
@given(st.randoms(use_true_random=False), st.integers(1, 600), st.integers(1, 80), st.integers(2, 30), st.integers(1, 40))
def test_hits_and_scores_are_to_the_bit_those_of_a_full_search(rng, passages, words, longest, k):
    index, postings = indexed(drawn(rng, passages=passages, words=words, longest=longest))
    known = sorted(index.vocab_dict[word] for word in index.vocab_dict if word)
    for size in (1, 2, 5, 12):
        query = rng.choices(known, k=size)
        assert postings.best(query, k) == reference(index, query, k)


@pytest.mark.parametrize("passages_per_posting", [0.0, 1.0])
@settings(max_examples=12, deadline=None)
@given(st.randoms(use_true_random=False), st.integers(1, 600), st.integers(2, 30), st.integers(1, 40))
def test_passages_without_a_rare_word_are_left_out_only_if_they_are_no_hits(passages_per_posting, rng, passages, longest, k):
    index, postings = indexed(drawn(rng, passages=passages, words=200, longest=longest))
    known = sorted(index.vocab_dict[word] for word in index.vocab_dict if word)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(search_postings, "_PASSAGES_PER_POSTING", passages_per_posting)
        patch.setattr(search_postings, "_LOOKED_AT", 20)
        patch.setattr(search_postings, "_LONG", 10)
        for size in (1, 3, 9):
            query = rng.choices(known, k=size) * rng.choice([1, 2])
            assert postings.best(query, k) == reference(index, query, k)


@settings(max_examples=20, deadline=None)
@given(st.randoms(use_true_random=False), st.integers(1, 300), st.integers(1, 20))
def test_hits_are_those_of_sums_in_plain_python(rng, passages, k):
    _, postings = indexed(drawn(rng, passages=passages, words=40, longest=12))
    query = rng.choices(range(len(postings._starts) - 1), k=4)
    sums = dict.fromkeys(range(postings._num_passages), np.float32(0))
    for word in query:
        some = slice(postings._starts[word], postings._starts[word + 1])
        for passage, score in zip(postings._passages[some].tolist(), postings._scores[some], strict=True):
            sums[passage] += score
    best = sorted((-score, passage) for passage, score in sums.items() if score > 0)[:k]
    assert postings.best(query, k) == [(passage, float(-score)) for score, passage in best]


@pytest.mark.parametrize("passage", [-1, 3, 1 << 30])
def test_a_posting_of_a_passage_that_there_is_not_is_refused(passage):
    postings = Postings(
        starts=np.array([0, 2]), passages=np.array([0, passage], dtype=np.int32), scores=np.ones(2, dtype=np.float32), num_passages=3
    )
    with pytest.raises(RetrievalError, match="postings of passages that are not among its 3"):
        postings.best([0], 1)


def test_postings_without_scores_are_refused():
    with pytest.raises(RetrievalError, match="has 2 postings, but 1 scores"):
        Postings(starts=np.array([0, 2]), passages=np.zeros(2, dtype=np.int32), scores=np.ones(1, dtype=np.float32), num_passages=1)


@pytest.fixture(scope="module")
def large():
    return indexed(drawn(random.Random(0), passages=5_000, words=2_000, longest=40))


@pytest.mark.parametrize("k", [1, 5, 100, 9_000])
def test_it_is_exact_for_frequent_and_repeated_words_and_any_number_of_hits(large, k):
    index, postings = large
    rng = random.Random(k)
    known = [index.vocab_dict[word] for word in index.vocab_dict if word]
    for size in (3, 8, 25):
        query = [*rng.choices(known, k=size), *rng.sample(known, 2) * 3]
        assert postings.best(query, k) == reference(index, query, k)


def test_threads_do_not_disturb_each_other(large):
    index, postings = large
    rng = random.Random(1)
    known = [index.vocab_dict[word] for word in index.vocab_dict if word]
    queries = [rng.choices(known, k=6) for _ in range(200)]
    with ThreadPoolExecutor(4) as threads:
        found = list(threads.map(lambda query: postings.best(query, 10), queries))
    assert found == [reference(index, query, 10) for query in queries]


def test_a_search_of_no_words_finds_nothing(large):
    assert large[1].best([], 5) == []


@settings(max_examples=15, deadline=None)
@given(st.randoms(use_true_random=False), st.integers(1, 200))
def test_bm25_finds_what_a_search_of_all_words_finds(rng, count):
    texts = [
        " ".join(rng.choices(["Lyon", "Oslo", "film", "films", "directed", "1984", "the"], k=rng.randrange(1, 9))) for _ in range(count)
    ]
    texts.append("Lyon")
    passages = [Passage(id=str(number), text=text) for number, text in enumerate(texts)]
    retriever, index = Bm25(passages), bm25s.BM25(k1=0.9, b=0.4)
    tokenize = Tokenizer(Options())
    index.index(tokenize([searched_text(passage) for passage in passages]), show_progress=False)
    for query in ("Lyon", "Who directed a film in 1984?", "films films Oslo"):
        words = index.get_tokens_ids(list(chain.from_iterable(tokenize([query]))))
        hits = retriever.search_all([(query, 7)])[0]
        assert [(int(hit.passage.id), hit.retrieval_score) for hit in hits] == reference(index, words, 7)
