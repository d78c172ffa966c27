"""Build the LLM that a recipe names."""

import logging
from typing import TYPE_CHECKING, Annotated, Any, Literal

from pydantic import Field, StringConstraints, ValidationInfo, field_validator

from refinery.contract.tokenizer import Tokenizer
from refinery.errors import CheckpointError, LLMError, RecipeError
from refinery.llms.base import LLM
from refinery.llms.served.endpoint import CHAT_TEMPLATE, EndpointConfig, ServedModelConfig
from refinery.llms.vllm.keys import VllmKeys, refuse_keys
from refinery.llms.weights.device import inference_dtype, own_device, use_attention_of_any_shape, warn_of_slow_bfloat16
from refinery.llms.weights.families import FamilyName, checkpoint_family
from refinery.runtime.concurrency.background_loop import run_anywhere

if TYPE_CHECKING:
    from peft import PeftModel
    from transformers import PreTrainedModel

logger = logging.getLogger(__name__)
# A role becomes the name of a PEFT adapter, and torch allows no dots in module names.
Role = Annotated[str, StringConstraints(pattern=r"^[A-Za-z_][A-Za-z0-9_-]*$")]


class ModelConfig(VllmKeys):
    """A model on this machine: a whole checkpoint, an adapter, or several adapters on one base. Its family follows from the checkpoint."""

    base: str = Field(description="hub name or folder of a model, or of an adapter to merge into its base")
    adapters: dict[Role, str] = Field(default={}, description="adapters by role; they stay separate and may be mixed in one batch")
    dtype: Literal["auto", "float32", "bfloat16", "float16"] = Field(
        default="auto",
        description="'auto' is the dtype of the stored weights, or float32 on a processor that emulates bfloat16 in software",
    )
    chat_template: str = CHAT_TEMPLATE
    device: str = Field(
        default="auto",
        description="'auto' is the accelerator (cuda, mps, xpu) if there is one, a separate one for each process, else the CPU",
    )
    kv_tokens: int | None = Field(
        default=None,
        description="most tokens in the KV cache; a lower limit is slower but never changes results. "
        "By default as many as fit in a quarter of the memory that is free, or in half of a GPU's",
        ge=1,
    )
    cuda_graphs: bool = Field(
        default=False,
        description="on a GPU, decode in few padded shapes by replaying the kernels of a step, instead of launching each from Python;"
        " so far tested on a CPU only, and therefore not the default",
    )
    seed: int = Field(default=633, description="for sampling; RQ-RAG's inference uses 633")
    engine: Literal["transformers", "vllm", "auto"] = Field(
        default="transformers",
        description="what decodes in this process: our engine over transformers, or vLLM (extra `vllm`), for decoders on GPUs; `auto` is "
        "vLLM where it is installed, a GPU is there and it can serve the model as it is",
        validate_default=True,
    )

    @field_validator("engine")
    @classmethod
    def _with_its_keys(cls, engine: str, info: ValidationInfo) -> str:
        if engine != "auto":  # which takes the keys of either
            of_other = ("device", "kv_tokens", "cuda_graphs") if engine == "vllm" else tuple(VllmKeys.model_fields)
            refuse_keys(of_other, cls, info.data, kind="engine")
        return engine


def build_llm(config: ModelConfig | EndpointConfig) -> LLM:
    """The LLM of a configuration: the engine for a model's family, or a client of a chat or completions endpoint.

    Raises CheckpointError when base, adapters and tokenizer disagree, UnusableEndpoint when a completions endpoint does not answer.
    """
    if isinstance(config, ServedModelConfig) and config.tokenizer:
        return _served(config, config.tokenizer)
    if isinstance(config, EndpointConfig):
        from refinery.llms.served.chat_llm import ChatLLM
        from refinery.llms.served.completions.context_limit import served_context_limit

        if not isinstance(config, ServedModelConfig):
            return ChatLLM(config)
        return ChatLLM(config, run_anywhere(served_context_limit(config)), label_samples=config.label_samples)
    if config.engine == "vllm" or (config.engine == "auto" and _vllm_can(config)):
        from refinery.llms.vllm.completions import vllm_llm

        given = {"dtype": config.dtype, "chat_template": config.chat_template, "seed": config.seed}
        return vllm_llm(config.base, config.adapters, config, **given)
    from refinery.llms.engine.kv_budget import default_kv_tokens
    from refinery.llms.weights.checkpoint import load_checkpoint, load_with_adapters, read_adapter_config
    from refinery.llms.weights.embeddings import check_bundle

    family = model_family(config)
    if family == "classifier" and config.adapters:
        raise CheckpointError(
            f"{config.base}: an encoder cannot have adapters by role. Name each role's checkpoint as the base of a model."
        )
    device = own_device() if config.device == "auto" else config.device
    warn_of_slow_bfloat16(config.dtype, device, key="the model's dtype")
    dtype = inference_dtype(config.dtype, device)
    if config.adapters:
        check_bundle({path: read_adapter_config(path) or {} for path in config.adapters.values()})
        model, tokenizer = load_with_adapters(config.base, config.adapters, dtype=dtype, chat_template=config.chat_template)
    else:
        model, tokenizer = load_checkpoint(config.base, dtype=dtype, chat_template=config.chat_template)
    from refinery.llms.engine.out_of_memory import is_out_of_memory, memory_now

    try:
        model.to(device)  # pyright: ignore[reportArgumentType]  # transformers wraps it in a way that hides `self`
    except RuntimeError as error:
        if not is_out_of_memory(error):
            raise
        said = f"{config.base}: does not fit on {device}.{memory_now()} End what else runs there, or take a smaller model."
        raise LLMError(said) from None
    kv_tokens = config.kv_tokens or default_kv_tokens(model, family)
    if family == "classifier":
        return llm_over(model, tokenizer, family, kv_tokens=kv_tokens)
    graphs = {"static_shapes": True} if family == "causal" and config.cuda_graphs and model.device.type == "cuda" else {}
    return llm_over(model, tokenizer, family, adapters=tuple(config.adapters), kv_tokens=kv_tokens, seed=config.seed, **graphs)


def _vllm_can(config: ModelConfig) -> bool:
    """Whether vLLM can serve a model on this machine; logs why not."""
    from refinery.llms.vllm.engine import adapters_tokenizer, check_base, check_vllm

    if not own_device().startswith("cuda"):
        return False
    try:
        check_vllm(config, "engine")
        check_base(config.base)
        adapters_tokenizer(config.base, config.adapters, config.chat_template)
    except (RecipeError, CheckpointError) as error:
        logger.info("engine: auto is our own here: %s", error)
        return False
    return True


def model_family(config: ModelConfig) -> FamilyName:
    """The family of a recipe's model, read from the model's configuration."""
    return checkpoint_family(next(iter(config.adapters.values()), config.base))


def llm_over(model: "PreTrainedModel | PeftModel", tokenizer: Tokenizer, family: FamilyName, **settings: Any) -> LLM:
    """The engine for a loaded model of a family. `settings` are passed to the engine."""
    use_attention_of_any_shape()
    if family == "seq2seq":
        from refinery.llms.engine.seq2seq import Seq2SeqLLM

        return Seq2SeqLLM(model, tokenizer, **settings)
    if family == "classifier":
        from refinery.llms.engine.classifier import ClassifierLLM

        return ClassifierLLM(model, tokenizer, **settings)
    from refinery.llms.engine.huggingface import HuggingFaceLLM

    return HuggingFaceLLM(model, tokenizer, **settings)


def _served(config: ServedModelConfig, tokenizer: str) -> LLM:
    from refinery.llms.served.completions.capabilities import probe
    from refinery.llms.served.completions.llm import CompletionsLLM
    from refinery.llms.weights.checkpoint import load_tokenizer

    loaded = load_tokenizer(tokenizer, config.chat_template)
    able = run_anywhere(probe(config, loaded))
    if able.token_id_prompts and not able.cached_tokens:
        logger.warning(
            "endpoint model '%s' reports no tokens of a prefix cache, so prefill tokens are counted as if each prompt were read whole, and"
            " costs say 'at most'. vLLM reports them with --enable-prompt-tokens-details.",
            config.model,
        )
    return CompletionsLLM(config, loaded, able)
