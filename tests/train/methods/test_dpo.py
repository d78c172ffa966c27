"""DPO on pairs of paths: what counts, what it keeps to, what moves, and that its adapter decodes."""

import json
import math

import pytest
import torch
from helpers.autograd_bytes import kept_by_autograd
from helpers.family_rows import HOSTILE, ROWS, recipe_values

from infer.__main__ import main as infer
from refinery.contract.control_tokens import RQ_RAG, check_manifest
from refinery.contract.records import write_records
from refinery.contract.segments import IGNORED_LABEL
from refinery.errors import RecipeError
from refinery.llms.weights.checkpoint import load_base, load_checkpoint
from refinery.runtime.recipe import build_recipe
from train.launch.launch import Launch
from train.methods.dpo import build_model, build_trainer, encode_rows
from train.planning.memory import estimate
from train.recipe import TrainRecipe
from train.run import run
from train.support import check_support
from train.trainers.preference import PreferenceCollator, build_dataset

BASES = ["tied", "untied"]


@pytest.fixture
def recipe(tiny_bases, tmp_path):
    def values(base: str = "tied", **changes) -> TrainRecipe:
        changes = {"per_device_train_batch_size": 2, "max_length": 200} | changes
        return TrainRecipe.model_validate(recipe_values(tmp_path, task="preference", base=tiny_bases[base], **changes))

    return values


def trainer_of(recipe: TrainRecipe):
    model, tokenizer = build_model(recipe)
    rows, _ = encode_rows(ROWS["preference"], recipe, tokenizer)
    return build_trainer(model, tokenizer, rows, recipe), rows


def batch_of(trainer, rows):
    return PreferenceCollator(trainer.processing_class.pad_token_id)(list(build_dataset(rows)))


def logprobs(model, rows: list) -> list[float]:
    """Of what counts of each row, by a plain forward pass."""
    sums = []
    for row in rows:
        with torch.inference_mode():
            logits = model.eval()(input_ids=torch.tensor([row.input_ids])).logits[0]
        found = torch.log_softmax(logits, dim=-1)
        sums.append(sum(found[i - 1, label].item() for i, label in enumerate(row.labels) if label != IGNORED_LABEL))
    return sums


def sides(rows) -> list:
    return [row.chosen for row in rows] + [row.rejected for row in rows]


def test_only_what_the_model_wrote_counts(recipe):
    trainer, rows = trainer_of(recipe())
    batch = batch_of(trainer, rows)
    counted = [ids[mask.bool()].tolist() for ids, mask in zip(batch["input_ids"], batch["completion_mask"], strict=True)]
    decode = trainer.processing_class.decode
    assert decode(counted[0]) == "[S_Rewritten_Query] director of Dune[EOS][A_Response] Maria Dune[EOS]"
    assert decode(counted[len(rows)]) == "[S_Rewritten_Query] director of Dune[EOS][A_Response] the film Dune[EOS]"


def test_a_passages_control_tokens_are_text_in_both_paths(recipe):
    trainer, rows = trainer_of(recipe())
    answer = trainer.processing_class.convert_tokens_to_ids("[A_Response]")
    assert "[A_Response]" in HOSTILE.text
    assert [row.input_ids.count(answer) for row in sides(rows)] == [1] * len(sides(rows))


@pytest.mark.parametrize("base", BASES)
def test_the_loss_is_the_papers_and_its_reference_stays_the_base(recipe, base):
    trainer, rows = trainer_of(recipe(base, max_steps=3, beta=0.3))
    batch = batch_of(trainer, rows)
    before = logprobs(trainer.model, sides(rows))
    assert trainer._compute_loss(trainer.model.train(), batch, False).item() == pytest.approx(math.log(2), abs=1e-5)
    trainer.train()
    after = logprobs(trainer.model, sides(rows))
    gains = [now - then for now, then in zip(after, before, strict=True)]
    half = len(rows)
    expected = [-math.log(1 / (1 + math.exp(-0.3 * (gains[i] - gains[half + i])))) for i in range(half)]
    assert trainer._compute_loss(trainer.model.eval(), batch, False).item() == pytest.approx(sum(expected) / half, rel=1e-3)
    assert sum(gains[:half]) > sum(gains[half:])


def test_the_right_paths_own_loss_is_added(recipe):
    """Pang et al. 2024, eq. 1, over the tokens of a batch."""
    trainer, rows = trainer_of(recipe(rpo_alpha=0.5))
    chosen = [row.chosen for row in rows]
    tokens = sum(label != IGNORED_LABEL for row in chosen for label in row.labels)
    expected = math.log(2) - 0.5 * sum(logprobs(trainer.model, chosen)) / tokens
    assert trainer._compute_loss(trainer.model.train(), batch_of(trainer, rows), False).item() == pytest.approx(expected, rel=1e-5)


@pytest.mark.parametrize("base", BASES)
def test_a_run_learns_the_pairs_and_its_adapter_is_what_was_trained(recipe, base, tmp_path):
    pairs = tmp_path / "preference.jsonl"
    trained = recipe(base, max_steps=20, validation=[str(pairs)])
    metrics = run(trained, resume=False)
    assert metrics["steps"] == 20
    assert 0 < metrics["train_loss"] < math.log(2)
    assert (metrics["accuracy"], metrics["rows"]) == (1.0, len(ROWS["preference"]))
    assert not (trained.output_dir / "ref").exists()
    model, tokenizer = load_checkpoint(str(trained.output_dir))
    check_manifest(trained.output_dir, tokenizer, needed=RQ_RAG)
    original = load_base(trained.base)[0].get_input_embeddings().weight
    assert torch.equal(model.get_input_embeddings().weight[: len(original)], original)


def test_pairs_are_batched_by_length(recipe):
    trainer, rows = trainer_of(recipe(train_sampling_strategy="group_by_length", max_steps=1))
    trainer.train()
    assert trainer.train_dataset["length"] == [max(len(row.chosen.input_ids), len(row.rejected.input_ids)) for row in rows]


def test_the_adapter_of_two_steps_decodes_trees(recipe, tmp_path):
    trained = recipe(max_steps=2)
    assert math.isfinite(run(trained, resume=False)["train_loss"])
    (tmp_path / "questions.jsonl").write_text(json.dumps({"id": "q", "text": "Who directed Dune?", "answers": ["Maria Dune"]}))
    write_records(tmp_path / "passages.jsonl", [HOSTILE])
    settings = ["options.max_depth=1", "options.max_query_tokens=6", "max_new_tokens=4"]
    where = [f"questions=[{tmp_path}/questions.jsonl]", f"retriever.passages={tmp_path}/passages.jsonl", f"output_dir={tmp_path}/answers"]
    (tmp_path / "infer.yaml").write_text("decoder: rq_rag\n")
    assert infer([str(tmp_path / "infer.yaml"), *where, *settings, f"llm.base={trained.output_dir}"]) == 0
    assert len(json.loads((tmp_path / "answers" / "predictions.jsonl").read_text())["paths"]) == 4


def test_a_pair_is_as_long_as_its_longer_path(recipe):
    trainer, rows = trainer_of(recipe())
    longest = [max(len(row.chosen.input_ids), len(row.rejected.input_ids)) for row in rows]
    _, counts = encode_rows(ROWS["preference"], recipe(max_length=sorted(longest)[1]), trainer.processing_class)
    assert counts == {"rows_dropped_overlong": sum(length > sorted(longest)[1] for length in longest)}


def test_the_plan_counts_what_both_paths_of_a_pair_keep(recipe):
    planned_recipe = recipe(gradient_checkpointing=False, lora_dropout=0.0, dtype="float32")
    trainer, rows = trainer_of(planned_recipe)
    batch = batch_of(trainer, rows[:2])
    kept = kept_by_autograd(trainer.model, lambda: trainer._compute_loss(trainer.model.train(), batch, False))
    planned = estimate(planned_recipe, Launch(1, "none"), length=batch["input_ids"].shape[1])[1].activations
    assert planned == pytest.approx(kept, rel=0.3)


def test_an_overlong_pair_loses_words_of_its_passages(recipe):
    trainer, rows = trainer_of(recipe())
    limit = max(len(row.input_ids) for row in sides(rows)) - 10
    short, counts = encode_rows(ROWS["preference"], recipe(max_length=limit, overlong="shorten_evidence"), trainer.processing_class)
    assert counts["rows_dropped_overlong"] == 0 < counts["rows_shortened"]
    assert max(len(row.input_ids) for row in sides(short)) <= limit
    assert [row.labels.count(IGNORED_LABEL) < len(row.labels) for row in sides(short)]


def test_held_out_pairs_are_scored_while_training(recipe, tmp_path):
    trained = recipe(max_steps=2, validation=[str(tmp_path / "preference.jsonl")], eval_steps=1, metric_for_best_model="accuracy")
    assert run(trained, resume=False)["best_score"] is not None
    history = [json.loads(line) for line in (trained.output_dir / "history.jsonl").read_text().splitlines()]
    assert all({"eval_accuracy", "eval_loss"} <= row.keys() for row in history if row["step"] in (1, 2))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"family": "seq2seq"}, "task: preference with family: seq2seq or classifier: refused"),
        ({"strategy": "full"}, "DPO's reference is the model without its new adapter"),
        ({"packing": True}, "its loss compares whole pairs"),
        ({"beta": 0}, "beta"),
    ],
)
def test_what_dpo_cannot_do_is_refused_in_one_line(tmp_path, changes, message):
    values = {"task": "preference", "base": "x", "data": ["x"], "output_dir": "x", "learning_rate": 1e-5}
    with pytest.raises(RecipeError, match=message):
        build_recipe(values | changes, TrainRecipe, where="r.yaml")


@pytest.mark.parametrize("launch", ["zero3", "fsdp2", "context_parallel"])
def test_a_split_model_is_refused(launch):
    values = {"task": "preference", "base": "x", "data": ["x"], "output_dir": "x", "learning_rate": 1e-5}
    with pytest.raises(RecipeError, match="with the adapter turned off is not tested|trl #4314"):
        check_support(TrainRecipe.model_validate(values), launch={launch})
