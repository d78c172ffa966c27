"""`gradient_checkpointing: auto`: no more layers are recomputed than the free memory asks for, and what is trained stays the same."""

import json

import pytest
import torch
from helpers.autograd_bytes import kept_by_autograd

from refinery.contract.records import KnowledgeLabel, write_records
from train.families.model import build_model
from train.launch.callbacks import RecomputeFirstLayers
from train.launch.launch import Launch
from train.planning import recomputation
from train.planning.memory import estimate, host_memory
from train.planning.recomputation import needed_share
from train.recipe import TrainRecipe
from train.run import run

ONE = Launch(1, "none")
LLAMA = {"task": "self_knowledge", "base": "meta-llama/Llama-2-7b-hf", "data": ["rows.jsonl"], "output_dir": "run", "learning_rate": 1e-4}


def needed(share: float, *, length: int = 4096) -> float:
    """Bytes of this machine with which the share of layers suffices."""
    recipe = TrainRecipe.model_validate(LLAMA | {"gradient_checkpointing": share if 0 < share < 1 else bool(share)})
    parameters, memory = estimate(recipe, ONE, length=length)
    on_gpu = recomputation._FRAGMENTS * memory.total + recomputation._BESIDE
    return on_gpu if torch.cuda.is_available() else host_memory(recipe, ONE, parameters, memory).without_gpu


@pytest.mark.parametrize("share", [0, 0.25, 0.5, 0.875, 1])
def test_as_few_layers_are_recomputed_as_memory_asks_for(share: float) -> None:
    found = [needed_share(TrainRecipe.model_validate(LLAMA), ONE, length=4096, free=needed(share) + spare) for spare in (0, -1)]
    assert found == [share, min(share + 1 / 8, 1)]


@pytest.fixture
def recipe(tiny_bases, tmp_path):
    """A recipe over a tiny base of two layers."""
    rows = [KnowledgeLabel(question_id=str(i), question=f"Who directed film {i}?", label=("know", "unknow")[i % 2]) for i in range(8)]
    write_records(tmp_path / "rows.jsonl", rows)
    values = {"task": "self_knowledge", "base": str(tiny_bases["untied"]), "data": [tmp_path / "rows.jsonl"], "dtype": "float32"}
    values |= {
        "learning_rate": 1e-2,
        "max_steps": 2,
        "per_device_train_batch_size": 4,
        "gradient_accumulation_steps": 1,
        "lora_dropout": 0.0,
    }
    return lambda name, **own: TrainRecipe.model_validate(values | {"output_dir": tmp_path / name} | own)


def test_what_is_trained_does_not_depend_on_it(recipe, monkeypatch):
    losses = {}
    for name, free in {"none": 2**40, "all": 0}.items():
        monkeypatch.setattr(recomputation, "free_memory", lambda device, free=free: free)
        metrics = run(recipe(name), resume=False)
        losses[metrics["recomputed_share"]] = metrics["train_loss"]
    half = run(recipe("half", gradient_checkpointing=0.5), resume=False)
    assert losses == {0.0: half["train_loss"], 1.0: half["train_loss"]}
    assert json.loads((recipe("half").output_dir / "metrics.json").read_text())["recomputed_share"] == 0.5


def test_only_the_first_layers_are_recomputed(recipe):
    model, tokenizer = build_model(recipe("run"))
    ids = torch.tensor([tokenizer("Who directed Dune?")["input_ids"] * 8])
    kept = []
    for share in (0.0, 0.5, 1.0):
        model.train()
        model.gradient_checkpointing_enable()
        RecomputeFirstLayers(share).on_train_begin(None, None, None, model=model)
        layers = model.get_base_model().model.layers
        assert [layer.gradient_checkpointing for layer in layers] == [True] * int(share * 2) + [False] * (2 - int(share * 2))
        kept.append(kept_by_autograd(model, lambda: model(input_ids=ids)))
    assert kept[0] > kept[1] > kept[2]


def test_a_recipe_that_says_it_is_obeyed(recipe):
    with pytest.raises(ValueError, match="gradient_checkpointing"):
        recipe("run", gradient_checkpointing=1.5)
    assert [recipe("run", gradient_checkpointing=given).recomputed_share for given in (True, False, 0.25)] == [1, 0, 0.25]
