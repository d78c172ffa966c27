"""The recipe keys of a model that vLLM runs in this process, with vLLM's own names where it has one."""

from collections.abc import Mapping
from typing import Any

from pydantic import Field, field_validator

from refinery.runtime.recipe import Recipe
from refinery.text import did_you_mean

# vLLM's arguments for speed and memory. Others are said by keys, or name code that vLLM would import (`worker_cls`, `logits_processors`).
ENGINE_ARGUMENTS = (
    *("max_num_seqs", "max_num_batched_tokens", "quantization", "kv_cache_dtype", "kv_cache_memory_bytes", "block_size", "cpu_offload_gb"),
    *("enforce_eager", "enable_prefix_caching", "enable_chunked_prefill", "async_scheduling", "speculative_config", "max_loras"),
    *("max_cpu_loras", "pipeline_parallel_size", "data_parallel_size", "enable_expert_parallel", "disable_custom_all_reduce"),
)


class VllmKeys(Recipe):
    """How vLLM loads a model. The keys are refused for a model that something else runs."""

    tensor_parallel: int = Field(default=1, description="vLLM: the number of GPUs that share each layer", ge=1)
    gpu_memory_utilization: float = Field(
        default=0.9, description="vLLM: the share of each GPU's memory for weights and key-value cache together", gt=0, le=1
    )
    max_model_len: int | None = Field(
        default=None, description="vLLM: most tokens of a prompt and its reply together; None is the model's own limit", ge=1
    )
    engine_args: dict[str, Any] = Field(
        default={},
        description="vLLM: further arguments of its engine for speed and memory, by their own names, such as max_num_seqs or quantization",
    )

    @field_validator("engine_args")
    @classmethod
    def _are_known(cls, given: dict[str, Any]) -> dict[str, Any]:
        for name in given:
            if name not in ENGINE_ARGUMENTS:
                hint = did_you_mean(name, ENGINE_ARGUMENTS)
                raise ValueError(f"'{name}' cannot be given here.{hint} Available: {', '.join(ENGINE_ARGUMENTS)}")
        return given


def refuse_keys(of_other: tuple[str, ...], config: type[Recipe], values: Mapping[str, Any], *, kind: str) -> None:
    """Raise ValueError if a part of a recipe gives a key of the other `kind` another value than its default."""
    for name in of_other:
        if name in values and values[name] != config.model_fields[name].default:
            raise ValueError(f"`{name}` is a key of the other {kind}; leave it out, or choose that {kind}")
