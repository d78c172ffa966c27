"""Encoder judges: what the one label hangs on, which parameters move, and that a checkpoint says itself what it is."""

import json

import pytest
import torch
from helpers.family_rows import HOSTILE, ROWS, recipe_values

from refinery.errors import CheckpointError, RecipeError
from refinery.llms.build import ModelConfig, build_llm
from refinery.llms.engine.classifier import ClassifierLLM
from refinery.llms.weights.checkpoint import load_base, load_checkpoint
from refinery.runtime.recipe import build_recipe
from train.families.classifier import build_model, build_trainer, encode_rows, save_model
from train.recipe import TrainRecipe
from train.run import run


@pytest.fixture
def recipe(tiny_encoder, tmp_path):
    def build(task: str = "relevance", **changes) -> TrainRecipe:
        return TrainRecipe.model_validate(recipe_values(tmp_path, task=task, base=tiny_encoder, family="classifier", **changes))

    return build


def logits(model, rows) -> torch.Tensor:
    with torch.inference_mode():
        inputs = ({"input_ids": torch.tensor([r.input_ids]), "token_type_ids": torch.tensor([r.token_type_ids])} for r in rows)
        return torch.cat([model.eval()(**i).logits for i in inputs])


def test_the_label_is_the_only_thing_trained(recipe):
    settings = recipe()
    _, tokenizer = build_model(settings)
    rows, counts = encode_rows(ROWS["relevance"], settings, tokenizer)
    assert counts == {"rows_dropped_overlong": 0}
    assert [row.labels for row in rows[:4]] == [[1], [0], [1], [0]]
    assert tokenizer.decode(rows[0].input_ids) == "[CLS] who directed dune? [SEP] dune dune is a film directed by maria dune. [SEP]"
    second = [i for i, segment in zip(rows[0].input_ids, rows[0].token_type_ids, strict=True) if segment]
    assert tokenizer.decode(second).startswith("dune dune is a film")


def test_a_question_alone_is_one_segment(recipe):
    settings = recipe("self_knowledge")
    _, tokenizer = build_model(settings)
    rows, _ = encode_rows(ROWS["self_knowledge"], settings, tokenizer)
    assert [row.labels for row in rows] == [[1], [0], [1], [0]]
    assert tokenizer.decode(rows[0].input_ids) == "[CLS] who directed dune? [SEP]"


def test_markers_in_a_passage_are_no_markers(recipe):
    settings = recipe()
    _, tokenizer = build_model(settings)
    rows, _ = encode_rows([ROWS["relevance"][0].model_copy(update={"passage": HOSTILE})], settings, tokenizer)
    assert rows[0].input_ids.count(tokenizer.sep_token_id) == 2


def test_the_passage_is_shortened_never_the_question_and_it_is_counted(recipe):
    settings = recipe(max_length=24, overlong="shorten_evidence")
    _, tokenizer = build_model(settings)
    long = ROWS["relevance"][0].model_copy(update={"passage": HOSTILE.model_copy(update={"text": "the quick brown fox " * 40})})
    endless = long.model_copy(update={"question": "Who? " * 40})
    rows, counts = encode_rows([ROWS["relevance"][2], long, endless], settings, tokenizer)
    assert counts == {"rows_dropped_overlong": 1, "rows_shortened": 1}
    assert tokenizer.decode(rows[1].input_ids).startswith("[CLS] who directed dune? [SEP]")
    assert len(rows[1].input_ids) <= 24


@pytest.mark.parametrize(("strategy", "others"), [("full", True), ("lora", False)])
def test_only_the_intended_parameters_move_and_the_checkpoint_is_the_model(recipe, strategy, others):
    settings = recipe(strategy=strategy)
    model, tokenizer = build_model(settings)
    rows, _ = encode_rows(ROWS["relevance"], settings, tokenizer)
    trainer = build_trainer(model, tokenizer, rows, settings)
    before = {name: parameter.detach().clone() for name, parameter in trainer.model.named_parameters()}
    trainer.train()
    moved = {name for name, parameter in trainer.model.named_parameters() if not torch.equal(parameter, before[name])}
    assert any("classifier" in name for name in moved)
    assert any("lora_" not in name and "classifier" not in name for name in moved) == others
    assert any("lora_B" in name for name in moved) != others
    save_model(trainer.model, tokenizer, settings, settings.output_dir)
    loaded, _ = load_checkpoint(str(settings.output_dir))
    assert loaded.config.id2label == {0: "irrelevant", 1: "relevant"}
    torch.testing.assert_close(logits(loaded, rows), logits(trainer.model, rows), rtol=1e-4, atol=1e-5)


def test_the_head_begins_the_same_with_the_same_seed(recipe):
    heads = [build_model(recipe(strategy="full"))[0].classifier.weight for _ in range(2)]
    assert torch.equal(*heads)


def test_accumulated_batches_train_what_one_large_batch_trains(recipe):
    """Loss and gradient: Adam would hide a gradient that is too large by a constant."""
    norms = []
    for batch_size, accumulation in ((8, 1), (2, 4)):
        settings = recipe(strategy="full", per_device_train_batch_size=batch_size, gradient_accumulation_steps=accumulation, max_steps=1)
        model, tokenizer = build_model(settings)
        rows, _ = encode_rows(ROWS["relevance"], settings, tokenizer)
        expected = torch.nn.functional.cross_entropy(logits(model, rows), torch.tensor([row.labels[0] for row in rows]))
        trainer = build_trainer(model, tokenizer, rows, settings)
        trainer.args.logging_steps = 1
        assert trainer.train().training_loss == pytest.approx(float(expected), rel=1e-4)
        norms.append(trainer.state.log_history[0]["grad_norm"])
    assert norms[0] == pytest.approx(norms[1], rel=1e-3)


@pytest.mark.parametrize("strategy", ["full", "lora"])
def test_the_best_checkpoint_by_a_named_score_is_the_one_that_is_kept(recipe, strategy):
    settings = recipe("self_knowledge", strategy=strategy, max_steps=6, learning_rate=5e-2, validation=["x"])
    settings = TrainRecipe.model_validate(
        settings.model_dump() | {"validation": settings.data, "eval_steps": 2, "metric_for_best_model": "accuracy"}
    )
    metrics = run(settings, resume=False)
    history = [json.loads(line) for line in (settings.output_dir / "history.jsonl").read_text().splitlines()]
    scores = {row["step"]: row["eval_accuracy"] for row in history if "eval_accuracy" in row}
    assert list(scores) == [2, 4, 6]
    assert {"eval_loss", "eval_f1", "eval_auc", "eval_ece"} <= next(row for row in history if row["step"] == 2).keys()
    losses = {row["step"]: row["eval_loss"] for row in history if "eval_loss" in row}
    assert metrics["best_step"] == max(scores, key=lambda step: (scores[step], -losses[step]))
    assert metrics["best_score"] == metrics["accuracy"] == max(scores.values())
    assert isinstance(build_llm(ModelConfig(base=str(settings.output_dir))), ClassifierLLM)


def test_a_judge_has_no_more_positions_than_its_base(recipe):
    with pytest.raises(RecipeError, match="has 128 positions \\(got 300\\). Set it to at most 128."):
        build_model(recipe(max_length=300))


def test_an_encoder_is_refused_what_must_be_written(recipe):
    values = recipe().model_dump(mode="json") | {"task": "decomposition"}
    with pytest.raises(RecipeError, match="an encoder predicts labels and cannot write text"):
        build_recipe(values, TrainRecipe, where="recipe.yaml")


def test_a_base_of_another_family_is_named(tiny_t5s):
    with pytest.raises(Exception, match="t5 reads in both directions"):
        load_base(str(tiny_t5s["tied"]), family="causal")


@pytest.fixture
def headless(tiny_encoder, tmp_path):
    """The folders of encoders that lack a layer besides the head: DistilBERT always, BERT where it was only pretrained on masked words."""
    from transformers import BertConfig, BertForMaskedLM, BertTokenizer, DistilBertConfig, DistilBertModel

    tokenizer = BertTokenizer.from_pretrained(tiny_encoder)
    bert = BertForMaskedLM(BertConfig.from_pretrained(tiny_encoder))
    shape = {"dim": 32, "hidden_dim": 64, "n_layers": 2, "n_heads": 2, "max_position_embeddings": 128}
    distil = DistilBertModel(DistilBertConfig(vocab_size=len(tokenizer), **shape))
    for name, model in (("bert", bert), ("distil", distil)):
        model.save_pretrained(tmp_path / name)
        tokenizer.save_pretrained(tmp_path / name)
    return tmp_path


@pytest.mark.parametrize(("name", "layer"), [("bert", "bert.pooler.dense"), ("distil", "pre_classifier")])
def test_an_adapter_holds_the_layers_that_its_base_has_no_weights_of(recipe, headless, name, layer):
    settings = recipe(strategy="lora").model_copy(update={"base": str(headless / name)})
    run(settings, resume=False)
    loaded = [load_checkpoint(str(settings.output_dir))[0].state_dict()[f"{layer}.weight"] for _ in range(2)]
    assert torch.equal(*loaded)


def test_an_adapter_without_such_a_layer_is_refused(recipe, headless):
    settings = recipe(strategy="lora").model_copy(update={"base": str(headless / "bert")})
    run(settings, resume=False)
    path = settings.output_dir / "adapter_config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"modules_to_save": ["classifier", "score"]}))
    with pytest.raises(CheckpointError, match=r"does not hold the layer bert\.pooler\.dense, of which .* has no weights"):
        load_checkpoint(str(settings.output_dir))
