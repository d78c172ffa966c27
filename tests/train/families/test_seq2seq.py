"""T5: which tokens carry the loss, which parameters move, and that a checkpoint loaded from disk is the trained model."""

import pytest
import torch
from helpers.family_rows import ROWS, recipe_values

from refinery.contract.control_tokens import RQ_RAG
from refinery.contract.segments import IGNORED_LABEL
from refinery.contract.sub_questions import parse_sub_questions
from refinery.llms.weights.checkpoint import load_base, load_checkpoint
from refinery.tasks.self_knowledge import knowledge_prompt
from train.families.seq2seq import build_model, build_trainer, encode_rows, save_model
from train.recipe import TrainRecipe
from train.run import run


@pytest.fixture
def recipe(tiny_t5s, tmp_path):
    def build(task: str, base: str = "untied", **changes) -> TrainRecipe:
        return TrainRecipe.model_validate(recipe_values(tmp_path, task=task, base=tiny_t5s[base], family="seq2seq", **changes))

    return build


def logits(model, rows) -> torch.Tensor:
    with torch.inference_mode():
        return torch.cat([model.eval()(input_ids=torch.tensor([r.input_ids]), labels=torch.tensor([r.labels])).logits[0] for r in rows])


def trained(recipe):
    model, tokenizer = build_model(recipe)
    rows, _ = encode_rows(ROWS[recipe.task], recipe, tokenizer)
    trainer = build_trainer(model, tokenizer, rows, recipe)
    before = {name: parameter.detach().clone() for name, parameter in trainer.model.named_parameters()}
    trainer.train()
    moved = {name for name, parameter in trainer.model.named_parameters() if not torch.equal(parameter, before[name])}
    return trainer.model, tokenizer, rows, before, moved


@pytest.mark.parametrize(
    ("task", "targets"),
    [
        ("self_knowledge", ["know</s>", "unknow</s>"]),
        ("relevance", ["relevant</s>", "irrelevant</s>"]),
        ("decomposition", ["1. Who directed Dune? 2. When was #1 born?</s>"]),
    ],
)
def test_the_decoder_is_trained_on_the_label_and_its_end(recipe, task, targets):
    settings = recipe(task)
    _, tokenizer = build_model(settings)
    rows, _ = encode_rows(ROWS[task], settings, tokenizer)
    assert [tokenizer.decode(row.labels) for row in rows[: len(targets)]] == targets
    assert all(IGNORED_LABEL not in row.labels for row in rows)
    if task == "self_knowledge":
        read = tokenizer.decode(rows[0].input_ids)
        assert read == f"{' '.join(knowledge_prompt(ROWS[task][0].question).split())}</s>"
    if task == "decomposition":
        assert parse_sub_questions(tokenizer.decode(rows[0].labels, skip_special_tokens=True)) == ROWS[task][0].sub_questions


def test_a_step_of_a_trajectory_is_a_row_and_evidence_is_only_read(recipe):
    settings = recipe("refinement", max_length=512)
    _, tokenizer = build_model(settings)
    rows, _ = encode_rows(ROWS["refinement"], settings, tokenizer)
    assert len(rows) == 8
    for query, answer in zip(rows[::2], rows[1::2], strict=True):
        assert tokenizer.decode(query.labels).startswith("[S_Rewritten_Query]")
        assert query.kinds[0] == query.kinds[-1] == query.kinds[-2] == "control_token"
        assert set(query.kinds[1:-2]) == {"query"}
        assert set(answer.kinds[1:-2]) == {"answer"}
        hostile = {tokenizer.convert_tokens_to_ids(token.token) for token in RQ_RAG}
        opened = [tokenizer.convert_ids_to_tokens(i) for i in answer.input_ids if i in hostile]
        assert opened == ["[S_Rewritten_Query]", "[EOS]", "[R_Evidences]", "[/R_Evidences]"]
        assert "42" in tokenizer.decode(answer.input_ids)
        assert answer.input_ids.count(tokenizer.eos_token_id) == 3 == query.input_ids.count(tokenizer.eos_token_id)  # chat marks, end


def test_a_target_that_the_tokenizer_cannot_write_is_dropped_and_counted(recipe):
    settings = recipe("decomposition")
    _, tokenizer = build_model(settings)
    strange = ROWS["decomposition"][0].model_copy(update={"sub_questions": ["{Who}?"]})
    rows, counts = encode_rows([*ROWS["decomposition"], strange], settings, tokenizer)
    assert (len(rows), counts) == (4, {"rows_dropped_overlong": 0, "rows_dropped_unwritable": 1, "unwritable_questions": ["0"]})


@pytest.mark.parametrize("base", ["tied", "untied"])
def test_an_untrained_adapter_leaves_the_bases_head_alone(recipe, base):
    """PEFT believes transformers' claim that every T5 is tied, and would write input rows over head rows (peft 0.21)."""
    settings = recipe("refinement", base)
    original, _ = load_base(settings.base)
    model, tokenizer = build_model(settings)
    rows, _ = encode_rows(ROWS["refinement"], settings.model_copy(update={"max_length": 512}), tokenizer)
    known = original.get_input_embeddings().weight.shape[0] - len(RQ_RAG)
    plain = [row for row in rows if max(row.input_ids + row.labels) < known][:2] or rows[:1]
    ids = torch.tensor([[i for i in plain[0].input_ids if i < len(tokenizer) - len(RQ_RAG)]])
    with torch.inference_mode():
        ours, theirs = (m.eval()(input_ids=ids, decoder_input_ids=ids[:, :4]).logits for m in (model, original))
    words = len(tokenizer) - len(RQ_RAG)
    assert torch.equal(ours[..., :words], theirs[..., :words])


@pytest.mark.parametrize("base", ["tied", "untied"])
def test_lora_moves_the_adapter_and_the_control_tokens_rows_only(recipe, base):
    settings = recipe("refinement", base, max_length=512)
    model, _, rows, _, moved = trained(settings)
    assert any("lora_B" in name for name in moved)
    assert sum("trainable_tokens_delta" in name for name in moved) == (1 if base == "tied" else 2)  # on the encoder's side too
    assert all("lora_" in name or "trainable_tokens_delta" in name for name in moved)
    save_model(model, build_model(settings)[1], settings, settings.output_dir)
    loaded, tokenizer = load_checkpoint(str(settings.output_dir))
    torch.testing.assert_close(logits(loaded, rows)[:, : len(tokenizer)], logits(model, rows)[:, : len(tokenizer)], rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("base", ["tied", "untied"])
def test_full_training_is_saved_with_its_own_head(recipe, base):
    settings = recipe("self_knowledge", base, strategy="full")
    model, tokenizer, rows, before, moved = trained(settings)
    assert {name for name in before if "lm_head" in name or "shared" in name} <= moved
    save_model(model, tokenizer, settings, settings.output_dir)
    loaded, _ = load_checkpoint(str(settings.output_dir))
    assert (loaded.lm_head.weight is loaded.shared.weight) == (base == "tied")
    torch.testing.assert_close(logits(loaded, rows), logits(model, rows), rtol=1e-5, atol=1e-5)


def test_the_loss_is_the_mean_over_target_tokens_however_batches_are_cut(recipe):
    norms = []
    for batch_size, accumulation in ((4, 1), (1, 4)):
        changes = {
            "per_device_train_batch_size": batch_size,
            "gradient_accumulation_steps": accumulation,
            "max_steps": 1,
            "strategy": "full",
        }
        settings = recipe("decomposition", **changes)
        model, tokenizer = build_model(settings)
        rows, _ = encode_rows(ROWS["decomposition"], settings, tokenizer)
        targets = torch.tensor([label for row in rows for label in row.labels])
        expected = torch.nn.functional.cross_entropy(logits(model, rows), targets)
        trainer = build_trainer(model, tokenizer, rows, settings)
        trainer.args.logging_steps = 1
        assert trainer.train().training_loss == pytest.approx(float(expected), rel=1e-4)
        norms.append(trainer.state.log_history[0]["grad_norm"])
    assert norms[0] == pytest.approx(norms[1], rel=1e-3)


def test_a_sub_model_learns_its_labels_and_is_evaluated_from_disk(recipe):
    settings = recipe("self_knowledge", strategy="full", max_steps=100, train_sampling_strategy="group_by_length", learning_rate=5e-3)
    settings = settings.model_copy(update={"validation": settings.data})
    metrics = run(settings, resume=False)
    assert (metrics["rows"], metrics["validation_rows"], metrics["accuracy"], metrics["auc"]) == (4, 4, 1.0, 1.0)
    assert metrics["tokens_trained"] > metrics["rows"]
