"""The floor of the engine's time: the model's own forward pass over as many tokens as a tree has, with nothing around it.

The tokens stand in sequences as long as a whole path, which attend to about as much as the tree's own, and are read as a prompt is, many
at a time. So this is less work than any decoder can do, which must write one token after the other.
"""

import time
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from transformers import PreTrainedModel

_SEQUENCES = 8
_ROWS = 256


def bare_seconds(model: "PreTrainedModel", *, tokens: int, scored: int, length: int) -> float:
    """Seconds of forward passes over `tokens` tokens in sequences of `length`, with the log-probabilities of `scored` of them.

    Measured on a few sequences: process time on a CPU, wall-clock time elsewhere.
    """
    import torch

    now = time.process_time if model.device.type == "cpu" else time.perf_counter
    kept = torch.arange(round(length * scored / tokens), device=model.device)
    ids = torch.randint(model.config.vocab_size, (1, length), device=model.device)
    with torch.no_grad():
        model(input_ids=ids[:, :16]).logits.sum().item()  # the first pass compiles and allocates
        started = now()
        for _ in range(_SEQUENCES):
            logits = model(input_ids=ids, logits_to_keep=kept).logits[0]
            for start in range(0, len(kept), _ROWS):
                rows = logits[start : start + _ROWS].float()
                (rows[:, 0] - rows.logsumexp(-1)).tolist()
        return (now() - started) / _SEQUENCES * tokens / length
