"""A model whose weights another process sends has what a loaded one has, except the weights (test_multi_process.py trains with it)."""

import pytest
import torch

from refinery.llms.weights.checkpoint import load_base
from train.families.broadcast_weights import receives_weights, unread_base
from train.families.vocabulary import add_control_tokens, control_tokens_of
from train.launch.launch import launch_from_env
from train.recipe import TrainRecipe


@pytest.fixture
def recipe(tiny_bases, tmp_path):
    def build(base="tied", **changes):
        values = {"task": "refinement", "base": str(tiny_bases[base]), "data": ["x"], "output_dir": tmp_path, "learning_rate": 1e-3}
        return TrainRecipe.model_validate(values | {"strategy": "full", "dtype": "float32"} | changes)

    return build


@pytest.fixture
def in_process(monkeypatch):
    """As process `rank` of two, under a launch that the environment describes."""

    def enter(rank, **environment):
        for name, value in {"RANK": rank, "WORLD_SIZE": "2", **environment}.items():
            monkeypatch.setenv(name, value)
        launch_from_env.cache_clear()

    yield enter
    launch_from_env.cache_clear()


ZERO3 = {"ACCELERATE_USE_DEEPSPEED": "true", "ACCELERATE_DEEPSPEED_ZERO_STAGE": "3"}


@pytest.mark.parametrize("base", ["tied", "untied"])
def test_it_has_the_shapes_the_ties_and_the_buffers_of_a_loaded_model(recipe, base):
    built = []
    for model, tokenizer in (load_base(recipe(base).base, dtype="float32"), unread_base(recipe(base))):
        add_control_tokens(model, tokenizer, control_tokens_of(recipe(base)))
        built.append(model)
    loaded, unread = ({name: (weight.shape, weight.dtype) for name, weight in model.named_parameters()} for model in built)
    assert loaded == unread
    assert all(weight.device.type == "cpu" for weight in built[1].parameters())
    for name, buffer in built[0].named_buffers():
        assert torch.equal(built[1].get_buffer(name), buffer)


def test_only_the_first_process_reads_the_weights_of_a_full_run(recipe, in_process):
    for rank, environment, expected in (("0", {}, False), ("1", {}, True), ("1", ZERO3, True)):
        in_process(rank, **environment)
        assert receives_weights(recipe()) is expected
        assert not receives_weights(recipe(strategy="lora"))


def test_under_fsdp_every_process_reads(recipe, in_process):
    in_process("1", ACCELERATE_USE_FSDP="true")
    assert not receives_weights(recipe())
