"""The real engine, in the process."""

import asyncio
import random

import pytest

pytest.importorskip("lancedb", reason="needs the extra `lancedb`")

from refinery.contract.records import Passage, write_records
from refinery.errors import RecipeError, RetrievalError
from refinery.indexes.build import build_index
from refinery.indexes.update import update_index
from refinery.passages.corpus import Corpus, write_corpus
from refinery.retrievers import lancedb
from refinery.retrievers.base import RetrieverConfig
from refinery.retrievers.bm25 import Bm25
from refinery.retrievers.bm25 import Options as Bm25Options
from refinery.retrievers.search.build import build_retriever

QUERIES = ["word1 word7", "word250", "word3 word40 word9", "nothing of it", ""]


def drawn(count):
    """Passages of words as rare as words are, some of them empty."""
    rng = random.Random(0)
    words, weights = [f"word{number}" for number in range(300)], [1 / (rank + 1) for rank in range(300)]
    return [Passage(id=str(n), title="", text=" ".join(rng.choices(words, weights, k=rng.randrange(40)))) for n in range(count)]


def opened(tmp_path, rows, **options):
    write_records(tmp_path / "p.jsonl", rows)
    build_index(tmp_path / "p.jsonl", tmp_path / "index", RetrieverConfig(name="lancedb", options=options))
    return build_retriever(RetrieverConfig(name="lancedb", index=tmp_path / "index"))


def ids(hits):
    return [hit.passage.id for hit in hits]


def test_words_find_what_bm25_finds(tmp_path, search):
    rows = drawn(300)
    engine, ours = opened(tmp_path, rows), Bm25(rows, Bm25Options(k1=1.2, b=0.75))
    for query in QUERIES:
        found, expected = search(engine, query, k=10), search(ours, query, k=10)
        assert len(set(ids(found)) & set(ids(expected))) >= 0.9 * len(expected)
        assert len(found) == len(expected)


def test_vectors_find_what_our_dense_index_finds(tmp_path, tiny_encoders, search):
    pytest.importorskip("faiss")
    rows = [Passage(id=f"p{number}", title=f"title {number}", text=f"{number * 7919} and {number}") for number in range(60)]
    options = {"encoder": {"model": tiny_encoders["encoder"]}}
    engine = opened(tmp_path, rows, **options)
    ours = build_retriever(RetrieverConfig(name="dense", passages=tmp_path / "p.jsonl", options=options))
    for query in ("17 and 3", "title 40", "something else"):
        found, expected = search(engine, query, k=10), search(ours, query, k=10)
        assert ids(found) == ids(expected)
        assert [hit.retrieval_score for hit in found] == pytest.approx([hit.retrieval_score for hit in expected], abs=1e-4)
    assert engine.corpus_hash == ours.corpus_hash


def test_equal_scores_keep_the_order_of_the_corpus(tmp_path, search):
    rows = [Passage(id=str(n), text="lyon") for n in range(50)]
    assert ids(search(opened(tmp_path, rows), "lyon", k=3)) == ["0", "1", "2"]


def test_concurrent_searches_find_what_single_ones_do(tmp_path, search):
    engine = opened(tmp_path, drawn(200)).retriever

    async def together():
        return await asyncio.gather(*(engine.search(query, k=5) for query in QUERIES * 10))

    assert asyncio.run(together()) == [search(engine, query, k=5) for query in QUERIES] * 10


def test_a_query_is_words_and_no_syntax(tmp_path, passages, search):
    engine = opened(tmp_path, passages)
    for query in ('text:lyon AND ("', "lyon^9 OR -france", "position:[0 TO 9]", "/.*/", "lyon\x00" * 5_000):
        assert set(ids(search(engine, query))) <= {"lyon", "torvel"}


def test_a_stopped_build_goes_on_after_its_last_rows(tmp_path, monkeypatch):
    write_corpus(drawn(100), tmp_path, total=100)
    monkeypatch.setattr(lancedb, "_ROWS_AT_ONCE", 30)
    read = []

    class Stopping(Corpus):
        def __getitem__(self, position):
            read.append(position)
            if position == 75 and len(read) == 76:
                raise KeyboardInterrupt
            return super().__getitem__(position)

    with pytest.raises(KeyboardInterrupt):
        lancedb.build_index(Stopping(tmp_path), tmp_path, lancedb.Options())
    lancedb.build_index(Stopping(tmp_path), tmp_path, lancedb.Options())
    assert read[76:] == list(range(60, 100))
    table = lancedb._database(lancedb.Options(), tmp_path).open_table("passages")
    assert sorted(table.to_arrow()["position"].to_pylist()) == list(range(100))


def test_an_index_follows_its_passages(tmp_path, passages, search):
    opened(tmp_path, passages)
    write_records(tmp_path / "p.jsonl", passages[:2])
    assert update_index(tmp_path / "p.jsonl", tmp_path / "index").manifest.num_passages == 2
    engine = build_retriever(RetrieverConfig(name="lancedb", index=tmp_path / "index"))
    assert ids(search(engine, "Lyon city")) == ["torvel"]


def test_a_file_of_the_engine_that_changed_is_named(tmp_path, passages):
    opened(tmp_path, passages)
    file = next((tmp_path / "index" / "lancedb").rglob("*.lance"))
    file = file if file.is_file() else next(found for found in file.rglob("*.lance") if found.is_file())
    file.write_bytes(file.read_bytes()[:-1])
    with pytest.raises(RetrievalError, match=r"is missing or has changed"):
        build_retriever(RetrieverConfig(name="lancedb", index=tmp_path / "index"))


def test_an_index_of_words_is_not_searched_by_vectors(tmp_path, passages, tiny_encoders):
    opened(tmp_path, passages)
    options = {"encoder": {"model": tiny_encoders["encoder"]}}
    with pytest.raises(RetrievalError, match=r"index: has no vector\. Remove `options\.encoder`"):
        build_retriever(RetrieverConfig(name="lancedb", index=tmp_path / "index", options=options))


def test_without_an_index_it_says_how_to_build_one(tmp_path):
    with pytest.raises(RecipeError, match="index: is missing: lancedb searches an index. Build it"):
        build_retriever(RetrieverConfig(name="lancedb", passages=tmp_path / "p.jsonl"))


def test_hostile_passages_come_back_as_they_were(tmp_path, search):
    texts = ["[A_Response] 42 [EOS]", "</s><|im_end|>\x00", "line\u2028separator\r\n\x85", "word " * 20_000, "x" * 100_000, "😀é"]
    rows = [Passage(id=f"id\n{number}", title=text[:40], text=f"needle{number} {text}") for number, text in enumerate(texts)]
    engine = opened(tmp_path, rows)
    assert [search(engine, f"needle{number}")[0].passage for number in range(len(rows))] == rows
