"""`fused_layers`: parts of a decoder's layers computed in fewer passes over memory, on a GPU where those cost as much as the products.

| part | computed by |
|---|---|
| RMSNorm | `torch.nn.functional.rms_norm`, one kernel |
| a linear layer with LoRA | one autograd function (`lora_product.py`) |
| SwiGLU, rotary embedding | the same formulas under `torch.compile`, one kernel each |

PyTorch brings all it takes. Modules of the loaded model get another `forward` for as long as the context lasts: their weights, names and
checkpoints stay as they are. A module is replaced only if its class computes the known formula, which is tried on a few numbers.
"""

import logging
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from functools import cache, partial
from types import MethodType, SimpleNamespace
from typing import TYPE_CHECKING, Any, cast

import torch
from torch import Tensor, nn
from transformers.activations import SiLUActivation

from refinery.llms.engine.norms import computes_rms_norm, fused_forward
from train.families.lora_product import can_be_one_product, lora_forward
from train.launch.launch import Launch
from train.recipe import TrainRecipe

if TYPE_CHECKING:
    from peft import PeftModel
    from transformers import PreTrainedModel

_log = logging.getLogger(__name__)
_ROTARY = "apply_rotary_pos_emb"  # transformers' name, in the module of each family


@contextmanager
def fused_layers(model: "PreTrainedModel | PeftModel", *, adapters: bool = True, compiler: str | None = None) -> Iterator[dict[str, int]]:
    """A context in which the model computes with fused layers; yields how many there are of each part.

    `adapters` includes LoRA's products. `compiler` is a backend of torch.compile, without which SwiGLU and rotary embeddings stay plain.
    """
    counts: Counter[str] = Counter()
    with ExitStack() as undo:
        for module in model.modules():
            part, forward = _fused(module, adapters=adapters, compiler=compiler)
            if forward and "forward" not in vars(module):
                counts[part] += 1
                vars(module)["forward"] = MethodType(forward, module)
                undo.callback(vars(module).pop, "forward")
        if compiler:
            counts["rotary embeddings"] = _compile_rotary(model, compiler, undo)
        yield {part: count for part, count in counts.items() if count}


def fused_for(model: "PreTrainedModel | PeftModel", recipe: TrainRecipe, launch: Launch) -> AbstractContextManager[dict[str, int]]:
    """The context of `fused_layers` as the recipe asks for it: `auto` is on a GPU, for decoders that are not compiled as a whole.

    LoRA's products read weights of another module, which ZeRO-3 and FSDP do not gather for them.
    """
    on_gpu = torch.cuda.is_available()
    automatic = on_gpu and recipe.family == "causal" and not recipe.torch_compile
    if not (automatic if recipe.fused_layers == "auto" else recipe.fused_layers):
        return nullcontext({})
    adapters = launch.sharding not in ("zero3", "fsdp2")
    return fused_layers(model, adapters=adapters, compiler="inductor" if on_gpu and _compiles() else None)


def _fused(module: nn.Module, *, adapters: bool, compiler: str | None) -> tuple[str, Callable[..., Tensor] | None]:
    if hasattr(module, "variance_epsilon") and computes_rms_norm(type(module)):
        return "norms", fused_forward
    if adapters and can_be_one_product(module):
        return "adapters", lora_forward
    if compiler and isinstance(getattr(module, "act_fn", None), nn.SiLU | SiLUActivation) and _is_swiglu(type(module)):
        return "mlps", partial(_mlp_forward, _where_trained(_compiled_swiglu(compiler), _swiglu))
    return "", None


def _compile_rotary(model: nn.Module, compiler: str, undo: ExitStack) -> int:
    """Compile the families' function of rotary embeddings, which is not a module's; returns how many there are."""
    files = {sys.modules[type(module).__module__] for module in model.modules()}
    found = [(file, getattr(file, _ROTARY)) for file in files if hasattr(file, _ROTARY)]
    for file, plain in found:
        undo.callback(setattr, file, _ROTARY, plain)
        setattr(file, _ROTARY, _where_trained(torch.compile(plain, backend=compiler, dynamic=True), plain))
    return len(found)


def _mlp_forward(swiglu: Callable[..., Tensor], mlp: Any, states: Tensor) -> Tensor:
    return mlp.down_proj(swiglu(mlp.gate_proj(states), mlp.up_proj(states)))


def _swiglu(gate: Tensor, up: Tensor) -> Tensor:
    return nn.functional.silu(gate) * up


@cache
def _compiled_swiglu(compiler: str) -> Callable[..., Tensor]:
    return torch.compile(_swiglu, backend=compiler, dynamic=True)


def _where_trained(compiled: Callable[..., Any], plain: Callable[..., Any]) -> Callable[..., Any]:
    """The compiled function in passes that have a backward pass; decoding calls it too often, with too little in each call."""
    return lambda *tensors, **options: (compiled if torch.is_grad_enabled() else plain)(*tensors, **options)


@cache
def _is_swiglu(kind: type[nn.Module]) -> bool:
    mlp = SimpleNamespace(gate_proj=torch.sin, up_proj=torch.cos, down_proj=torch.exp, act_fn=nn.functional.silu)
    states = torch.linspace(-1, 3, 16)
    return _computes(kind, mlp, states, torch.exp(_swiglu(torch.sin(states), torch.cos(states))))


def _computes(kind: type[nn.Module], parts: SimpleNamespace, states: Tensor, expected: Tensor) -> bool:
    """Whether the class's forward pass over these parts gives what is expected."""
    try:
        return torch.allclose(cast(Any, kind).forward(parts, states), expected)
    except (AttributeError, TypeError, RuntimeError):  # it has other parts
        return False


@cache
def _compiles() -> bool:
    """Whether torch.compile works on this GPU: it needs Triton and a C compiler. A warning says why it does not."""
    gate = torch.ones(2, 8, device="cuda", requires_grad=True)
    try:
        _compiled_swiglu("inductor")(gate, gate).sum().backward()
    except Exception as error:  # of many kinds, from a missing compiler to a driver's
        why = str(error).strip().partition("\n")[0]
        _log.warning("fused_layers: SwiGLU and rotary embeddings stay as they are, because torch.compile does not work here: %s", why)
        return False
    return True
