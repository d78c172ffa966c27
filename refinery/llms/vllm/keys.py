"""The recipe keys of a model that vLLM runs in this process, with vLLM's own names where it has one."""

from collections.abc import Mapping
from typing import Any

from pydantic import Field

from refinery.runtime.recipe import Recipe


class VllmKeys(Recipe):
    """How vLLM loads a model. The keys are refused for a model that something else runs."""

    tensor_parallel: int = Field(default=1, description="vLLM: the number of GPUs that share each layer", ge=1)
    gpu_memory_utilization: float = Field(
        default=0.9, description="vLLM: the share of each GPU's memory for weights and key-value cache together", gt=0, le=1
    )
    max_model_len: int | None = Field(
        default=None, description="vLLM: most tokens of a prompt and its reply together; None is the model's own limit", ge=1
    )


def refuse_keys(of_other: tuple[str, ...], config: type[Recipe], values: Mapping[str, Any], *, kind: str) -> None:
    """Raise ValueError if a part of a recipe gives a key of the other `kind` another value than its default."""
    for name in of_other:
        if name in values and values[name] != config.model_fields[name].default:
            raise ValueError(f"`{name}` is a key of the other {kind}; leave it out, or choose that {kind}")
