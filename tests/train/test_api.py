"""`refinery.train` on a tiny random model."""

import asyncio

import pytest

import refinery
from refinery import RefineryError, Trained
from refinery.contract.records import KnowledgeLabel, write_records

LABELS = [KnowledgeLabel(question_id=str(i), question=f"Who directed film {i}?", label=("know", "unknow")[i % 2]) for i in range(4)]


@pytest.fixture
def recipe(tiny_bases, tmp_path):
    """The values of two steps of training, with rows to score the checkpoint on."""
    write_records(tmp_path / "labels.jsonl", LABELS)
    return {
        "task": "self_knowledge",
        "base": str(tiny_bases["tied"]),
        "data": [tmp_path / "labels.jsonl"],
        "validation": [tmp_path / "labels.jsonl"],
        "output_dir": tmp_path / "run",
        "dtype": "float32",
        "gradient_checkpointing": False,
        "learning_rate": 1e-3,
        "max_steps": 2,
    }


def test_a_checkpoint_comes_with_its_scores(recipe, tmp_path):
    trained = refinery.train(recipe, lora_rank=4)
    assert trained.path == tmp_path / "run"
    assert {"train_loss", "accuracy", "f1"} <= trained.metrics.keys()
    assert (trained.path / "adapter_model.safetensors").exists()


def test_it_runs_inside_a_running_loop_and_beside_one(recipe, tmp_path):
    async def cell() -> tuple[Trained, Trained]:
        in_thread = await asyncio.to_thread(refinery.train, recipe, output_dir=tmp_path / "beside")
        return in_thread, refinery.train(recipe)

    beside, inside = asyncio.run(cell())
    assert beside.metrics["train_loss"] == inside.metrics["train_loss"]


def test_what_was_trained_is_a_role_of_a_loaded_pipeline(recipe, tiny_bases, tmp_path):
    trained = refinery.train(recipe)
    model = {"base": str(tiny_bases["tied"]), "adapters": {"self_knowledge": trained.path}}
    with refinery.load({"decoder": "ra_isf", "llm": model}, retriever={"name": "candidates"}, max_new_tokens=4) as pipeline:
        assert pipeline.recipe.llm.adapters == {"self_knowledge": str(trained.path)}


def test_an_empty_validation_file_is_named_in_a_warning_and_nothing_is_evaluated(recipe, tmp_path, caplog):
    (empty := tmp_path / "validation.jsonl").touch()
    trained = refinery.train(recipe, validation=[empty], eval_steps=1, metric_for_best_model="accuracy")
    assert "accuracy" not in trained.metrics
    (said,) = [record.getMessage() for record in caplog.records if "has no rows" in record.getMessage()]
    assert said.startswith(f"{empty}: has no rows, so the model is not evaluated, and metric_for_best_model cannot choose")


def test_of_several_validation_files_those_with_rows_are_evaluated(recipe, tmp_path):
    (empty := tmp_path / "validation.jsonl").touch()
    assert refinery.train(recipe, validation=[empty, *recipe["validation"]]).metrics["validation_rows"] == len(LABELS)


def test_a_missing_validation_file_is_named_before_training(recipe, tmp_path):
    with pytest.raises(RefineryError, match="absent.jsonl: cannot be read"):
        refinery.train(recipe, validation=["absent.jsonl"])
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"lr": 1}, "train: lr: unknown key."),
        ({"task": "knowledge"}, "train: task: "),
        ({"data": ["absent.jsonl"]}, "absent.jsonl: cannot be read"),
    ],
)
def test_a_wrong_recipe_is_told_in_one_line(recipe, changes, message):
    with pytest.raises(RefineryError) as caught:
        refinery.train(recipe, **changes)
    assert str(caught.value).splitlines()[0].startswith(message)
