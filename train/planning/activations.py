"""What autograd keeps of a batch's forward pass, counted on one and on two layers without storage; the rest of the layers are copies."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, cast

from refinery.llms.weights.shapes import config_of
from refinery.tasks.base import PairTask
from train.planning.meta_model import BYTES, meta_model
from train.recipe import TrainRecipe

if TYPE_CHECKING:
    from peft import PeftModel
    from transformers import PreTrainedModel


@dataclass(frozen=True, slots=True)
class Activations:
    """Bytes that autograd keeps of one batch's forward pass: of each of `depth` layers, of a layer's input alone, and of the rest."""

    depth: int
    layer: float
    layer_input: float
    rest: float

    def kept(self, recomputed: int) -> float:
        """Bytes at their peak if the first `recomputed` layers keep their input alone: those are computed again one by one, when the
        backward pass has released the layers after them.
        """
        inputs = recomputed * self.layer_input
        return self.rest + inputs + max((self.depth - recomputed) * self.layer, self.layer if recomputed else 0)


def count_activations(recipe: TrainRecipe, *, length: int, target_length: int = 0, on_gpu: bool = True) -> Activations:
    """The parts of what autograd keeps of one batch's forward pass."""
    config = config_of(recipe.base)
    depth = getattr(config, "num_hidden_layers", None) or config.num_layers
    one, two = (
        saved_bytes(meta_model(recipe, layers=layers), recipe, length=length, target_length=target_length, on_gpu=on_gpu)
        for layers in (1, 2)
    )
    layer_input = _sequences(recipe) * (length + target_length) * config.hidden_size * BYTES[recipe.dtype]
    return Activations(depth, layer=two - one, layer_input=layer_input, rest=2 * one - two)


def _sequences(recipe: TrainRecipe) -> int:
    """How many a batch has: DPO reads both paths of a pair at once."""
    return recipe.per_device_train_batch_size * (2 if isinstance(recipe.learned, PairTask) else 1)


def saved_bytes(
    model: "PreTrainedModel | PeftModel", recipe: TrainRecipe, *, length: int, target_length: int = 0, on_gpu: bool = True
) -> int:
    """Bytes of the tensors, parameters aside, that autograd saves in a forward pass of one batch. Runs on any device, meta included.

    With `on_gpu`, the model is good for nothing else afterwards.
    """
    import torch

    if on_gpu:
        _keep_as_on_a_gpu(model, recipe)
    known = {_storage(parameter) for parameter in model.parameters()} | {_storage(buffer) for buffer in model.buffers()}
    saved: dict[int, int] = {}
    alive: list[Any] = []  # the address of a freed storage may be reused

    def keep(tensor: Any) -> Any:
        if _storage(tensor) not in known and tensor.dtype != torch.long:
            saved[_storage(tensor)] = tensor.untyped_storage().nbytes()
            alive.append(tensor)
        return tensor

    device = next(model.parameters()).device
    batch = _sequences(recipe)
    ids, target_ids = (torch.zeros((batch, count), dtype=torch.long, device=device) for count in (length, target_length))
    body = cast("PreTrainedModel", cast("PeftModel", model).get_base_model() if hasattr(model, "get_base_model") else model)
    inputs = {"decoder_input_ids": target_ids} if recipe.family == "seq2seq" else {}
    with _attention_that_keeps_no_matrix(body), torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor):
        # The causal head is computed on the few supervised positions and in tiles (train/trainers/sparse_lm_head.py), in chunks by TRL's
        # DPO.
        (body.get_decoder() if recipe.family == "causal" else body)(input_ids=ids, **inputs)
    logits = 4 * batch * target_length * model.config.vocab_size if recipe.family == "seq2seq" else 0
    return sum(saved.values()) + logits


def _keep_as_on_a_gpu(model: "PreTrainedModel | PeftModel", recipe: TrainRecipe) -> None:
    """Let a model keep what it would on a GPU: of dropout, which elements stay, a byte each; and what an adapter is given, in the recipe's
    dtype, as under autocast.
    """
    import torch

    for name, module in model.named_modules():
        if isinstance(module, torch.nn.Dropout) and module.p:
            vars(module)["forward"] = partial(_gpu_dropout, rate=module.p)
        elif BYTES[recipe.dtype] < 4 and ".lora_" in name and isinstance(module, torch.nn.Linear):
            module.to(getattr(torch, recipe.dtype))


def _gpu_dropout(states: Any, *, rate: float) -> Any:
    import torch

    return torch.native_dropout(states, rate, True)[0]


def _storage(tensor: Any) -> int:
    return tensor.untyped_storage()._cdata


@contextmanager
def _attention_that_keeps_no_matrix(model: "PreTrainedModel") -> Iterator[None]:
    """On the meta device PyTorch decomposes attention and would count its (length, length) matrix; the kernels of sdpa keep none."""
    from transformers import AttentionInterface

    before = model.config._attn_implementation or "eager"
    AttentionInterface.register("planned", _planned_attention)
    model.set_attn_implementation("planned")
    try:
        yield
    finally:
        model.set_attn_implementation(before)


def _planned_attention(module: Any, query: Any, key: Any, value: Any, *_: Any, **__: Any) -> tuple[Any, None]:
    """The output's shape (batch, length, heads, dim), made from all three inputs, which are what a fused kernel keeps beside it."""
    import torch

    groups = query.shape[1] // key.shape[1]
    mixed = query * key.repeat_interleave(groups, 1)[:, :, :1] * value.repeat_interleave(groups, 1)[:, :, :1]
    return torch.sigmoid(mixed).transpose(1, 2), None
