import pytest

from benchmarks.retrieval import retrieve
from benchmarks.retrieval.drawn_corpus import draw_passages
from refinery.contract.records import Passage, Question

REAL = [
    Passage(id="dune", title="Dune", text="Dune is a film. It is of 1984."),
    Passage(id="lyon", title="Lyon", text="Lyon is a city."),
]


def test_a_drawn_corpus_starts_with_the_real_passages_and_has_only_their_sentences():
    drawn = list(draw_passages(REAL, 50))
    assert drawn[:2] == REAL
    assert len({passage.id for passage in drawn}) == 50
    sentences = {"Dune is a film.", "It is of 1984.", "Lyon is a city."}
    assert all({f"{one}." for one in passage.text.rstrip(".").split(". ")} <= sentences for passage in drawn)
    assert list(draw_passages(REAL, 50)) == drawn


def test_a_corpus_may_be_smaller_than_the_real_one():
    assert list(draw_passages(REAL, 1)) == REAL[:1]


def test_what_supports_a_question_is_found_by_title_and_text():
    own = [Passage(id="p", title="Dune", text="Dune is a film.  It is of 1984. And more."), Passage(id="o", title="Lyon", text="Other.")]
    question = Question(id="q", text="?", answers=["1984"], passages=own, supporting=["p", "o"])
    assert retrieve._gold_of([question], REAL) == [[{"dune"}, set()]]
    assert retrieve._recall([["lyon", "dune"]], [[{"dune"}, {"oslo"}]]) == 0.5


@pytest.mark.slow
def test_every_engine_is_measured_in_one_run():
    figures = retrieve.measure([500])
    assert figures["recall_equal"] is True
    assert figures["recall_500"] == pytest.approx(figures["bm25s"]["recall_500"], abs=0.01)
    for engine in (figures, figures["bm25s"]):
        assert engine["index_us_per_passage_500"] > 0
        assert engine["queries_per_cpu_second_500"] > 0
        assert engine["two_core_speedup_500"] > 0
