"""The shapes of the models in the papers and in recipes/{instruct,real}, for planning their memory before any download.

They are taken from each model's published config.json. Any other base's configuration is read when it is needed.
"""

from functools import cache
from typing import Any

_LLAMA_2 = {"model_type": "llama", "vocab_size": 32000, "tie_word_embeddings": False}
_LLAMA_2_7B = {**_LLAMA_2, "hidden_size": 4096, "num_hidden_layers": 32, "num_attention_heads": 32, "intermediate_size": 11008}
_LLAMA_2_13B = {**_LLAMA_2, "hidden_size": 5120, "num_hidden_layers": 40, "num_attention_heads": 40, "intermediate_size": 13824}
_LLAMA_3 = {"model_type": "llama", "vocab_size": 128256, "tie_word_embeddings": False}
_LLAMA_3_8B = {
    **_LLAMA_3,
    "hidden_size": 4096,
    "num_hidden_layers": 32,
    "num_attention_heads": 32,
    "num_key_value_heads": 8,
    "intermediate_size": 14336,
}
_LLAMA_3_SMALL = {**_LLAMA_3, "tie_word_embeddings": True, "num_key_value_heads": 8, "intermediate_size": 8192}
_QWEN_3 = {
    "model_type": "qwen3",
    "vocab_size": 151936,
    "num_hidden_layers": 36,
    "num_attention_heads": 32,
    "num_key_value_heads": 8,
    "head_dim": 128,
}
_T5 = {"model_type": "t5", "vocab_size": 32128, "d_kv": 64}
_LARGE = {"d_model": 1024, "num_layers": 24, "num_heads": 16}

SHAPES: dict[str, dict[str, Any]] = {
    "meta-llama/Llama-2-7b-hf": _LLAMA_2_7B,
    "meta-llama/Llama-2-7b-chat-hf": _LLAMA_2_7B,
    "luohy/SAIL-7b": _LLAMA_2_7B,
    "selfrag/selfrag_llama2_7b": {**_LLAMA_2_7B, "vocab_size": 32016},
    "zorowin123/rq_rag_llama2_7B": {**_LLAMA_2_7B, "vocab_size": 32016},  # with control tokens, padded to a multiple of 8
    "meta-llama/Llama-2-13b-hf": _LLAMA_2_13B,
    "selfrag/selfrag_llama2_13b": {**_LLAMA_2_13B, "vocab_size": 32016},  # with reflection tokens
    "meta-llama/Meta-Llama-3-8B": _LLAMA_3_8B,
    "meta-llama/Meta-Llama-3-8B-Instruct": _LLAMA_3_8B,
    "meta-llama/Llama-3.1-8B-Instruct": _LLAMA_3_8B,
    "meta-llama/Llama-3.2-1B-Instruct": {**_LLAMA_3_SMALL, "hidden_size": 2048, "num_hidden_layers": 16, "num_attention_heads": 32},
    "meta-llama/Llama-3.2-3B-Instruct": {**_LLAMA_3_SMALL, "hidden_size": 3072, "num_hidden_layers": 28, "num_attention_heads": 24},
    "Qwen/Qwen2.5-7B-Instruct": {
        "model_type": "qwen2",
        "vocab_size": 152064,
        "tie_word_embeddings": False,
        "hidden_size": 3584,
        "num_hidden_layers": 28,
        "num_attention_heads": 28,
        "num_key_value_heads": 4,
        "intermediate_size": 18944,
    },
    "Qwen/Qwen3-4B": {**_QWEN_3, "tie_word_embeddings": True, "hidden_size": 2560, "intermediate_size": 9728},
    "Qwen/Qwen3-8B": {**_QWEN_3, "tie_word_embeddings": False, "hidden_size": 4096, "intermediate_size": 12288},
    "mistralai/Mistral-7B-Instruct-v0.3": {
        **_LLAMA_3_8B,
        "model_type": "mistral",
        "vocab_size": 32768,
        "sliding_window": None,
    },
    "google/gemma-3-4b-it": {  # its text model; the vision tower is not trained
        "model_type": "gemma3_text",
        "vocab_size": 262208,
        "tie_word_embeddings": True,
        "hidden_size": 2560,
        "num_hidden_layers": 34,
        "num_attention_heads": 8,
        "num_key_value_heads": 4,
        "head_dim": 256,
        "intermediate_size": 10240,
    },
    "facebook/contriever-msmarco": {"model_type": "bert"},  # BERT-base's, which is the default of transformers
    "HuggingFaceTB/SmolLM2-135M-Instruct": {
        "model_type": "llama",
        "vocab_size": 49152,
        "tie_word_embeddings": True,
        "hidden_size": 576,
        "num_hidden_layers": 30,
        "num_attention_heads": 9,
        "num_key_value_heads": 3,
        "intermediate_size": 1536,
    },
    "google-t5/t5-base": {**_T5, "d_model": 768, "num_layers": 12, "num_heads": 12, "d_ff": 3072},
    "google-t5/t5-large": {**_T5, **_LARGE, "d_ff": 4096},
    "google/flan-t5-large": {**_T5, **_LARGE, "d_ff": 2816, "feed_forward_proj": "gated-gelu"},
}
# How many ids the base reserves under special names; elsewhere, control tokens are new rows.
RESERVED = {
    "meta-llama/Meta-Llama-3-8B": 250,
    **dict.fromkeys((f"meta-llama/Llama-{name}-Instruct" for name in ("3.1-8B", "3.2-1B", "3.2-3B")), 247),
}


def config_of(base: str) -> Any:
    """The configuration of a base: from the table, its folder or the hub. Raises CheckpointError when none is found."""
    from transformers import AutoConfig

    from refinery.errors import CheckpointError
    from refinery.llms.weights.hub_files import small_files

    if base in SHAPES:
        shape = dict(SHAPES[base])
        return AutoConfig.for_model(shape.pop("model_type"), **shape)
    try:
        return AutoConfig.from_pretrained(small_files(base), trust_remote_code=False)
    except (OSError, ValueError) as error:
        reason = str(error).strip().split("\n")[0]
        raise CheckpointError(
            f"{base}: no configuration can be read ({reason}), and refinery/llms/weights/shapes.py has no shape of that name."
        ) from None


@cache
def parameters_of(model: str) -> int | None:
    """The number of parameters of a model in the table, in a folder or on the hub, including an adapter's base; None if unknown."""
    import torch
    from transformers import AutoModel

    from refinery.errors import CheckpointError
    from refinery.llms.weights.hub_files import read_small_json

    try:
        adapter = None if model in SHAPES else read_small_json(model, "adapter_config.json")
        config = config_of(adapter["base_model_name_or_path"] if adapter else model)
        with torch.device("meta"):
            return sum(parameter.numel() for parameter in AutoModel.from_config(config).parameters())
    except (CheckpointError, ValueError):
        return None
