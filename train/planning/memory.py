"""How much memory training takes on each GPU: counted on a model without storage (the meta device), split as the launch splits it.

Weights, gradients and optimizer states are counted parameter by parameter on the model that would be trained, adapter included;
activations in `activations.py`. Not counted: what the allocator loses to fragments, and the CUDA context (about 1 GiB together).

Host memory is what loading takes and, without a GPU, all of this with what was measured beside it.
"""

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from refinery.tasks.base import PairTask
from train.families.broadcast_weights import sends_weights
from train.families.vocabulary import control_tokens_of
from train.launch.launch import Launch
from train.planning.activations import Activations, count_activations
from train.planning.meta_model import BYTES, meta_model
from train.recipe import TrainRecipe
from train.rows.data import labels_of

if TYPE_CHECKING:
    from peft import PeftModel
    from transformers import PreTrainedModel

# NF4 with double quantization (QLoRA, Sec. 3): 4 bits, one 8-bit scale for 64 weights, and one float32 for 256 of those.
_FOUR_BIT = 0.5 + 1 / 64 + 4 / (64 * 256)
# DeepSpeed's defaults: elements reduced at a time (stages 1 and 2), and gathered at a time (stage 3).
_REDUCE_BUCKET, _MAX_LIVE = 500_000_000, 1_000_000_000
# Bytes of optimizer state for each trained parameter; Adafactor keeps a row and a column of each matrix, and SGD nothing.
_STATE_BYTES = {"adamw_torch": 8, "adamw_torch_fused": 8, "adamw_8bit": 2, "paged_adamw_8bit": 2, "adafactor": 0, "sgd": 0}
# What has no part in an estimate: a plan of many trainings makes each estimate once.
_NO_PART = {"task", "data", "data_weights", "validation", "output_dir", "label_balance", "gradient_checkpointing"}
_known: "dict[tuple[Any, ...], _Parts]" = {}


# Without a GPU: the libraries, and what a process holds for each byte that autograd keeps. Measured on LoRA runs of SmolLM2 in float32 and
# bfloat16, with batches of 900 to 4,096 tokens: tests/train/planning/test_host_memory.py.
_LIBRARIES, _HELD_PER_ACTIVATION = 0.7 * 2**30, 1.5


@dataclass(frozen=True, slots=True)
class Parameters:
    """How many parameters a model has, by the part that they belong to. `trained` is `adapter + token_rows`, or under `full` the base."""

    base: int
    adapter: int
    token_rows: int
    trained: int


@dataclass(frozen=True, slots=True)
class MemoryEstimate:
    """Bytes on one GPU. `buffers` is what processes exchange gradients and parameters through.

    `activations_without_gpu` takes the place of `activations` where there is none.
    """

    weights: float
    gradients: float
    optimizer: float
    activations: float
    buffers: float
    activations_without_gpu: float

    def on_gpu(self) -> dict[str, float]:
        """The parts of what a GPU holds."""
        return {name: getattr(self, name) for name in ("weights", "gradients", "optimizer", "activations", "buffers")}

    @property
    def total(self) -> float:
        """What a GPU holds."""
        return sum(self.on_gpu().values())


@dataclass(frozen=True, slots=True)
class HostMemory:
    """Bytes of the first process and of each other one while they load the model; and of one that trains without a GPU."""

    first: float
    others: float
    without_gpu: float


def host_memory(recipe: TrainRecipe, launch: Launch, parameters: Parameters, memory: MemoryEstimate) -> HostMemory:
    """What the launch takes of each machine's own memory. Evaluation, which holds more keys and values, is not counted."""
    dtype = "float32" if recipe.strategy == "full" else recipe.dtype
    first = _LIBRARIES + BYTES[dtype] * (parameters.base + parameters.adapter)
    others = _LIBRARIES if sends_weights(recipe, launch) else first
    without_gpu = memory.total - memory.activations + _HELD_PER_ACTIVATION * memory.activations_without_gpu
    return HostMemory(first, others, _LIBRARIES + without_gpu)


def count_parameters(model: "PreTrainedModel | PeftModel", recipe: TrainRecipe) -> Parameters:
    """Parameters of a model by group."""
    sizes = {name: parameter.numel() for name, parameter in model.named_parameters()}
    token_rows = sum(size for name, size in sizes.items() if "trainable_tokens_delta" in name)
    adapter = sum(size for name, size in sizes.items() if "lora_" in name)
    trained = sum(parameter.numel() for parameter in model.parameters() if parameter.requires_grad)
    return Parameters(base=sum(sizes.values()) - token_rows - adapter, adapter=adapter, token_rows=token_rows, trained=trained)


def estimate(recipe: TrainRecipe, launch: Launch, *, length: int, target_length: int = 0) -> tuple[Parameters, MemoryEstimate]:
    """(parameters, memory on each GPU) of training on batches whose rows, or packed sequences, have `length` tokens.

    `target_length` is what T5's decoder writes for them, by default as much.
    """
    if recipe.family == "seq2seq":
        target_length = target_length or length
    tokens, pairs = control_tokens_of(recipe), isinstance(recipe.learned, PairTask)
    key = recipe.model_dump_json(exclude=_NO_PART), tokens, labels_of(recipe), pairs, launch, length, target_length
    if key not in _known:
        _known[key] = _parts(recipe, launch, length, target_length)
    parts = _known[key]
    share = 1.0 if "recomputes" in launch.traits else recipe.recomputed_share
    activations, elsewhere = (kind.kept(math.ceil(share * kind.depth)) for kind in (parts.activations, parts.activations_without_gpu))
    weights, gradients, optimizer, buffers = parts.states
    return parts.parameters, MemoryEstimate(weights, gradients, optimizer, activations, buffers, elsewhere)


@dataclass(frozen=True, slots=True)
class _Parts:
    """What an estimate is made of, whichever layers are computed again."""

    parameters: Parameters
    states: tuple[float, float, float, float]
    activations: Activations
    activations_without_gpu: Activations


def _parts(recipe: TrainRecipe, launch: Launch, length: int, target_length: int) -> _Parts:
    model = meta_model(recipe)
    parameters = count_parameters(model, recipe)
    states = _states(model, parameters, recipe, launch)
    kept = (count_activations(recipe, length=length, target_length=target_length, on_gpu=on_gpu) for on_gpu in (True, False))
    return _Parts(parameters, states, *kept)


def _states(
    model: "PreTrainedModel | PeftModel", parameters: Parameters, recipe: TrainRecipe, launch: Launch
) -> tuple[float, float, float, float]:
    """(weights, gradients, optimizer, buffers) in bytes on one GPU."""
    trained, n = parameters.trained, launch.processes
    compute, state = BYTES[recipe.dtype], _STATE_BYTES[recipe.optim]
    frozen = _frozen_bytes(model, recipe)
    if launch.sharding.startswith("zero"):
        # DeepSpeed computes with one copy in the recipe's dtype; its optimizer holds float32 weights and Adam's two moments, split.
        stage = int(launch.sharding[-1])
        optimizer = 0.0 if launch.offload_optimizer else (4 + state) * trained / n
        gradients = compute * trained / (n if stage > 1 else 1)
        weights = frozen + compute * trained
        if stage == 3:
            return weights / n, gradients, optimizer, compute * min(_MAX_LIVE, parameters.base)
        return weights, gradients, optimizer, compute * min(_REDUCE_BUCKET, trained)
    if launch.sharding == "fsdp2":
        # Sharded in the dtype they are held in; a layer and the next one are whole at a time.
        layer = 2 * compute * _largest_layer(model)
        return (frozen + 4 * trained) / n, 4 * trained / n, 0.0 if launch.offload_optimizer else state * trained / n, layer
    # Under autocast the 16-bit copies of trained weights live until the backward pass.
    copies = compute * trained if compute < 4 else 0
    return frozen + 4 * trained + copies, 4 * trained, state * trained, 4 * trained if launch.sharding == "ddp" else 0


def _frozen_bytes(model: "PreTrainedModel | PeftModel", recipe: TrainRecipe) -> float:
    """Frozen weights in the dtype they are held in: of QLoRA's linear layers 4 bits, but not of the head."""
    import torch

    head = getattr(model.get_output_embeddings(), "weight", None)
    quantized = {
        id(layer.weight)
        for layer in model.modules()
        if recipe.strategy == "qlora" and isinstance(layer, torch.nn.Linear) and not layer.weight.requires_grad
    } - {id(parameter) for name, parameter in model.named_parameters() if "lm_head" in name or parameter is head}
    frozen = [parameter for parameter in model.parameters() if not parameter.requires_grad]
    return sum(p.numel() * (_FOUR_BIT if id(p) in quantized else BYTES[recipe.dtype]) for p in frozen)


def _largest_layer(model: "PreTrainedModel | PeftModel") -> int:
    """Parameters of the largest unit that FSDP gathers: an embedding, or one of the repeated layers."""
    import torch

    repeated = [layer for modules in model.modules() if isinstance(modules, torch.nn.ModuleList) for layer in modules]
    return max(sum(p.numel() for p in module.parameters()) for module in [*repeated, model.get_input_embeddings()])
