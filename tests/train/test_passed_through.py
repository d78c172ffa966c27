"""Keys that TRL, PEFT and transformers already have: they arrive there, and combinations that do not work are refused."""

import json

import pytest

from refinery.contract.records import KnowledgeLabel, write_records
from refinery.errors import RecipeError
from train.launch.launch import launch_from_env
from train.method import load_family
from train.planning.memory import estimate
from train.recipe import TrainRecipe
from train.rows.data import training_records
from train.run import run
from train.trainers.arguments import trainer_arguments, use_loraplus


def rows(name: str, count: int) -> list[KnowledgeLabel]:
    return [
        KnowledgeLabel(question_id=f"{name}{n}", question=f"Who directed {name} {n}?", label="know" if n % 2 else "unknow")
        for n in range(count)
    ]


@pytest.fixture
def recipe(tmp_path, tiny_bases):
    """A recipe over two files of 4 and 10 rows; the values given replace or extend its own."""
    write_records(tmp_path / "own.jsonl", rows("own", 4))
    write_records(tmp_path / "teacher.jsonl", rows("teacher", 10))

    def build(**values) -> TrainRecipe:
        given = {
            "task": "self_knowledge",
            "base": str(tiny_bases["tied"]),
            "data": [tmp_path / "own.jsonl", tmp_path / "teacher.jsonl"],
            "output_dir": tmp_path / "model",
            "learning_rate": 1e-3,
            "dtype": "float32",
            "max_length": 128,
            "per_device_train_batch_size": 2,
            "gradient_accumulation_steps": 1,
            "gradient_checkpointing": False,
        }
        return TrainRecipe.model_validate(given | values)

    return build


def ids(recipe: TrainRecipe) -> list[str]:
    return [record.question_id for record in training_records(recipe)]


@pytest.mark.parametrize(("weights", "own", "teacher"), [([], 4, 10), ([1, 0.5], 4, 5), ([2, 0.1], 8, 1), ([1.5, 1], 6, 10)])
def test_a_files_weight_is_how_often_its_rows_are_seen(recipe, weights, own, teacher):
    found = ids(recipe(data_weights=weights))
    assert [sum(id.startswith(name) for id in found) for name in ("own", "teacher")] == [own, teacher]


def test_the_seed_draws_the_share_and_no_row_is_drawn_twice(recipe):
    half = [ids(recipe(data_weights=[1, 0.5], seed=seed)) for seed in (1, 1, 2)]
    assert half[0] == half[1] != half[2]
    assert len(set(half[0])) == 9


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"data_weights": [1]}, "has 1 weights for 2 files of `data`"),
        ({"early_stopping_patience": 2}, "early stopping needs a score to watch: set `metric_for_best_model`"),
        ({"strategy": "full", "use_rslora": True}, "with strategy: full: refused, because they configure an adapter"),
        ({"loraplus_lr_ratio": 16, "optim": "sgd"}, "its learning rates are those of AdamW"),
        ({"torch_compile": True, "packing": True}, "is not tested under the compiler"),
        ({"optim": "adam"}, "Input should be 'adamw_torch'"),
    ],
)
def test_what_does_not_go_together_is_refused(recipe, values, message):
    with pytest.raises((ValueError, RecipeError), match=message):
        recipe(**values)


def test_the_trainer_is_given_what_the_recipe_says(recipe):
    arguments = trainer_arguments(recipe(optim="sgd", max_grad_norm=0.3, torch_compile=True))
    assert (arguments["optim"], arguments["max_grad_norm"], arguments["torch_compile"]) == ("sgd", 0.3, True)


def test_only_the_named_layers_get_an_adapter_scaled_as_named(recipe):
    own = recipe(target_modules=["q_proj", "v_proj"], use_rslora=True, lora_rank=16, lora_alpha=8)
    model, _ = load_family(own).build_model(own)
    adapted = {name.split(".")[-4] for name, _ in model.named_parameters() if "lora_A" in name}
    assert adapted == {"q_proj", "v_proj"}
    assert {module.scaling["default"] for module in model.modules() if hasattr(module, "lora_A")} == {2.0}


def test_layers_that_the_base_lacks_are_named(recipe):
    own = recipe(target_modules=["query"])
    with pytest.raises(RecipeError, match="target_modules: .* has no layers"):
        load_family(own).build_model(own)


def test_lora_plus_trains_b_faster_and_nothing_is_left_out(recipe):
    own = recipe(loraplus_lr_ratio=16)
    family = load_family(own)
    model, tokenizer = family.build_model(own)
    trainer = family.build_trainer(model, tokenizer, family.encode_rows(training_records(own), own, tokenizer)[0], own)
    use_loraplus(trainer, own)
    names = {id(parameter): name for name, parameter in model.named_parameters()}
    rates = {names[id(parameter)]: group["lr"] for group in trainer.optimizer.param_groups for parameter in group["params"]}
    assert rates.keys() == {name for name, parameter in model.named_parameters() if parameter.requires_grad}
    assert {rate for name, rate in rates.items() if "lora_B" in name} == {16e-3}
    assert {rate for name, rate in rates.items() if "lora_A" in name} == {1e-3}


def test_the_plan_counts_the_optimizer_that_is_named(recipe):
    states = {optim: estimate(recipe(optim=optim), launch_from_env(), length=64)[1].optimizer for optim in ("adamw_torch", "sgd")}
    assert states["adamw_torch"] > states["sgd"] == 0


def test_training_stops_when_the_score_does(recipe, tmp_path):
    write_records(tmp_path / "held.jsonl", rows("held", 2))
    stops = {"eval_steps": 1, "metric_for_best_model": "accuracy", "early_stopping_patience": 1, "learning_rate": 1e-9}
    metrics = run(recipe(validation=[tmp_path / "held.jsonl"], epochs=3, **stops), resume=False)
    assert metrics["steps"] < 21
    assert json.loads((tmp_path / "model" / "metrics.json").read_text())["best_step"] == 1
