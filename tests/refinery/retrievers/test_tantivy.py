import asyncio
import random
from time import sleep

import pytest

pytest.importorskip("tantivy", reason="needs the extra `tantivy`")

from refinery.contract.records import Passage, write_records
from refinery.errors import RecipeError, RetrievalError
from refinery.indexes.build import build_index
from refinery.indexes.update import update_index
from refinery.passages.corpus import Corpus, write_corpus
from refinery.retrievers import tantivy
from refinery.retrievers.base import RetrieverConfig
from refinery.retrievers.bm25 import Bm25
from refinery.retrievers.bm25 import Options as Bm25Options
from refinery.retrievers.search.build import build_retriever

OURS = Bm25Options(k1=1.2, b=0.75, stemmer="english")  # the values that tantivy has, which cannot be set there
K1_PLUS_1 = 2.2  # tantivy keeps this factor of Robertson's formula, Lucene 8 and bm25s leave it out


@pytest.fixture
def source(tmp_path, passages):
    write_records(tmp_path / "passages.jsonl", passages)
    return tmp_path / "passages.jsonl"


def drawn(count, *, most_words=40):
    """Passages of words as rare as words are, some of them empty."""
    rng = random.Random(0)
    words = [f"word{number}" for number in range(300)]
    weights = [1 / (rank + 1) for rank in range(300)]
    return [Passage(id=str(n), title="", text=" ".join(rng.choices(words, weights, k=rng.randrange(most_words)))) for n in range(count)]


def opened(tmp_path, rows, **options):
    write_records(tmp_path / "p.jsonl", rows)
    build_index(tmp_path / "p.jsonl", tmp_path / "index", RetrieverConfig(name="tantivy", options=options))
    return build_retriever(RetrieverConfig(name="tantivy", index=tmp_path / "index"))


def certain(hits):
    """The hits that no rounding can push out of the list."""
    return {hit.passage.id for hit in hits if hit.retrieval_score > hits[-1].retrieval_score * 1.0001}


QUERIES = ["word1 word7", "word250", "word3 word3 word40 word9", "word0", "nothing of it", ""]


def test_short_passages_score_as_by_bm25_but_for_a_factor(tmp_path, search):
    rows = drawn(300)
    engine, ours = opened(tmp_path, rows), Bm25(rows, OURS)
    for query in QUERIES:
        found, expected = search(engine, query, k=20), search(ours, query, k=20)
        assert [hit.retrieval_score for hit in found] == pytest.approx([hit.retrieval_score * K1_PLUS_1 for hit in expected], rel=1e-5)
        assert certain(found) == certain(expected)


def test_its_words_are_those_of_bm25(passages):
    words, ours = tantivy._tokenizer(tantivy.Options(stemmer=None)), Bm25(passages, OURS.model_copy(update={"stemmer": None}))._tokenize
    for text in ("Running SHOES of the cities' 1984, a b foo_bar U.S.A. née", "", "\x00 [A_Response] </s>", "日本語 Ünïcode don't"):
        assert words(text) == ours([text])[0]


def test_memory_and_an_index_find_the_same(tmp_path, search):
    engine = opened(tmp_path, drawn(200))
    in_memory = build_retriever(RetrieverConfig(name="tantivy", passages=tmp_path / "p.jsonl"))
    assert [search(engine, query, k=10) for query in QUERIES] == [search(in_memory, query, k=10) for query in QUERIES]
    assert (engine.revision, engine.corpus_hash) == (in_memory.revision, in_memory.corpus_hash)


def test_equal_scores_keep_the_order_of_the_corpus(tmp_path, search):
    rows = [Passage(id=str(n), text="lyon") for n in range(50)]
    assert [hit.passage.id for hit in search(opened(tmp_path, rows), "lyon", k=3)] == ["0", "1", "2"]


def test_concurrent_searches_find_what_single_ones_do(tmp_path, search):
    engine = opened(tmp_path, drawn(200)).retriever

    async def together():
        return await asyncio.gather(*(engine.search(query, k=5) for query in QUERIES * 20))

    assert asyncio.run(together()) == [search(engine, query, k=5) for query in QUERIES] * 20


def test_a_query_is_words_and_no_syntax(source, search):
    engine = build_retriever(RetrieverConfig(name="tantivy", passages=source))
    for query in ('text:lyon AND ("', "lyon^9 OR -france", "position:[0 TO 9]", "/.*/", "lyon\x00" * 5_000):
        assert {hit.passage.id for hit in search(engine, query)} <= {"lyon", "torvel"}


def test_a_stopped_build_goes_on_after_its_last_commit(tmp_path, search, monkeypatch):
    rows = drawn(100)
    write_corpus(rows, tmp_path, total=100)
    monkeypatch.setattr(tantivy, "_PASSAGES_PER_COMMIT", 30)

    class Stopping(Corpus):
        def __getitem__(self, position):
            if position == 75:
                raise KeyboardInterrupt
            return super().__getitem__(position)

    with pytest.raises(KeyboardInterrupt):
        tantivy.build_index(Stopping(tmp_path), tmp_path, tantivy.Options())
    read = []

    class Noted(Corpus):
        def __getitem__(self, position):
            read.append(position)
            return super().__getitem__(position)

    tantivy.build_index(Noted(tmp_path), tmp_path, tantivy.Options())
    assert read == list(range(60, 100))
    assert tantivy._engine(tantivy.Options()).Index.open(str(tmp_path / "tantivy")).searcher().num_docs == 100


def test_a_file_of_the_engine_that_changed_is_named(source, tmp_path):
    build_index(source, tmp_path / "index", RetrieverConfig(name="tantivy"))
    file, *_ = (tmp_path / "index" / "tantivy").glob("*.idx")
    file.write_bytes(file.read_bytes()[:-1])
    with pytest.raises(RetrievalError, match=rf"tantivy/{file.name}: is missing or has changed"):
        build_retriever(RetrieverConfig(name="tantivy", index=tmp_path / "index"))


def test_an_index_follows_its_passages(source, tmp_path, passages, search):
    build_index(source, tmp_path / "index", RetrieverConfig(name="tantivy", options={"stemmer": None}))
    write_records(source, passages[:2])
    assert update_index(source, tmp_path / "index").manifest.num_passages == 2
    engine = build_retriever(RetrieverConfig(name="tantivy", index=tmp_path / "index"))
    assert [hit.passage.id for hit in search(engine, "Lyon city")] == ["torvel"]


def test_its_folder_is_left_alone(source, tmp_path):
    """The engine's watcher would read an index that took this one's place, and write its lock there while an update removes the folder."""
    build_index(source, tmp_path / "index", RetrieverConfig(name="tantivy"))
    built, folder = tantivy._new_index(tantivy.Options(), tmp_path), tmp_path / "index" / "tantivy"
    read = build_retriever(RetrieverConfig(name="tantivy", index=tmp_path / "index"))
    sleep(0.7)  # its watcher looks twice a second
    for meta in (folder / "meta.json", tmp_path / "meta.json"):
        meta.with_name(".tantivy-meta.lock").unlink()
        meta.write_text(meta.read_text() + " ")
    sleep(0.7)
    assert not [*tmp_path.rglob(".tantivy-meta.lock")]
    del built, read


@pytest.mark.parametrize(
    ("options", "message"),
    [({"stemmer": "klingon"}, "options.stemmer: .*klingon"), ({"stopwords": "klingon"}, "options.stopwords: ")],
)
def test_a_language_that_is_not_known_is_said(source, options, message):
    with pytest.raises(RecipeError, match=message):
        build_retriever(RetrieverConfig(name="tantivy", passages=source, options=options))


def test_hostile_passages_come_back_as_they_were(tmp_path, search):
    texts = ["[A_Response] 42 [EOS]", "</s><|im_end|>\x00", "line\u2028separator\r\n\x85", "word " * 200_000, "x" * 1_000_000, "😀é"]
    rows = [Passage(id=f"id\n{number}", title=text[:40], text=f"needle{number} {text}") for number, text in enumerate(texts)]
    engine = opened(tmp_path, rows)
    assert [search(engine, f"needle{number}")[0].passage for number in range(len(rows))] == rows


def test_no_words_or_no_passage_with_them_is_no_hit(tmp_path, search):
    engine = opened(tmp_path, [Passage(id="empty", text=""), Passage(id="stop", text="the of and")])
    assert search(engine, "the lyon") == []
