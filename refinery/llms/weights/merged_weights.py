"""The weights of a model in training as one checkpoint, with an adapter merged in. The model itself is not changed."""

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, cast

if TYPE_CHECKING:
    import torch
    from peft import PeftModel
    from transformers import PreTrainedModel

_ADAPTER = ".base_layer"  # the end of the name of a module that PEFT has wrapped
_TOKENS = ".token_adapter"  # the same for an embedding or head with trained rows


def merged_weights(model: "PreTrainedModel | PeftModel", dtype: "torch.dtype") -> "dict[str, torch.Tensor]":
    """Every weight on the CPU, by its name in the base and in `dtype`; of tied weights, the first only."""
    from peft import PeftModel

    base = cast("PreTrainedModel", model.get_base_model() if isinstance(model, PeftModel) else model)
    tied = cast("dict[str, str]", base.all_tied_weights_keys)
    return {name: weight.detach().to("cpu", dtype) for name, weight in _merged(base) if name not in tied}


def _merged(base: "PreTrainedModel") -> "Iterator[tuple[str, torch.Tensor]]":
    """Each weight by its name. A layer's adapter is merged into a copy, because taking it out again would leave rounding errors."""
    from peft.tuners.tuners_utils import BaseTunerLayer

    layers = {name: module for name, module in base.named_modules() if isinstance(module, BaseTunerLayer)}
    for name, layer in layers.items():
        weight = cast(Any, layer.get_base_layer()).weight
        before = weight.data
        weight.data = before.clone()
        layer.merge()
        yield f"{name.removesuffix(_TOKENS)}.weight", weight.data
        weight.data = before
        cast(Any, layer).merged_adapters.clear()
    for name, weight in base.state_dict().items():
        owner = next((layer for layer in layers if name.startswith(f"{layer}.")), None)
        if owner is None:
            yield name, weight
        elif name.startswith(f"{owner}{_ADAPTER}.") and not name.endswith(".weight"):
            yield name.replace(_ADAPTER, "").replace(_TOKENS, ""), weight  # a bias
