"""Build the LLM that a recipe names."""

from typing import Any, Literal

from pydantic import Field

from refinery.llms.endpoint import EndpointConfig
from refinery.recipe import Recipe


class ModelConfig(Recipe):
    """A causal model on this machine: a whole checkpoint or adapter, or several adapters on one base."""

    base: str = Field(description="hub name or folder of a model, or of an adapter, which is then merged into its base")
    adapters: dict[str, str] = Field(default={}, description="adapters by role, kept apart and mixed in one batch")
    dtype: Literal["auto", "float32", "bfloat16", "float16"] = "auto"
    device: str = Field("auto", description="'auto' is the first GPU where there is one, else the CPU")
    kv_token_budget: int = Field(65_536, description="bounds rows x length of a micro-batch; small is slower, never different", ge=1)
    seed: int = Field(633, description="for sampling; RQ-RAG's inference uses 633")


def build_llm(config: ModelConfig | EndpointConfig) -> Any:
    """The Hugging Face engine over the configured model, or chats with the endpoint. Raises CheckpointError when the parts disagree."""
    if isinstance(config, EndpointConfig):
        from refinery.llms.remote import RemoteLLM

        return RemoteLLM(config)
    import torch

    from refinery.llms.checkpoint import load_checkpoint, load_with_adapters
    from refinery.llms.huggingface import HuggingFaceLLM

    if config.adapters:
        model, tokenizer = load_with_adapters(config.base, config.adapters, dtype=config.dtype)
    else:
        model, tokenizer = load_checkpoint(config.base, dtype=config.dtype)
    automatic = "cuda" if torch.cuda.is_available() else "cpu"
    model = model.to(automatic if config.device == "auto" else config.device)
    return HuggingFaceLLM(model, tokenizer, adapters=tuple(config.adapters), kv_token_budget=config.kv_token_budget, seed=config.seed)
