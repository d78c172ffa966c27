"""How much memory training takes on each GPU: counted on a model without storage (the meta device), split as the launch splits it.

Weights, gradients and optimizer states are counted parameter by parameter on the model that would be trained, adapter included.
Activations are counted by a forward pass of one and of two layers on the meta device, which records what autograd would keep; the rest
of the layers are copies. Not counted: what the allocator loses to fragments, and the CUDA context (about 1 GiB together).

Host memory is what loading takes and, without a GPU, all of this with what was measured beside it.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Any, cast

from refinery.llms.weights.checkpoint import load_tokenizer
from refinery.llms.weights.embeddings import embedding_rows, extend_vocabulary
from refinery.llms.weights.families import auto_class, label_arguments
from refinery.llms.weights.shapes import RESERVED, SHAPES, config_of
from refinery.tasks.base import PairTask
from train.families.adapter import add_adapter
from train.families.received import sends_weights
from train.families.vocabulary import add_control_tokens, control_tokens_of
from train.launch.launch import Launch
from train.recipe import TrainRecipe
from train.rows.data import labels_of

if TYPE_CHECKING:
    from peft import PeftModel
    from transformers import PreTrainedModel

BYTES = {"float32": 4, "bfloat16": 2}
# NF4 with double quantization (QLoRA, Sec. 3): 4 bits, one 8-bit scale for 64 weights, and one float32 for 256 of those.
_FOUR_BIT = 0.5 + 1 / 64 + 4 / (64 * 256)
# DeepSpeed's defaults: elements reduced at a time (stages 1 and 2), and gathered at a time (stage 3).
_REDUCE_BUCKET, _MAX_LIVE = 500_000_000, 1_000_000_000
# Bytes of optimizer state for each trained parameter; Adafactor keeps a row and a column of each matrix, and SGD nothing.
_STATE_BYTES = {"adamw_torch": 8, "adamw_torch_fused": 8, "adamw_8bit": 2, "paged_adamw_8bit": 2, "adafactor": 0, "sgd": 0}
# What has no part in an estimate: a plan of many trainings makes each estimate once.
_NO_PART = {"task", "data", "data_weights", "validation", "output_dir", "label_balance"}
_known: "dict[tuple[Any, ...], tuple[Parameters, MemoryEstimate]]" = {}


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
    """Bytes on one GPU. `buffers` is what processes exchange gradients and parameters through."""

    weights: float
    gradients: float
    optimizer: float
    activations: float
    buffers: float

    @property
    def total(self) -> float:
        """The sum of all."""
        return sum(getattr(self, field.name) for field in fields(self))


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
    return HostMemory(first, others, _LIBRARIES + memory.total + (_HELD_PER_ACTIVATION - 1) * memory.activations)


def meta_model(recipe: TrainRecipe, *, layers: int | None = None) -> Any:
    """The model that the recipe trains, without storage: vocabulary extended, adapter around it. `layers` makes it shallower.

    Raises CheckpointError when neither its shape nor its tokenizer can be found.
    """
    import torch

    config = config_of(recipe.base)
    for name in ("num_hidden_layers", "num_layers", "num_decoder_layers"):
        if layers is not None and hasattr(config, name):
            setattr(config, name, layers)
    config.use_cache = False
    for name, value in label_arguments(labels_of(recipe)).items():
        setattr(config, name, value)
    with torch.device("meta"):
        model = auto_class(recipe.family).from_config(config).to(getattr(torch, recipe.dtype))
        if getattr(config, "is_gated_act", False):  # T5 1.1 and Flan-T5 have a separate head, although transformers 5 ties every new T5
            model.lm_head.weight = torch.nn.Parameter(torch.empty_like(model.lm_head.weight))
        tokenizer, rows = _extended(model, recipe)
        return model if recipe.strategy == "full" else add_adapter(model, tokenizer, recipe, rows)


def _extended(model: "PreTrainedModel | PeftModel", recipe: TrainRecipe) -> tuple[Any, list[int]]:
    """As `add_control_tokens`; for a base of the table, whose tokenizer need not be here, what that would do (no tokenizer pads there)."""
    tokens = control_tokens_of(recipe)
    if recipe.base not in SHAPES:
        return add_control_tokens(model, load_tokenizer(recipe.base, recipe.chat_template), tokens)
    if not tokens:
        return None, []
    rows = embedding_rows(model)
    new = len(tokens) + (recipe.family == "causal")  # T5 has a padding token
    if RESERVED.get(recipe.base, 0) >= new:
        return None, list(range(rows - new, rows))
    extend_vocabulary(model, rows + new)
    return None, list(range(rows, rows + new))


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
        _known[key] = _estimate(recipe, launch, length, target_length)
    return _known[key]


def _estimate(recipe: TrainRecipe, launch: Launch, length: int, target_length: int) -> tuple[Parameters, MemoryEstimate]:
    model = meta_model(recipe)
    parameters = count_parameters(model, recipe)
    weights, gradients, optimizer, buffers = _states(model, parameters, recipe, launch)
    activations = activation_bytes(recipe, launch, length=length, target_length=target_length)
    return parameters, MemoryEstimate(weights, gradients, optimizer, activations, buffers)


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


def activation_bytes(recipe: TrainRecipe, launch: Launch, *, length: int, target_length: int = 0) -> float:
    """What autograd keeps of one batch's forward pass; where activations are recomputed, each layer's input and all of one layer."""
    config = config_of(recipe.base)
    depth = getattr(config, "num_hidden_layers", None) or config.num_layers
    one, two = (saved_bytes(meta_model(recipe, layers=layers), recipe, length=length, target_length=target_length) for layers in (1, 2))
    layer, rest = two - one, 2 * one - two
    if not (recipe.gradient_checkpointing or "recomputes" in launch.traits):
        return rest + depth * layer
    inputs = _sequences(recipe) * (length + target_length) * config.hidden_size * BYTES[recipe.dtype]
    return rest + depth * inputs + layer


def _sequences(recipe: TrainRecipe) -> int:
    """How many a batch has: DPO reads both paths of a pair at once."""
    return recipe.per_device_train_batch_size * (2 if isinstance(recipe.learned, PairTask) else 1)


def saved_bytes(model: "PreTrainedModel | PeftModel", recipe: TrainRecipe, *, length: int, target_length: int = 0) -> int:
    """Bytes of the tensors, parameters aside, that autograd saves in a forward pass of one batch. Runs on any device, meta included."""
    import torch

    known = {_storage(parameter) for parameter in model.parameters()} | {_storage(buffer) for buffer in model.buffers()}
    saved: dict[int, int] = {}
    alive: list[Any] = []  # the address of a freed storage may be reused

    def keep(tensor: Any) -> Any:
        if _storage(tensor) not in known and tensor.is_floating_point():
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
