import asyncio

import pytest

pytest.importorskip("sentence_transformers")

from refinery.contract.records import write_records
from refinery.errors import CheckpointError
from refinery.retrievers.base import RetrieverConfig
from refinery.retrievers.search.build import build_retriever


@pytest.fixture
def config(tmp_path, passages, tiny_encoders):
    write_records(tmp_path / "passages.jsonl", passages)
    options = {"over": {"name": "bm25"}, "model": tiny_encoders["cross_encoder"]}
    return lambda **values: RetrieverConfig(name="rerank", passages=tmp_path / "passages.jsonl", options=options | values)


def test_the_pool_is_ordered_by_the_cross_encoders_logits(config, search, tiny_encoders):
    import torch
    from transformers import AutoModelForSequenceClassification, AutoTokenizer

    retriever = build_retriever(config())
    found = search(retriever, "city Lyon film", k=10)
    pool = search(retriever.retriever._retriever, "city Lyon film", k=10)
    assert {hit.passage.id for hit in found} == {hit.passage.id for hit in pool}
    tokenizer = AutoTokenizer.from_pretrained(tiny_encoders["cross_encoder"])
    model = AutoModelForSequenceClassification.from_pretrained(tiny_encoders["cross_encoder"])
    for hit in found:
        pair = tokenizer("city Lyon film", f"{hit.passage.title} {hit.passage.text}", return_tensors="pt", truncation=True)
        with torch.no_grad():
            assert hit.retrieval_score == pytest.approx(float(model(**pair).logits[0, 0]), abs=1e-4)
    assert [hit.retrieval_score for hit in found] == sorted((hit.retrieval_score for hit in found), reverse=True)


def test_only_the_pool_is_looked_at(config, search):
    wide, narrow = build_retriever(config()), build_retriever(config(pool=1))
    assert len(search(wide, "a city Lyon", k=1)) == len(search(narrow, "a city Lyon", k=1)) == 1
    assert wide.revision != narrow.revision


def test_searches_made_together_are_scored_together(config, search):
    retriever = build_retriever(config()).retriever
    alone = {query: search(retriever, query) for query in ("Lyon", "city", "zyxw")}
    passes, predict = [], retriever._cross_encoder._model.predict
    retriever._cross_encoder._model.predict = lambda pairs, **options: passes.append(len(pairs)) or predict(pairs, **options)

    async def ask():
        return await asyncio.gather(*(retriever.search(query, k=3) for query in alone))

    for together, hits in zip(asyncio.run(ask()), alone.values(), strict=True):
        assert [hit.passage for hit in together] == [hit.passage for hit in hits]
    assert len(passes) == 1


def test_a_model_that_is_no_reranker_is_refused(config):
    with pytest.raises(CheckpointError, match="cross-encoder 'no/such': cannot be loaded"):
        build_retriever(config(model="no/such"))
