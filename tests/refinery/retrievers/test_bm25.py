import asyncio

import pytest

from refinery.errors import RecordError
from refinery.records import Passage, Question, write_records
from refinery.retrievers.base import RetrieverConfig, build_retriever
from refinery.retrievers.bm25 import Bm25

PASSAGES = [
    Passage(id="dune", title="Dune", text="Dune is a film that Maria Torvel directed in 1984."),
    Passage(id="torvel", title="Maria Torvel", text="Maria Torvel was born in Lyon."),
    Passage(id="lyon", title="Lyon", text="Lyon is a city in France."),
    Passage(id="oslo", title="Oslo", text="Oslo is a city in Norway."),
]


def search(retriever, query, *, k=3, question=None):
    return asyncio.run(retriever.search(query, k=k, question=question))


@pytest.mark.parametrize(
    ("query", "best"),
    [
        ("Who directed Dune?", "dune"),
        ("In which city was Maria Torvel born?", "torvel"),
        ("FRANCE", "lyon"),
        ("Norway?", "oslo"),
    ],
)
def test_the_passage_that_shares_the_rare_words_comes_first(query, best):
    assert search(Bm25(PASSAGES), query)[0].passage.id == best


def test_a_title_is_searched_though_the_text_does_not_repeat_it():
    passages = [
        Passage(id="a", title="Velorum", text="A film of 1984."),
        Passage(id="b", title="Dune", text="A film of 1985."),
    ]
    assert search(Bm25(passages), "Velorum")[0].passage.id == "a"


def test_hits_come_best_first_and_at_most_k():
    hits = search(Bm25(PASSAGES), "city in France", k=2)
    assert len(hits) == 2
    assert hits[0].retrieval_score > hits[1].retrieval_score > 0


def test_more_hits_than_passages_can_be_asked_for():
    assert len(search(Bm25(PASSAGES), "Lyon", k=100)) == 2


@pytest.mark.parametrize("query", ["zyxw", "", "   ", "???", "the of and", "日本"])
def test_a_query_that_shares_no_word_finds_nothing(query):
    assert search(Bm25(PASSAGES), query) == []


def test_one_passage_is_a_corpus():
    assert search(Bm25(PASSAGES[:1]), "Dune")[0].passage.id == "dune"


@pytest.mark.parametrize("text", ["", "the of and"])
def test_a_corpus_without_words_is_refused(text):
    with pytest.raises(RecordError, match="the corpus"):
        Bm25([Passage(id="a", text=text)])


def test_an_empty_corpus_says_what_to_set():
    with pytest.raises(RecordError, match=r"the corpus is empty. Set retriever\.passages"):
        Bm25([])


def test_a_retriever_is_built_from_its_configuration(tmp_path):
    write_records(tmp_path / "passages.jsonl", PASSAGES)
    retriever = build_retriever(RetrieverConfig(passages=tmp_path / "passages.jsonl"))
    assert search(retriever, "Norway", k=1)[0].passage == PASSAGES[3]


def test_an_id_used_twice_is_refused(tmp_path):
    write_records(tmp_path / "passages.jsonl", [PASSAGES[0], PASSAGES[0]])
    with pytest.raises(RecordError, match="id 'dune' is used twice"):
        build_retriever(RetrieverConfig(passages=tmp_path / "passages.jsonl"))


def test_candidates_searches_only_the_questions_own_passages():
    question = Question(id="q", text="Which city?", passages=PASSAGES[2:])
    hits = search(build_retriever(RetrieverConfig(name="candidates")), "Maria Torvel Lyon", question=question)
    assert [hit.passage.id for hit in hits] == ["lyon"]


def test_candidates_refuses_a_question_that_brings_none():
    with pytest.raises(RecordError, match="brings no passages of its own. Use retriever bm25 with a corpus"):
        search(build_retriever(RetrieverConfig(name="candidates")), "Lyon", question=Question(id="q", text="Which city?"))
