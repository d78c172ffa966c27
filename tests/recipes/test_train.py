"""The training recipes of the papers: each is read, opens with what a reader needs, and trains a tiny model for two steps as it stands."""

import re
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
from helpers.family_rows import NAMES, ROWS, passage
from helpers.grpo_runs import questions
from helpers.tiny_llama import saved_llama

from refinery.contract.records import write_records
from refinery.runtime.recipe import load_recipe
from train.launch.launch import read_accelerate_config
from train.recipe import TrainRecipe
from train.run import run

ROOT = Path(__file__).parents[2]
ALL = sorted(ROOT.glob("recipes/*/train/*.yaml"))
PAPERS = [path for path in ALL if path.parts[-3] in ("ra_isf", "rq_rag", "re_thinking", "migres", "search_r1")]
CONFIGS = sorted(ROOT.glob("accelerate_configs/*.yaml"))


def name_of(path):
    return f"{path.parts[-3]}/{path.stem}"


@pytest.mark.parametrize("path", ALL, ids=name_of)
def test_a_recipe_is_read_and_known_to_the_installed_libraries(path, tmp_path):
    """Every key that goes to a library goes there by train/trainers/arguments.py, which the installed one must take."""
    from transformers import TrainingArguments

    from train.trainers.arguments import trainer_arguments

    recipe = load_recipe(path, TrainRecipe, [f"output_dir={tmp_path}/run"])
    arguments: dict[str, Any] = {**trainer_arguments(recipe), "bf16": False}  # a CPU may have none
    assert TrainingArguments(**arguments).learning_rate == recipe.learning_rate


@pytest.mark.parametrize("path", CONFIGS, ids=lambda path: path.stem)
def test_an_accelerate_file_is_known_to_the_installed_library(path):
    from accelerate.commands.config.config_args import load_config_from_file

    assert read_accelerate_config(path)
    assert load_config_from_file(str(path))


def test_every_strategy_and_size_of_the_papers_has_its_recipe():
    names = {name_of(path) for path in PAPERS}
    models = ("llama2_7b_lora", "llama2_7b_qlora", "llama2_7b_full", "t5_large")
    assert {f"ra_isf/{task}_{model}" for task in ("self_knowledge", "relevance", "decomposition") for model in models} <= names
    assert {f"rq_rag/{base}_{strategy}" for base in ("llama2_7b", "llama3_8b") for strategy in ("full", "lora", "qlora")} <= names


@pytest.mark.parametrize("path", PAPERS, ids=name_of)
def test_a_recipe_opens_with_its_command_hardware_time_and_aim(path):
    text = path.read_text(encoding="utf-8")
    assert re.search(
        rf"^#   (refinery train|accelerate launch .* -m train) recipes/{name_of(path).replace('/', '/train/')}\.yaml$", text, re.M
    )
    for part in ("# Hardware: ", "# Time: ", "# Aims at: ", "# Paper and code: "):
        assert f"\n{part}" in text


@pytest.mark.parametrize("path", [path for path in PAPERS if path.parts[-3] == "rq_rag" and path.stem.startswith("llama")], ids=name_of)
def test_rq_rag_trains_as_its_paper_says(path):
    recipe = load_recipe(path, TrainRecipe)
    processes = 8 if recipe.strategy == "full" else 1
    rows_per_sequence = 4 if recipe.packing else 1  # packed: about 1,000 tokens each, in 4,096
    assert recipe.packing or path.stem == "llama2_7b_answers"  # rows without searches are short
    assert processes * recipe.per_device_train_batch_size * recipe.gradient_accumulation_steps * rows_per_sequence == 32
    assert (recipe.epochs, recipe.warmup_steps, recipe.max_length, recipe.weight_decay) == (1, 0.03, 4096, 0)
    assert recipe.learning_rate == (2e-5 if recipe.strategy == "full" else 2e-4)


@pytest.mark.parametrize("path", [path for path in PAPERS if re.search("llama|t5", path.stem) and "ra_isf" in path.parts], ids=name_of)
def test_ra_isf_trains_at_its_papers_rate(path):
    assert load_recipe(path, TrainRecipe).learning_rate == 5e-4


@pytest.fixture(scope="session")
def tiny_reserved(tiny_tokenizer, tmp_path_factory):
    """The folder of a random base with reserved tokens in its vocabulary, as Llama 3 has them."""
    from copy import deepcopy

    tokenizer = deepcopy(tiny_tokenizer)
    tokenizer.add_special_tokens({"additional_special_tokens": [f"<|reserved_special_token_{i}|>" for i in range(16)]})
    return saved_llama(tmp_path_factory.mktemp("base") / "reserved", tokenizer)


@pytest.fixture(scope="session")
def tiny_of(tiny_bases, tiny_t5s, tiny_encoder, tiny_reserved):
    """The tiny twin of a recipe's base: same family, same vocabulary habits, same tying of head and embedding."""

    def of(recipe: TrainRecipe) -> Path:
        if recipe.family == "seq2seq":
            return tiny_t5s["untied"]  # as Flan-T5
        if recipe.family == "classifier":
            return tiny_encoder
        return tiny_reserved if "Llama-3" in recipe.base else tiny_bases["untied"]

    return of


def of_rollouts(folder: Path, recipe: TrainRecipe) -> list[str]:
    """One question a step, and short answers over a few passages in memory."""
    write_records(folder / "passages.jsonl", map(passage, NAMES))
    retriever = f"{{name: bm25, passages: {folder}/passages.jsonl}}"
    short = ["max_length=400", "rollouts.options.max_query_tokens=8", "rollouts.max_new_tokens=8"]
    return [f"rollouts.retriever={retriever}", f"grpo.steps_per_generation={recipe.grpo.num_generations}", *short]


def one_of_a_kind():
    """Recipes of the papers; those that train in the same way as an earlier one are slow."""
    known = set()
    for path in PAPERS:
        recipe = load_recipe(path, TrainRecipe)
        kind = (recipe.task, recipe.method, recipe.family, recipe.strategy == "qlora")
        yield pytest.param(path, id=name_of(path), marks=[pytest.mark.slow] if kind in known else [])
        known.add(kind)


@pytest.mark.parametrize("path", list(one_of_a_kind()))
def test_the_tiny_twin_trains_for_two_steps(path, tiny_of, tmp_path):
    """All that differs is what a CPU forces: a tiny base, a few rows, batches of one, two steps."""
    recipe = load_recipe(path, TrainRecipe)
    if recipe.strategy == "qlora" and find_spec("bitsandbytes") is None:
        pytest.skip("bitsandbytes is not installed")
    on_policy = recipe.method == "grpo"
    write_records(tmp_path / "rows.jsonl", questions() if on_policy else ROWS[recipe.task])
    twin = load_recipe(
        path,
        TrainRecipe,
        [
            f"base={tiny_of(recipe)}",
            f"data=[{tmp_path}/rows.jsonl]",
            "validation=[]",
            "eval_steps=null",
            "metric_for_best_model=null",
            f"output_dir={tmp_path}/run",
            f"max_length={128 if recipe.family == 'classifier' else 200}",  # the tiny encoder's positions; the longest pair
            "per_device_train_batch_size=1",
            "gradient_accumulation_steps=1",
            "max_steps=2",
            *(of_rollouts(tmp_path, recipe) if on_policy else ()),
        ],
    )
    metrics = run(twin, resume=False)
    assert metrics["steps"] == 2
    assert on_policy or metrics["train_loss"] > 0
    assert list(twin.output_dir.glob("*.safetensors"))
