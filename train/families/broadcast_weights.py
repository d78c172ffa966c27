"""A model whose weights come from the first process, so that a machine with eight GPUs does not hold a 7B model eight times while loading.

When the trainer wraps a model, DDP and DeepSpeed send every weight of the first process to the others (`_sync_module_states`,
`_broadcast_model`) and overwrite anything these have read. So they read nothing, and memory that is never written takes no space.
"""

from typing import TYPE_CHECKING, Any

from refinery.contract.tokenizer import Tokenizer
from refinery.llms.weights.checkpoint import load_tokenizer
from refinery.llms.weights.families import auto_class
from refinery.llms.weights.hub_files import small_files
from refinery.runtime.run.process_rank import is_main_process
from train.launch.launch import Launch, launch_from_env
from train.recipe import TrainRecipe

if TYPE_CHECKING:
    from transformers import PreTrainedModel


def receives_weights(recipe: TrainRecipe) -> bool:
    """Whether another process sends this one its weights."""
    return sends_weights(recipe, launch_from_env()) and not is_main_process()


def sends_weights(recipe: TrainRecipe, launch: Launch) -> bool:
    """Whether the first process sends the weights to the others: under `full`, where each would hold them in float32.

    It does not under FSDP2, where that depends on the accelerate file, or for T5, whose checkpoint determines which weights exist.
    """
    return recipe.strategy == "full" and recipe.family == "causal" and launch.sharding not in ("none", "fsdp2")


def unread_base(recipe: TrainRecipe) -> tuple["PreTrainedModel", Tokenizer]:
    """(model, tokenizer) of the recipe's base, with memory for its weights that is not written to."""
    import torch
    from accelerate import init_empty_weights
    from transformers import AutoConfig

    config = AutoConfig.from_pretrained(small_files(recipe.base), trust_remote_code=False)
    # DeepSpeed computes in the recipe's dtype, and would write a copy of all weights in another one.
    dtype = getattr(torch, recipe.dtype) if "zero" in launch_from_env().sharding else torch.float32
    with init_empty_weights(include_buffers=False):
        model = auto_class(recipe.family).from_config(config, dtype=dtype)
    made: dict[int, Any] = {}  # tied weights are one parameter
    for module in model.modules():
        for name, parameter in module._parameters.items():
            if parameter is not None and id(parameter) not in made:
                made[id(parameter)] = torch.nn.Parameter(torch.empty_like(parameter, device="cpu"))
            if parameter is not None:
                module._parameters[name] = made[id(parameter)]
    model.name_or_path = recipe.base
    return model, load_tokenizer(recipe.base, recipe.chat_template)
