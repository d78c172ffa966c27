"""Model FLOP utilization on a GPU: LoRA in bfloat16 on the shape of Llama-2-7B with random weights, packed to 4,096 tokens.

The count covers the model's own FLOPs (PaLM App. B) without recomputation: 2 for each weight and token forward and 2 backward through it,
2 more if the weight is trained; causal attention within each row; the head on supervised positions only.
"""

import tempfile
import time
from collections.abc import Sequence
from typing import Any

from refinery.contract.segments import IGNORED_LABEL

_WARM_UP, _TIMED = 4, 16  # steps
# Dense bfloat16 FLOPs per second, from the manufacturers' data sheets; for GPUs sold in several forms, the fastest form.
_PEAK = {"B200": 2.25e15, "H200": 989e12, "H100": 989e12, "H800": 989e12, "A100": 312e12, "A800": 312e12, "L40S": 362e12, "4090": 165e12}


def measure_mfu() -> dict[str, Any]:
    """`mfu` with fused layers and the `gpu` it was measured on; both None without a GPU whose peak is known."""
    import torch

    from train.families.fused_layers import fused_layers

    name, peak = torch.cuda.get_device_name() if torch.cuda.is_available() else None, peak_flops()
    if peak is None:
        return {"mfu": None, "gpu": name}
    with tempfile.TemporaryDirectory() as folder:
        trainer = build_lora_trainer("meta-llama/Llama-2-7b-hf", folder, rows=16 * (_WARM_UP + _TIMED), max_length=4096)
        with fused_layers(trainer.model, compiler="inductor"):
            seconds = _seconds_per_step(trainer)
    return {"mfu": round(flops_per_step(trainer) / (seconds * peak), 3), "gpu": name}


def peak_flops() -> float | None:
    """Dense bfloat16 FLOPs per second of the GPU here; None without one, or if its name is not in the table."""
    import torch

    name = torch.cuda.get_device_name() if torch.cuda.is_available() else ""
    return next((peak for part, peak in _PEAK.items() if part in name), None)


def build_lora_trainer(shape: str, folder: str, *, rows: int, max_length: int) -> Any:
    """Our trainer of a LoRA adapter on random bfloat16 weights of a shape (refinery/llms/weights/shapes.py), over `rows` packed rows.

    Each step is one bin.
    """
    import torch
    from transformers import AutoModelForCausalLM

    from benchmarks.train.rows import trajectory_rows
    from recipes.demo.base_model.tokenizer import build_tokenizer
    from refinery.llms.weights.shapes import config_of
    from train.families.adapter import add_adapter
    from train.families.causal import build_trainer
    from train.recipe import TrainRecipe

    recipe = TrainRecipe.model_validate(
        {
            "task": "refinement", "base": shape, "data": ["random"], "output_dir": folder, "strategy": "lora", "lora_rank": 64,
            "lora_dropout": 0.0, "learning_rate": 2e-5, "max_length": max_length, "packing": True, "per_device_train_batch_size": 1,
            "gradient_accumulation_steps": 1, "gradient_checkpointing": False, "max_steps": _WARM_UP + _TIMED, "save_steps": 10_000,
        }
    )  # fmt: skip
    config = config_of(shape)
    config.use_cache = False
    with torch.device("cuda" if torch.cuda.is_available() else "cpu"):
        model = AutoModelForCausalLM.from_config(config, dtype=torch.bfloat16, attn_implementation="sdpa")
    tokenizer = build_tokenizer(1856)
    encoded = trajectory_rows(rows, vocabulary=config.vocab_size, scale=max_length / 4096, seed=0)
    return build_trainer(add_adapter(model, tokenizer, recipe, []), tokenizer, encoded, recipe)


def flops_per_step(trainer: Any) -> float:
    """FLOPs of one bin, as the mean over the trainer's dataset."""
    config = trainer.model.config
    decoder = trainer.model.get_decoder()
    weights = [(parameter.numel(), parameter.requires_grad) for parameter in decoder.parameters() if parameter.dim() == 2]
    embedding = trainer.model.get_input_embeddings().weight.numel()  # looked up, not multiplied
    per_token = sum((6 if trains else 4) * count for count, trains in weights) - 4 * embedding
    bins = trainer.train_dataset
    tokens = sum(len(example["input_ids"]) for example in bins) / len(bins)
    head = 4 * config.vocab_size * config.hidden_size * _supervised(bins["labels"]) / len(bins)
    squares = sum(length**2 for example in bins for length in example["seq_lengths"]) / len(bins)
    attention = 6 * config.num_hidden_layers * config.num_attention_heads * config.head_dim * squares
    return per_token * tokens + head + attention


def _supervised(labels: Sequence[list[int]]) -> int:
    return sum(label != IGNORED_LABEL for row in labels for label in row)


def _seconds_per_step(trainer: Any) -> float:
    """Seconds per step after the warm-up, with the GPU idle at both ends."""
    import torch
    from transformers import TrainerCallback

    class Stopwatch(TrainerCallback):
        """The clock at the end of the warm-up and of training."""

        def on_step_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
            """Wait for the GPU only at the two steps that are timed."""
            if state.global_step in (_WARM_UP, _WARM_UP + _TIMED):
                torch.cuda.synchronize()
                self.clock = (getattr(self, "clock", (0.0, 0.0))[1], time.perf_counter())

    stopwatch = Stopwatch()
    trainer.add_callback(stopwatch)
    trainer.train()
    begun, ended = stopwatch.clock
    return (ended - begun) / _TIMED
