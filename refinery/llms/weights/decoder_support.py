"""The causal families that the in-process engine decodes: those with one key and one value per token and layer, and causal attention only.

The engine forks, cuts and joins the keys and values of prefixes, which is impossible for a state that summarizes a prefix (Mamba, linear
attention). Every causal class of transformers 5.23 was compared with its plain forward pass, on tiny random models; classes that differed
are refused.
"""

from typing import TYPE_CHECKING

from refinery.errors import CheckpointError

if TYPE_CHECKING:
    from transformers import PreTrainedConfig

# transformers' names for layers that keep one key and one value per token, as a tree of prefixes requires.
FULL, SLIDING = "full_attention", "sliding_attention"
# Families whose classes fail or differ for reasons that their configuration does not show; then decoders cut out of encoder-decoders.
_OTHERS = ("bloom", "cpmant", "hrm_text", "moshi", "xlm", "xmod")
_HALVES = ("bart", "bigbird_pegasus", "marian", "mbart", "mvp", "pegasus", "trocr")
# Rotary scalings that turn every position by another angle once a text is longer than the model was pretrained on.
_BY_LENGTH = ("dynamic", "longrope")


def check_decoder(config: "PreTrainedConfig", *, path: str) -> None:
    """Raise CheckpointError for a causal checkpoint, by its configuration, that the engine would decode wrongly or not at all."""
    reason = _why_not(config)
    if reason:
        raise CheckpointError(
            f"{path}: {config.model_type} {reason}, which cannot be decoded here. Set `engine: vllm`, or serve it and name the server as "
            "the recipe's `endpoint`, or use a decoder with attention in every layer, such as Llama, Qwen3 or Gemma 3."
        )


def layer_kinds(config: "PreTrainedConfig") -> list[str]:
    """The distinct kinds of a model's layers. If the configuration lists none, all layers are alike."""
    named = getattr(config, "layer_types", None)
    if named:
        return sorted(set(named))
    return [SLIDING if getattr(config, "sliding_window", None) is not None else FULL]


def context_limit(config: "PreTrainedConfig") -> int | None:
    """The maximum sequence length. If rotary angles depend on the length, it is the longest one that keeps them the same in any batch."""
    limit = getattr(config, "max_position_embeddings", None)
    ropes = getattr(config, "rope_parameters", None) or {}
    by_kind = [rope for rope in ropes.values() if isinstance(rope, dict)]
    for rope in by_kind or [ropes]:
        if limit is not None and rope.get("rope_type") in _BY_LENGTH:
            limit = min(limit, rope.get("original_max_position_embeddings") or limit)
    return limit


def _why_not(config: "PreTrainedConfig") -> str | None:
    from transformers import MODEL_FOR_CAUSAL_LM_MAPPING

    text = config.get_text_config(decoder=True)
    model = MODEL_FOR_CAUSAL_LM_MAPPING.get(type(config), None)
    others = [kind for kind in layer_kinds(text) if kind not in (FULL, SLIDING)]
    if others:
        return f"has layers of kind {', '.join(others)}"
    if getattr(model, "_is_stateful", False):
        return "has state-space or linear-attention layers"
    if getattr(text, "num_kv_shared_layers", 0):
        return "has layers that share their keys and values"
    if config.is_encoder_decoder or not getattr(text, "is_causal", True) or getattr(text, "use_bidirectional_attention", False):
        return "reads in both directions"
    if hasattr(text, "add_cross_attention") and not getattr(text, "is_decoder", True):
        return "is an encoder, which reads in both directions"
    if config.model_type in (*_OTHERS, *_HALVES) or getattr(text, "alibi", False):
        return "uses a nonstandard form of attention"
    return None
