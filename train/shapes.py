"""The shapes of the papers' base models, so that training on them can be planned before 13 GB are downloaded.

From each model's published config.json. Any other base is read from its own.
"""

from typing import Any

_LLAMA_2 = {"model_type": "llama", "vocab_size": 32000, "tie_word_embeddings": False}
_LLAMA_3 = {"model_type": "llama", "vocab_size": 128256, "tie_word_embeddings": False}
_T5 = {"model_type": "t5", "vocab_size": 32128, "d_kv": 64}
_LARGE = {"d_model": 1024, "num_layers": 24, "num_heads": 16}

SHAPES: dict[str, dict[str, Any]] = {
    "meta-llama/Llama-2-7b-hf": {
        **_LLAMA_2,
        "hidden_size": 4096,
        "num_hidden_layers": 32,
        "num_attention_heads": 32,
        "intermediate_size": 11008,
    },
    "meta-llama/Llama-2-13b-hf": {
        **_LLAMA_2,
        "hidden_size": 5120,
        "num_hidden_layers": 40,
        "num_attention_heads": 40,
        "intermediate_size": 13824,
    },
    "meta-llama/Meta-Llama-3-8B": {
        **_LLAMA_3,
        "hidden_size": 4096,
        "num_hidden_layers": 32,
        "num_attention_heads": 32,
        "num_key_value_heads": 8,
        "intermediate_size": 14336,
    },
    "google-t5/t5-base": {**_T5, "d_model": 768, "num_layers": 12, "num_heads": 12, "d_ff": 3072},
    "google-t5/t5-large": {**_T5, **_LARGE, "d_ff": 4096},
    "google/flan-t5-large": {**_T5, **_LARGE, "d_ff": 2816, "feed_forward_proj": "gated-gelu"},
}
# How many ids the base keeps free under a name of its own; elsewhere control tokens are new rows.
RESERVED = {"meta-llama/Meta-Llama-3-8B": 250}


def config_of(base: str) -> Any:
    """The configuration of a base: from the table, else from its folder or the hub. Raises CheckpointError when there is none."""
    from transformers import AutoConfig

    from refinery.errors import CheckpointError

    if base in SHAPES:
        shape = dict(SHAPES[base])
        return AutoConfig.for_model(shape.pop("model_type"), **shape)
    try:
        return AutoConfig.from_pretrained(base, trust_remote_code=False)
    except (OSError, ValueError) as error:
        reason = str(error).strip().split("\n")[0]
        raise CheckpointError(f"{base}: no configuration can be read ({reason}), and train/shapes.py has no shape of that name.") from None
