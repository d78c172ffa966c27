"""The host memory of the plan, against the most that real LoRA runs of SmolLM2 took on a CPU while they trained (VmHWM, Linux, glibc)."""

import pytest

from train.launch.launch import Launch
from train.planning.memory import estimate, host_memory
from train.recipe import TrainRecipe

GIB = 2**30
SMOLLM2 = "HuggingFaceTB/SmolLM2-135M-Instruct"


def recipe_of(task="relevance", base=SMOLLM2, **changes):
    values = {"task": task, "base": base, "data": ["x"], "output_dir": "x", "learning_rate": 1e-4, "gradient_checkpointing": False}
    return TrainRecipe.model_validate(values | changes)


@pytest.mark.parametrize(
    ("task", "rank", "dtype", "batch", "length", "measured"),
    [
        ("self_knowledge", 16, "float32", 8, 116, 3.86),
        ("decomposition", 16, "float32", 8, 161, 5.08),
        ("relevance", 16, "float32", 4, 1024, 14.05),
        ("refinement", 64, "bfloat16", 4, 1024, 12.8),
    ],
)
def test_it_is_within_a_fifth_of_what_a_run_took(task, rank, dtype, batch, length, measured):
    recipe = recipe_of(task, lora_rank=rank, dtype=dtype, per_device_train_batch_size=batch)
    parameters, memory = estimate(recipe, Launch(1, "none"), length=length)
    planned = host_memory(recipe, Launch(1, "none"), parameters, memory).without_gpu / GIB
    assert planned == pytest.approx(measured, rel=0.2)
    assert memory.total / GIB < 0.8 * measured  # what a GPU holds is no plan for a CPU


@pytest.mark.parametrize(("sharding", "each"), [("zero3", False), ("ddp", False), ("fsdp2", True)])
def test_only_the_first_process_of_a_full_run_holds_the_whole_model_while_loading(sharding, each):
    recipe = recipe_of(base="meta-llama/Llama-2-7b-hf", strategy="full")
    launch = Launch(8, sharding)
    parameters, memory = estimate(recipe, launch, length=16)
    host = host_memory(recipe, launch, parameters, memory)
    assert host.first / GIB == pytest.approx(25.1 + 0.7, abs=0.2)
    assert (host.others == host.first) is each
