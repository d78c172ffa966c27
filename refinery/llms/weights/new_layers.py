"""Layers of an encoder judge that are missing from its base's weights, such as the pooler of DeBERTa and the head of ModernBERT.

They are initialized at random whenever the base is loaded, so an adapter has to hold them. PEFT does so for layers named `classifier` or
`score`, and leaves out the others.
"""

from collections.abc import Collection, Mapping
from typing import TYPE_CHECKING, Any, cast

from refinery.errors import CheckpointError

if TYPE_CHECKING:
    from peft import PeftModel
    from transformers import PreTrainedModel

_HEADS = ("classifier", "score")  # which every adapter of a classifier holds


def name_new_layers(model: "PreTrainedModel", missing: Collection[str]) -> None:
    """Record on a loaded model the layers that its `missing` weights belong to."""
    cast(Any, model).new_layers = sorted({name.rpartition(".")[0] for name in missing})


def new_layers_of(model: "PreTrainedModel | PeftModel") -> list[str]:
    """The layers besides the head whose weights were initialized at random when the model was loaded."""
    layers: list[str] = getattr(model, "new_layers", [])
    return [layer for layer in layers if layer.partition(".")[0] not in _HEADS]


def check_new_layers(path: str, model: "PreTrainedModel", config: Mapping[str, Any], *, base: str) -> None:
    """Raise CheckpointError if the adapter at `path` lacks layers that are also missing from its base."""
    held = (*(config.get("modules_to_save") or ()), *_HEADS)
    lacking = [layer for layer in new_layers_of(model) if not layer.endswith(held)]
    if lacking:
        raise CheckpointError(
            f"{path}: does not hold the layer {lacking[0]}, of which {base} has no weights, so it would give other labels each time "
            "that it is loaded. Train it again."
        )
