"""Passages with a known best answer to each query, and tiny random encoders over their words."""

import asyncio

import pytest

from refinery.contract.records import Passage

PASSAGES = [
    Passage(id="dune", title="Dune", text="Dune is a film that Maria Torvel directed in 1984."),
    Passage(id="torvel", title="Maria Torvel", text="Maria Torvel was born in Lyon."),
    Passage(id="lyon", title="Lyon", text="Lyon is a city in France."),
    Passage(id="oslo", title="Oslo", text="Oslo is a city in Norway."),
]


@pytest.fixture
def passages():
    return PASSAGES


@pytest.fixture
def search():
    """Search once, in an event loop of its own."""
    return lambda retriever, query, *, k=3, question=None: asyncio.run(retriever.search(query, k=k, question=question))


@pytest.fixture(scope="session")
def tiny_encoders(tmp_path_factory):
    """Folders of random BERTs: `encoder`, a bare one, and `cross_encoder`, with one label."""
    pytest.importorskip("sentence_transformers")
    pytest.importorskip("faiss")
    import torch
    from transformers import BertConfig, BertForSequenceClassification, BertModel, BertTokenizerFast

    letters = [chr(code) for code in range(ord("a"), ord("z") + 1)] + list("0123456789.?,'")
    vocabulary = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *letters, *(f"##{letter}" for letter in letters)]
    root = tmp_path_factory.mktemp("encoders")
    tokenizer = BertTokenizerFast(vocab={token: number for number, token in enumerate(vocabulary)}, model_max_length=64)
    sizes = {"hidden_size": 32, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 32, "max_position_embeddings": 64}
    config = BertConfig(vocab_size=len(vocabulary), num_labels=1, initializer_range=0.5, **sizes)
    for name, model_class in (("encoder", BertModel), ("cross_encoder", BertForSequenceClassification)):
        torch.manual_seed(0)
        model_class(config).eval().save_pretrained(root / name)
        tokenizer.save_pretrained(root / name)
    return {name: str(root / name) for name in ("encoder", "cross_encoder")}
