import asyncio

import bm25s
import pytest

from refinery.contract.records import Passage, write_records
from refinery.errors import RecipeError, RecordError
from refinery.indexes.build import build_index
from refinery.passages.corpus import corpus_hash
from refinery.retrievers import bm25
from refinery.retrievers.base import RetrieverConfig
from refinery.retrievers.bm25 import Bm25, Options
from refinery.retrievers.index.words import Tokenizer, stop_words
from refinery.retrievers.search.build import build_retriever
from refinery.runtime.files.fingerprint import text_fingerprint

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


@pytest.mark.parametrize("stemmer", ["porter", "english", None])
def test_words_are_those_that_bm25s_makes(stemmer):
    import Stemmer

    texts = ["Running shoes, don't run: U.S. cities' 1984!", "ÉCOLE naïve Ирина İstanbul", "", "a the OF"]
    stem = Stemmer.Stemmer(stemmer) if stemmer else None
    expected = bm25s.tokenize(texts, stopwords="en", stemmer=stem, return_ids=False, show_progress=False)
    assert Tokenizer(Options(stemmer=stemmer))(texts) == expected


@pytest.mark.parametrize("language", ["en", "en_plus", "german", "zh", "ko"])
def test_stop_words_are_those_that_bm25s_leaves_out(language):
    expected = bm25s.tokenization.Tokenizer(stopwords=language).stopwords
    assert stop_words(Options(), language) == list(expected)


DOCUMENTS = [
    Passage(id="zh", text="灯塔建于一八七四年，由埃林设计。"),
    Passage(id="ja", text="博物館には古い航海地図が収められている。"),
    Passage(id="th", text="พิพิธภัณฑ์เก็บแผนที่เดินเรือโบราณไว้มากมาย"),
    Passage(id="en", text="The lighthouse of Tokyo (東京都) was built in 1874."),
]


@pytest.mark.parametrize(
    ("query", "found"),
    [("灯塔建于哪一年", ["zh"]), ("博物館には何があるか", ["ja"]), ("พิพิธภัณฑ์เก็บอะไร", ["th"]), ("Where is 東京都?", ["en"])],
)
@pytest.mark.parametrize("on_disk", [False, True])
def test_a_passage_without_spaces_between_words_is_found_by_pairs_of_letters(query, found, on_disk, tmp_path):
    write_records(tmp_path / "passages.jsonl", DOCUMENTS)
    config = RetrieverConfig(passages=tmp_path / "passages.jsonl")
    if on_disk:
        build_index(tmp_path / "passages.jsonl", tmp_path / "index", RetrieverConfig())
        config = RetrieverConfig(index=tmp_path / "index")
    assert [hit.passage.id for hit in search(build_retriever(config), query)] == found


def test_only_a_corpus_without_spaces_between_words_has_another_revision_than_before():
    before = text_fingerprint(["bm25", corpus_hash(PASSAGES), Options().model_dump_json()])
    assert Bm25(PASSAGES).revision == before
    assert Bm25(DOCUMENTS).revision != text_fingerprint(["bm25", corpus_hash(DOCUMENTS), Options().model_dump_json()])


def test_a_word_is_found_in_another_form_of_it():
    passages = [Passage(id="shoes", text="Running shoes"), Passage(id="hats", text="Knitted hats")]
    assert [hit.passage.id for hit in search(Bm25(passages), "a shoe that runs")] == ["shoes"]
    assert search(Bm25(passages, Options(stemmer=None)), "a shoe that runs") == []


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"stemmer": "portre"}, "options.stemmer: no stemmer is called 'portre'. Available: .*porter"),
        ({"stopwords": "klingon"}, "options.stopwords: no stop words are known for 'klingon'. Available: da, de, en, .*zh"),
        ({"k_1": 1.2}, "k_1: unknown key. Did you mean 'k1'?"),
        ({"b": 2}, "options.b: Input should be less than or equal to 1"),
    ],
)
def test_a_wrong_option_says_what_there_is(options, message, tmp_path):
    write_records(tmp_path / "passages.jsonl", PASSAGES)
    with pytest.raises(RecipeError, match=message):
        build_retriever(RetrieverConfig(passages=tmp_path / "passages.jsonl", options=options))


def test_a_large_corpus_is_searched_on_several_threads(monkeypatch):
    monkeypatch.setattr(bm25, "_SEARCHED_AT_ONCE", 0)
    threaded, queries = Bm25(PASSAGES), ["Lyon", "Who directed Dune?", "city", "nothing", ""] * 40

    async def together():
        return await asyncio.gather(*(threaded.search(query, k=2) for query in queries))

    monkeypatch.undo()
    assert asyncio.run(together()) == [search(Bm25(PASSAGES), query, k=2) for query in queries]


def test_a_query_of_a_million_words_is_searched_by_its_first(tmp_path):
    query = "Norway " + "zyxw " * 1_000_000
    assert search(Bm25(PASSAGES), query)[0].passage.id == "oslo"
