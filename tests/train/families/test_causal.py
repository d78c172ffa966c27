"""Training itself, on tiny random models: what moves, what is saved, what a resumed or a distributed run gives."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch
import yaml
from helpers.family_rows import SHORT_RUN
from transformers import TrainerCallback

from refinery.contract.control_tokens import RQ_RAG, check_manifest
from refinery.contract.records import KnowledgeLabel, Passage, Step, Trajectory, write_records
from refinery.llms.weights.checkpoint import load_base, load_checkpoint, load_with_adapters
from train.families.causal import build_trainer
from train.families.model import build_model, save_model
from train.recipe import TrainRecipe
from train.rows.data import encode_rows, training_records
from train.run import run

PROJECT = Path(__file__).parents[3]
NAMES = ("Dune", "Golden Harbor", "The Iron Raven", "Silent Valley")
ROWS = [
    Trajectory(
        question_id=str(i),
        question=f"Who directed {name}?",
        steps=[
            Step(action=action, text=f"director of film {name}", passages=[Passage(id="1", title=name, text=f"{name} is a film.")]),
            Step(action="answer", text=f"Maria {name}"),
        ],
    )
    for i, name in enumerate(NAMES)
    for action in ("rewrite", "decompose")
]
LABELS = [
    KnowledgeLabel(question_id=str(i), question=f"Who directed {name}?", label=("know", "unknow")[i % 2]) for i, name in enumerate(NAMES)
]


@pytest.fixture(scope="module")
def settings(tiny_bases, tmp_path_factory):
    """The values of a short training recipe over one of the tiny bases, in a folder of its own."""

    def values(base: str, **changes) -> dict:
        folder = tmp_path_factory.mktemp("train")
        write_records(folder / "refinement.jsonl", ROWS)
        write_records(folder / "self_knowledge.jsonl", LABELS)
        task = changes.get("task", "refinement")
        fixed = {
            "task": task,
            "base": str(tiny_bases[base]),
            "data": [str(folder / f"{task}.jsonl")],
            "output_dir": str(folder / "run"),
            "max_steps": 4,
        }
        return SHORT_RUN | fixed | changes

    return values


def trainer_of(recipe: TrainRecipe):
    model, tokenizer = build_model(recipe)
    rows, _ = encode_rows(training_records(recipe), recipe, tokenizer)
    return build_trainer(model, tokenizer, rows, recipe), rows


def logits(model, rows) -> list[torch.Tensor]:
    with torch.inference_mode():
        return [model.eval()(input_ids=torch.tensor([row.input_ids])).logits for row in rows]


def assert_close(ours: list[torch.Tensor], theirs: list[torch.Tensor]) -> None:
    for one, other in zip(ours, theirs, strict=True):
        torch.testing.assert_close(one[..., :1864], other[..., :1864], rtol=1e-4, atol=1e-4)


@pytest.fixture(scope="module", params=["tied", "untied"])
def trained(request, settings):
    """A LoRA run on one base: its recipe, rows, the model in memory, and that model's parameters before training."""
    recipe = TrainRecipe.model_validate(settings(request.param))
    trainer, rows = trainer_of(recipe)
    before = {name: parameter.detach().clone() for name, parameter in trainer.model.named_parameters()}
    trainer.train()
    save_model(trainer.model, trainer.processing_class, recipe, recipe.output_dir)
    return recipe, rows, trainer.model, before


def test_only_the_adapter_and_the_new_rows_move(trained):
    _, _, model, before = trained
    moved = {name for name, parameter in model.named_parameters() if not torch.equal(parameter, before[name])}
    assert any("lora_B" in name for name in moved)
    assert any("trainable_tokens_delta" in name for name in moved)
    assert all("lora_" in name or "trainable_tokens_delta" in name for name in moved)


def test_the_bases_token_rows_stay_bit_equal(trained):
    recipe, _, _, _ = trained
    base, _ = load_base(recipe.base)
    merged, _ = load_checkpoint(str(recipe.output_dir))
    assert torch.equal(merged.get_input_embeddings().weight[:1856], base.get_input_embeddings().weight)
    assert torch.equal(merged.get_output_embeddings().weight[:1856], base.get_output_embeddings().weight)


@pytest.mark.parametrize("token", ["[A_Response]", "[S_Rewritten_Query]", "[EOS]"])
def test_the_control_tokens_rows_are_trained_on_both_sides(trained, token):
    recipe, _, _, _ = trained
    untrained, tokenizer = build_model(recipe.model_copy(update={"strategy": "full"}))
    merged, _ = load_checkpoint(str(recipe.output_dir))
    row = tokenizer.convert_tokens_to_ids(token)
    assert not torch.equal(merged.get_input_embeddings().weight[row], untrained.get_input_embeddings().weight[row])
    assert not torch.equal(merged.get_output_embeddings().weight[row], untrained.get_output_embeddings().weight[row])


def test_a_checkpoint_loaded_on_the_unextended_base_is_the_trained_model(trained):
    recipe, rows, model, _ = trained
    loaded, tokenizer = load_checkpoint(str(recipe.output_dir))
    check_manifest(recipe.output_dir, tokenizer, needed=RQ_RAG)
    assert_close(logits(loaded, rows), logits(model, rows))


def test_the_merged_model_equals_the_adapter(trained):
    recipe, rows, _, _ = trained
    merged, _ = load_checkpoint(str(recipe.output_dir))
    adapted, _ = load_with_adapters(recipe.base, {"refinement": str(recipe.output_dir)})
    assert_close(logits(merged, rows), logits(adapted, rows))


def test_full_training_is_saved_whole(settings):
    recipe = TrainRecipe.model_validate(settings("tied", strategy="full"))
    trainer, rows = trainer_of(recipe)
    before = logits(trainer.model, rows)
    trainer.train()
    save_model(trainer.model, trainer.processing_class, recipe, recipe.output_dir)
    loaded, _ = load_checkpoint(str(recipe.output_dir))
    assert loaded.config.use_cache
    assert_close(logits(loaded, rows), logits(trainer.model, rows))
    assert not torch.allclose(logits(loaded, rows)[0], before[0], atol=1e-2)


@pytest.mark.parametrize("base", ["tied", "untied"])
def test_the_loss_is_the_mean_over_trained_tokens(settings, base):
    """TRL's fused head reads `lm_head` itself; with trained token rows it must still see them."""
    recipe = TrainRecipe.model_validate(settings(base, max_steps=1, per_device_train_batch_size=len(ROWS)))
    trainer, rows = trainer_of(recipe)
    predicted = torch.cat([scores[0, :-1] for scores in logits(trainer.model, rows)])
    wanted = torch.tensor([label for row in rows for label in row.labels[1:]])
    expected = torch.nn.functional.cross_entropy(predicted, wanted, ignore_index=-100)
    assert trainer.train().training_loss == pytest.approx(float(expected), rel=1e-4)


def test_accumulated_batches_train_what_one_large_batch_trains(settings):
    losses, weights = [], []
    for batch_size, accumulation in ((8, 1), (2, 4)):
        changes = {"per_device_train_batch_size": batch_size, "gradient_accumulation_steps": accumulation, "max_steps": 2}
        trainer, _ = trainer_of(TrainRecipe.model_validate(settings("untied", **changes)))
        losses.append(trainer.train().training_loss)
        weights.append(torch.cat([parameter.flatten() for parameter in trainer.model.parameters() if parameter.requires_grad]))
    assert losses[0] == pytest.approx(losses[1], rel=1e-4)
    torch.testing.assert_close(weights[0], weights[1], rtol=1e-3, atol=1e-4)


class StopAfter(TrainerCallback):
    """Ends training after some steps, as a preemption does."""

    def __init__(self, steps: int) -> None:
        self.steps = steps

    def on_step_end(self, args, state, control, **_):
        control.should_training_stop = state.global_step == self.steps


def test_a_resumed_run_equals_a_straight_one(settings):
    values = settings("untied", max_steps=6, save_steps=2, lora_dropout=0.1)
    straight = TrainRecipe.model_validate(values | {"output_dir": values["output_dir"] + "_straight"})
    stopped = TrainRecipe.model_validate(values)
    run(straight, resume=False)
    trainer, _ = trainer_of(stopped)
    trainer.add_callback(StopAfter(3))
    trainer.train()
    # A checkpoint that the interruption cut short has no trainer_state.json yet.
    (stopped.output_dir / "checkpoints" / "checkpoint-5").mkdir()
    assert run(stopped, resume=True)["steps"] == 6
    for one, other in zip(*(load_checkpoint(str(r.output_dir))[0].parameters() for r in (straight, stopped)), strict=True):
        assert torch.equal(one, other)


def test_a_run_says_what_it_trained_on(settings):
    values = settings("tied", max_length=110)
    long = ROWS[0].model_copy(update={"question": "Who? " * 200})
    write_records(values["data"][0], [*ROWS, long])
    metrics = run(TrainRecipe.model_validate(values), resume=False)
    assert (metrics["rows"], metrics["rows_dropped_overlong"], metrics["steps"]) == (8, 1, 4)
    assert 0 < metrics["tokens_trained"] < metrics["tokens"]
    assert json.loads(Path(values["output_dir"], "metrics.json").read_text()) == metrics


def test_a_sub_model_learns_its_labels_and_is_evaluated_from_disk(settings):
    values = settings("tied", task="self_knowledge", strategy="full", max_steps=60)
    metrics = run(TrainRecipe.model_validate(values | {"validation": values["data"]}), resume=False)
    assert (metrics["validation_rows"], metrics["accuracy"], metrics["f1"]) == (4, 1.0, 1.0)


@pytest.mark.slow
def test_two_processes_train_what_one_trains_into_one_run(settings):
    alone = settings("tied", max_steps=2, per_device_train_batch_size=8)
    loss = run(TrainRecipe.model_validate(alone), resume=False)["train_loss"]
    values = settings("tied", max_steps=2, per_device_train_batch_size=4)
    recipe = Path(values["output_dir"]).with_suffix(".yaml")
    recipe.write_text(yaml.safe_dump(values))
    launch = ["-m", "accelerate.commands.launch", "--config_file", "accelerate_configs/ddp_cpu.yaml", "--main_process_port", "0"]
    done = subprocess.run(
        [sys.executable, *launch, "-m", "train", str(recipe)], cwd=PROJECT, env=os.environ, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr[-2000:]
    assert " after 2 steps" in done.stdout
    metrics = json.loads(Path(values["output_dir"], "metrics.json").read_text())
    assert metrics["train_loss"] == pytest.approx(loss, rel=1e-3)
    assert {path.name for path in recipe.parent.iterdir()} == {"run", "run.yaml", "refinement.jsonl", "self_knowledge.jsonl"}
    for one, other in zip(*(load_checkpoint(v["output_dir"])[0].parameters() for v in (alone, values)), strict=True):
        torch.testing.assert_close(one, other, rtol=1e-4, atol=1e-5)
