import math

import pytest

from refinery.contract.records import Question
from refinery.errors import RecipeError, RecordError
from refinery.retrievers.base import RetrieverConfig
from refinery.retrievers.candidates import okapi_scores
from refinery.retrievers.search.build import build_retriever


def candidates(**options):
    return build_retriever(RetrieverConfig(name="candidates", options=options))


def test_only_the_questions_own_passages_are_searched(search, passages):
    question = Question(id="q", text="Which city?", passages=passages[2:])
    assert [hit.passage.id for hit in search(candidates(), "Maria Torvel Lyon", question=question)] == ["lyon"]


def test_another_question_is_searched_by_its_own_passages(search, passages):
    retriever = candidates()
    for id, own in (("a", passages[2:3]), ("b", passages[3:])):
        found = search(retriever, "a city", question=Question(id=id, text="Which?", passages=own))
        assert [hit.passage for hit in found] == own


@pytest.mark.parametrize("question", [None, Question(id="q", text="Which city?")])
def test_a_question_that_brings_no_passages_is_refused(search, question):
    with pytest.raises(RecordError, match="the question comes without passages. Use retriever bm25 with a corpus"):
        search(candidates(), "Lyon", question=question)


def test_okapi_is_computed_as_rank_bm25_computes_it():
    texts, query = ["a b b c", "a c", "a d d d"], "b d a"
    idf = {"a": math.log(0.5) - math.log(3.5), "b": math.log(2.5) - math.log(1.5), "c": math.log(1.5) - math.log(2.5)}
    idf["d"] = idf["b"]
    idf["a"] = idf["c"] = 0.25 * sum(idf.values()) / 4

    def weight(count, length):
        return count * 2.5 / (count + 1.5 * (0.25 + 0.75 * length / (10 / 3)))

    expected = [
        idf["b"] * weight(2, 4) + idf["a"] * weight(1, 4),
        idf["a"] * weight(1, 2),
        idf["d"] * weight(3, 4) + idf["a"] * weight(1, 4),
    ]
    assert okapi_scores(query, texts) == pytest.approx(expected)


def test_the_authors_scoring_minds_case_and_gives_k_hits_whatever_they_score(search, passages):
    question = Question(id="q", text="Which?", passages=passages)
    found = search(candidates(scoring="okapi"), "LYON Norway.", k=3, question=question)
    assert [hit.passage.id for hit in found] == ["oslo", "dune", "torvel"]  # of equal ones, the first
    assert [hit.retrieval_score for hit in found][1:] == [0.0, 0.0]


def test_the_authors_scoring_reads_300_characters_of_a_query(search, passages):
    question = Question(id="q", text="Which?", passages=passages)
    assert search(candidates(scoring="okapi"), "x" * 300 + " Norway.", k=1, question=question)[0].passage.id == "dune"


def test_embeddings_rank_by_cosine(search, passages, tiny_encoders):
    question = Question(id="q", text="Which?", passages=passages)
    retriever = candidates(scoring="embeddings", encoder={"model": tiny_encoders["encoder"]})
    for passage in passages:
        found = search(retriever, f"{passage.title} {passage.text}", k=2, question=question)
        assert found[0].passage == passage
        assert found[0].retrieval_score == pytest.approx(1.0, abs=1e-5)
        assert found[1].retrieval_score < 1.0


@pytest.mark.parametrize("options", [{"scoring": "embeddings"}, {"encoder": {"model": "m"}}])
def test_embeddings_and_an_encoder_go_together(options):
    with pytest.raises(RecipeError, match="`encoder` and scoring: embeddings need each other"):
        candidates(**options)
