import pytest

from refinery.contract.records import Passage, write_records
from refinery.errors import RecipeError, RetrievalError
from refinery.retrievers.base import Retriever, RetrieverConfig
from refinery.retrievers.fake import FakeRetriever
from refinery.retrievers.hybrid import Hybrid, Options
from refinery.retrievers.search.build import build_retriever


def fused(*rankings, **options):
    found = [FakeRetriever(lambda query, ids=ids: [Passage(id=id, text=id) for id in ids]) for ids in rankings]
    return Hybrid(found, Options.model_validate({"of": [{}, {}], **options}))


def test_a_score_is_the_sum_of_reciprocal_ranks(search):
    hits = search(fused("ab", "bc"), "q")
    assert [hit.passage.id for hit in hits] == ["b", "a", "c"]
    assert [hit.retrieval_score for hit in hits] == pytest.approx([1 / 62 + 1 / 61, 1 / 61, 1 / 62])


def test_of_equal_scores_the_first_retrievers_hit_comes_first(search):
    assert [hit.passage.id for hit in search(fused("a", "b"), "q")] == ["a", "b"]


def test_only_the_pool_of_each_is_joined(search):
    assert [hit.passage.id for hit in search(fused("abcd", "dcba", pool=2), "q", k=2)] == ["a", "d"]


def test_parts_search_the_corpus_of_the_whole(tmp_path, search, passages):
    write_records(tmp_path / "p.jsonl", passages)
    parts = [{"name": "bm25"}, {"name": "bm25", "options": {"stemmer": None}}]
    retriever = build_retriever(RetrieverConfig(name="hybrid", passages=tmp_path / "p.jsonl", options={"of": parts}))
    assert search(retriever, "Norway")[0].passage.id == "oslo"
    assert retriever.corpus_hash == build_retriever(RetrieverConfig(passages=tmp_path / "p.jsonl")).corpus_hash
    assert retriever.revision not in {None, build_retriever(RetrieverConfig(passages=tmp_path / "p.jsonl")).revision}


def test_a_part_that_fails_fails_the_search(search):
    class Broken(Retriever):
        async def search(self, query, *, k, question=None):
            raise RetrievalError("down")

    with pytest.raises(RetrievalError, match="down"):
        search(Hybrid([Broken(), Broken()], Options.model_validate({"of": [{}, {}]})), "q")


def test_one_retriever_is_not_a_hybrid():
    with pytest.raises(RecipeError, match="options.of: List should have at least 2 items"):
        build_retriever(RetrieverConfig(name="hybrid", options={"of": [{}]}))
