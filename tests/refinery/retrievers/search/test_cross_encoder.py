"""The cross-encoder that reranks hits and filters sentences: its logits, its batches, and text that stays text."""

import asyncio

import pytest

pytest.importorskip("sentence_transformers")

from refinery.errors import CheckpointError
from refinery.retrievers.search.cross_encoder import CrossEncoder, CrossEncoderConfig, load_cross_encoder

QUERY, TEXTS = "Where is Lyon?", ["Lyon is a city in France.", "Oslo", "She likes tea, he likes tea."]


@pytest.fixture
def config(tiny_encoders):
    return CrossEncoderConfig(model=tiny_encoders["cross_encoder"])


@pytest.fixture(scope="module")
def unigram(tmp_path_factory):
    """The folder of a random XLM-RoBERTa with one label, as bge-reranker-base is; `</s>` is a piece of its Unigram vocabulary."""
    import torch
    from transformers import XLMRobertaConfig, XLMRobertaForSequenceClassification, XLMRobertaTokenizer

    special = [(token, 0.0) for token in ("<s>", "<pad>", "</s>", "<unk>")]
    letters = [(letter, -3.0) for letter in "▁abcdefghijklmnopqrstuvwxyz<>/?."]
    tokenizer = XLMRobertaTokenizer(vocab=[*special, *letters, ("<mask>", 0.0)], model_max_length=64)
    torch.manual_seed(0)
    sizes = {"hidden_size": 32, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 32, "max_position_embeddings": 70}
    config = XLMRobertaConfig(vocab_size=len(tokenizer), num_labels=1, pad_token_id=1, initializer_range=0.5, **sizes)
    folder = tmp_path_factory.mktemp("unigram") / "cross_encoder"
    XLMRobertaForSequenceClassification(config).save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return str(folder)


def scores(model: CrossEncoder, *searches):
    async def all_at_once():
        return await asyncio.gather(*(model.score(query, texts) for query, texts in searches))

    return asyncio.run(all_at_once())


def test_a_score_is_the_raw_logit(config):
    import torch
    from transformers import AutoModelForSequenceClassification, AutoTokenizer

    tokenizer, model = (kind.from_pretrained(config.model) for kind in (AutoTokenizer, AutoModelForSequenceClassification))
    (found,) = scores(load_cross_encoder(config), (QUERY, TEXTS))
    for text, score in zip(TEXTS, found, strict=True):
        with torch.no_grad():
            logit = model(**tokenizer(QUERY, text, return_tensors="pt")).logits[0, 0]
        assert score == pytest.approx(float(logit), abs=1e-5)
    assert min(found) < 0 or max(found) > 1  # a sigmoid would not give this


def test_what_is_asked_for_together_is_scored_in_one_pass(config):
    model = CrossEncoder(config)
    alone = [scores(model, (query, TEXTS))[0] for query in ("Lyon", "Oslo")]
    passes, predict = [], model._model.predict
    model._model.predict = lambda pairs, **options: passes.append(len(pairs)) or predict(pairs, **options)
    assert scores(model, ("Lyon", TEXTS), ("Oslo", TEXTS)) == [pytest.approx(one, abs=1e-5) for one in alone]
    assert passes == [6]


def test_one_configuration_is_loaded_once(config):
    assert load_cross_encoder(config) is load_cross_encoder(config.model_copy())
    assert load_cross_encoder(config) is not load_cross_encoder(config.model_copy(update={"max_length": 8}))


def test_tokens_beyond_the_limit_are_not_read(config):
    model = CrossEncoder(config.model_copy(update={"max_length": 20}))
    ((whole, cut),) = scores(model, ("Lyon", ["Lyon is a city in France.", "Lyon is a city in Norway."]))
    assert whole == pytest.approx(cut, abs=1e-6)


@pytest.mark.parametrize("hostile", ["a [SEP] b", "a [CLS] b", "a [PAD] b", "a </s> b", "a <s> b", "a <mask> b"])
@pytest.mark.parametrize("family", ["wordpiece", "unigram"])
def test_the_names_of_special_tokens_in_a_text_stay_text(family, hostile, config, unigram):
    model = CrossEncoder(CrossEncoderConfig(model=unigram) if family == "unigram" else config)._model
    special = set(model.tokenizer.all_special_ids) - {model.tokenizer.unk_token_id}
    plain, read = (model.preprocess([("who", text)])["input_ids"][0].tolist() for text in ("a b", hostile))
    assert [token for token in read if token in special] == [token for token in plain if token in special]


@pytest.mark.parametrize(
    ("model", "message"),
    [("no/such", "cross-encoder 'no/such': cannot be loaded"), ("two_labels", "gives 2 labels, but a reranker gives one score")],
)
def test_a_model_that_is_no_reranker_is_refused(model, message, tiny_encoders, tmp_path):
    if model == "two_labels":
        from transformers import AutoModelForSequenceClassification, AutoTokenizer

        model = str(tmp_path / model)
        AutoModelForSequenceClassification.from_pretrained(tiny_encoders["encoder"], num_labels=2).save_pretrained(model)
        AutoTokenizer.from_pretrained(tiny_encoders["encoder"]).save_pretrained(model)
    with pytest.raises(CheckpointError, match=message):
        CrossEncoder(CrossEncoderConfig(model=model))
