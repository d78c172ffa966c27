"""The plan of a GPU's memory, against the most that runs took on an H200 (`gpu_memory_gib` of their metrics, benchmarks/gpu.sh)."""

import pytest
from transformers import AutoTokenizer, LlamaConfig

from train.launch.launch import Launch
from train.planning.memory import estimate
from train.recipe import TrainRecipe

LORA = {"strategy": "lora", "lora_rank": 64}


@pytest.fixture(scope="module")
def shape(tmp_path_factory, request):
    """The folder of a Llama of 0.6 B parameters whose head is not its embedding: all but its weights."""
    folder = tmp_path_factory.mktemp("untied")
    tokenizer = AutoTokenizer.from_pretrained(request.config.rootpath / "refinery" / "demo" / "checkpoint")
    sizes = {"hidden_size": 2048, "intermediate_size": 5632, "num_hidden_layers": 12, "num_attention_heads": 16, "num_key_value_heads": 8}
    LlamaConfig(vocab_size=len(tokenizer), tie_word_embeddings=False, **sizes).save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return str(folder)


@pytest.mark.parametrize(
    ("changes", "length", "measured"),
    [
        (LORA, 2048, 4.47),
        (LORA | {"packing": True, "max_length": 4096}, 4096, 7.48),
        (LORA | {"strategy": "qlora", "gradient_checkpointing": True}, 2048, 1.19),
        ({"strategy": "full"}, 2048, 12.32),
        ({"strategy": "full", "per_device_train_batch_size": 4}, 2048, 18.87),
    ],
    ids=["lora", "packed", "qlora", "full", "padded"],
)
def test_it_is_within_a_tenth_of_what_a_run_took(shape, changes, length, measured):
    fixed = {"task": "refinement", "base": shape, "data": ["x"], "output_dir": "x", "learning_rate": 1e-4}
    fixed |= {"gradient_checkpointing": False, "per_device_train_batch_size": 1}
    _, memory = estimate(TrainRecipe.model_validate(fixed | changes), Launch(1, "none"), length=length)
    assert memory.total / 2**30 == pytest.approx(measured, rel=0.1)
