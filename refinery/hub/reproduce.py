"""Three outputs of a checkpoint, by which a pushed copy proves to be the same model.

A training run writes its prompts to `examples.jsonl`, as token ids: its data files may be gone when it is pushed, and outside text in a
prompt is never parsed again. The outputs are made twice at the time of the push, from the run and from what the hub gave back, on the CPU:
one machine and one precision, so that equal weights give equal outputs, and no GPU memory beside a training that is still there.
"""

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from refinery.contract.tokenizer import Tokenizer

if TYPE_CHECKING:
    from transformers import LlamaForCausalLM, PreTrainedModel

EXAMPLES_FILE = "examples.jsonl"
NUM_EXAMPLES = 3
_MAX_NEW_TOKENS = 24


def read_examples(folder: Path) -> list[dict[str, Any]]:
    """`{"text", "input_ids"}` of each prompt; empty where the folder has none."""
    path = folder / EXAMPLES_FILE
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()] if path.exists() else []


def outputs(folder: Path, examples: list[dict[str, Any]]) -> list[str]:
    """What the checkpoint in `folder` gives for each prompt, greedily: the text, or an encoder's label probabilities.

    Raises CheckpointError when it cannot be loaded.
    """
    from refinery.llms.weights.checkpoint import load_checkpoint

    return outputs_of(*load_checkpoint(str(folder)), examples)


def outputs_of(model: "PreTrainedModel", tokenizer: Tokenizer, examples: list[dict[str, Any]]) -> list[str]:
    """The same for a model that is loaded."""
    import torch

    from refinery.llms.weights.families import head_labels

    model.eval()
    found = []
    with torch.inference_mode():
        for example in examples:
            ids = torch.tensor([example["input_ids"]])
            if model.can_generate():
                # transformers' type of `self` has attributes that no model declares.
                written = cast("LlamaForCausalLM", model).generate(  # pyright: ignore[reportAttributeAccessIssue]
                    input_ids=ids, attention_mask=torch.ones_like(ids), do_sample=False, max_new_tokens=_MAX_NEW_TOKENS
                )
                start = 0 if model.config.is_encoder_decoder else ids.shape[1]
                found.append(tokenizer.decode(written[0, start:], skip_special_tokens=False))
            else:
                probs = model(input_ids=ids).logits[0].float().softmax(-1).tolist()
                found.append(", ".join(f"{label} {share:.4f}" for label, share in zip(head_labels(model), probs, strict=True)))
    return found
