"""Tiny random models of the decoder-only families that users bring, with windows of a few tokens; the same weights every time."""

from typing import Any

WINDOW = 8
_LAYERS = 3
_MIXED = ["sliding_attention", "full_attention", "sliding_attention"]
_SHAPE = {
    "hidden_size": 32,
    "intermediate_size": 64,
    "num_hidden_layers": _LAYERS,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 512,
    "initializer_range": 0.3,
}
_EXPERTS = {"num_experts_per_tok": 2, "moe_intermediate_size": 32}
_LLAMA_3 = {
    "rope_type": "llama3",
    "rope_theta": 10_000.0,
    "factor": 8.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 64,
}
_GEMMA_3 = {**_SHAPE, "head_dim": 8, "sliding_window": WINDOW, "layer_types": _MIXED, "final_logit_softcapping": 2.0}
_VISION = {"hidden_size": 16, "intermediate_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2, "image_size": 32, "patch_size": 16}

# By a name for the test: what transformers calls the family, and its configuration.
FAMILIES: dict[str, tuple[str, dict[str, Any]]] = {
    "llama-2": ("llama", _SHAPE | {"num_key_value_heads": 4}),
    "llama-3": ("llama", _SHAPE | {"rope_parameters": _LLAMA_3, "tie_word_embeddings": True}),
    "mistral": ("mistral", _SHAPE | {"sliding_window": WINDOW}),
    "mixtral": ("mixtral", _SHAPE | {"sliding_window": WINDOW, "num_local_experts": 4}),
    "qwen2": ("qwen2", _SHAPE | {"tie_word_embeddings": True}),
    "qwen2-window": ("qwen2", _SHAPE | {"use_sliding_window": True, "sliding_window": WINDOW, "max_window_layers": 1}),
    "qwen3": ("qwen3", _SHAPE | {"head_dim": 16}),
    "qwen3-moe": ("qwen3_moe", _SHAPE | _EXPERTS | {"num_experts": 4, "head_dim": 8}),
    "gemma-2": (
        "gemma2",
        _SHAPE | {"head_dim": 8, "sliding_window": WINDOW, "attn_logit_softcapping": 2.0, "final_logit_softcapping": 2.0},
    ),
    "gemma-3": ("gemma3_text", _GEMMA_3),
    "gemma-3-vision": ("gemma3", {"text_config": _GEMMA_3, "vision_config": _VISION, "mm_tokens_per_image": 4}),
    "gpt-oss": ("gpt_oss", _SHAPE | {"head_dim": 8, "sliding_window": WINDOW, "num_local_experts": 4, "num_experts_per_tok": 2}),
    "phi-3": ("phi3", _SHAPE | {"sliding_window": WINDOW}),
    "olmo-2": ("olmo2", _SHAPE),
    "olmo-3": ("olmo3", _SHAPE | {"sliding_window": WINDOW, "layer_types": _MIXED}),
    "granite": ("granite", _SHAPE | {"logits_scaling": 4.0, "embedding_multiplier": 3.0, "residual_multiplier": 0.5}),
    "cohere-2": ("cohere2", _SHAPE | {"sliding_window": WINDOW, "layer_types": _MIXED, "logit_scale": 0.25}),
    "smollm-3": ("smollm3", _SHAPE | {"no_rope_layers": [1, 0, 1], "tie_word_embeddings": True}),
    "gpt-neox": ("gpt_neox", {key: value for key, value in _SHAPE.items() if key != "num_key_value_heads"}),
    "gpt-2": ("gpt2", {"n_embd": 32, "n_layer": _LAYERS, "n_head": 4, "n_positions": 512, "initializer_range": 0.3}),
}
_HYBRID = {"layer_types": ["linear_attention", "full_attention", "linear_attention"]}
# What cannot be decoded in a tree, and the word by which it is refused.
REFUSED: dict[str, tuple[str, dict[str, Any], str]] = {
    "qwen3-next": ("qwen3_next", _SHAPE | _HYBRID, "linear_attention"),
    "mamba": ("mamba", {}, "linear_attention"),
    "jamba": ("jamba", {}, "linear_attention"),
    "falcon-h1": ("falcon_h1", {}, "hybrid"),
    "llama-4": ("llama4_text", _SHAPE, "chunked_attention"),
    "gemma-3n": ("gemma3n_text", {}, "share their keys"),
    "bert": ("bert", {}, "encoder"),
    "falcon-alibi": ("falcon", {"alibi": True}, "a nonstandard form of attention"),
}


def family_config(model_type: str, values: dict[str, Any], tokenizer: Any) -> Any:
    """A configuration that begins, ends and pads as the tokenizer does."""
    from transformers import AutoConfig

    ids = {name: getattr(tokenizer, name) for name in ("bos_token_id", "eos_token_id", "pad_token_id")}
    ids["vocab_size"] = len(tokenizer)
    if "text_config" in values:
        return AutoConfig.for_model(model_type, **values | {"text_config": values["text_config"] | ids})
    return AutoConfig.for_model(model_type, **values | ids)


def family_model(name: str, tokenizer: Any) -> Any:
    """The random model of a family that is decoded."""
    import torch
    from transformers import AutoModelForCausalLM

    torch.manual_seed(0)
    return AutoModelForCausalLM.from_config(family_config(*FAMILIES[name], tokenizer)).eval()
