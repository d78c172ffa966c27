"""What is checked before vLLM loads a model, which takes minutes: that it is installed, and that it can serve the checkpoint as it is."""

from collections.abc import Mapping
from importlib.util import find_spec

from refinery.contract.tokenizer import Tokenizer
from refinery.errors import CheckpointError
from refinery.llms.vllm.keys import VllmKeys
from refinery.llms.weights.checkpoint import check_template, load_tokenizer, read_adapter_config
from refinery.llms.weights.families import checkpoint_family
from refinery.llms.weights.hub_files import read_small_json
from refinery.runtime.run.process_rank import num_processes


def check_vllm(keys: VllmKeys, key: str) -> None:
    """Raise RecipeError, about the recipe's `key` that asks for vLLM, if it is not installed or a launcher started several processes."""
    if getattr(find_spec("vllm"), "origin", None) is None:  # a mere folder of this name has none
        raise keys.fault(key, "vLLM is not installed. Install it: pip install 'rag-refinery[vllm]'")
    if (processes := num_processes()) > 1:
        raise keys.fault(
            key, f"each of {processes} processes would load vLLM on the same GPUs. Start one, and set tensor_parallel, or run shards."
        )


def check_base(base: str) -> None:
    """Raise CheckpointError unless the checkpoint is a whole decoder."""
    if read_adapter_config(base) is not None:
        raise CheckpointError(
            f"{base}: is an adapter, and vLLM loads whole models. Merge it (refinery merge {base} --output DIR) and name that folder."
        )
    if (family := checkpoint_family(base)) != "causal":
        raise CheckpointError(f"{base}: is a {family} model, and vLLM is used for decoders only. Use `engine: transformers`.")


def adapters_tokenizer(base: str, adapters: Mapping[str, str], chat_template: str) -> Tokenizer:
    """The tokenizer of a base and its adapters by role. Raises CheckpointError for an adapter that vLLM cannot add to its base."""
    tokenizer = load_tokenizer(base, chat_template)
    for path in adapters.values():
        config = read_adapter_config(path)
        if config is None:
            raise CheckpointError(f"{path}: no adapter_config.json, so it is not an adapter. Name the output_dir of a LoRA run.")
        own = load_tokenizer(path, chat_template) if read_small_json(path, "tokenizer_config.json") else tokenizer
        reasons = {
            "trains token rows": config.get("trainable_token_indices") or len(own) > len(tokenizer),
            "is a DoRA adapter": config.get("use_dora"),
            "is an activated adapter": config.get("alora_invocation_tokens"),
        }
        if reason := next((reason for reason, applies in reasons.items() if applies), None):
            raise CheckpointError(
                f"{path}: {reason}, which vLLM does not add to a base. Merge it (refinery merge {path} --output DIR) and name that folder "
                "as the `base` of a model of its own."
            )
        tokenizer = own
    for path in adapters.values():
        check_template(path, tokenizer)  # the last adapter's tokenizer serves all of them
    return tokenizer
