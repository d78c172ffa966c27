"""The four trainers of the benchmark, over the same rows and model. `benchmarks/train/run.py` starts them in a separate process.

`packed` and `unpacked` are ours (train/families/causal.py): two bins of rows per batch, and padded batches of 8 rows, which hold about as
many tokens. `trl_default` is TRL's SFTTrainer with its own defaults, hence 8 padded rows; `trl_packed` the same with `packing=True`, its
two bins accumulated, since its attention pays for the square of a batch's tokens. All order their rows at random, train every weight, and
run with gradient checkpointing and bfloat16 autocast, which are TRL's defaults and ours. Both of ours use the head on supervised positions
only, so this contributes to the gain of `packed` over TRL but not over `unpacked`.
"""

import copy
import json
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import redirect_stdout
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Any, cast

import torch
from datasets import Dataset
from transformers import LlamaConfig, LlamaForCausalLM, TrainerCallback
from trl.trainer.sft_config import SFTConfig
from trl.trainer.sft_trainer import SFTTrainer

from benchmarks.train.rows import trajectory_rows
from recipes.demo.base_model.tokenizer import build_tokenizer
from refinery.contract.segments import IGNORED_LABEL, EncodedRow
from train.families.causal import build_trainer
from train.recipe import TrainRecipe
from train.rows.packing import PackingCollator

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

_MAX_LENGTH = 1024  # TRL's default, so that it truncates nothing
_VOCABULARY = 4096
_BINS = {"packing": True, "per_device_train_batch_size": 2, "gradient_accumulation_steps": 1}
_BINS_IN_TURN = {"packing": True, "per_device_train_batch_size": 1, "gradient_accumulation_steps": 2}
_PADDED = {"per_device_train_batch_size": 8, "gradient_accumulation_steps": 1}


class Arms:
    """One random Llama and one set of rows, trained for an epoch by the named trainer."""

    def __init__(self, rows: Sequence[EncodedRow], folder: Path, *, hidden_size: int, layers: int) -> None:
        self._rows, self._folder, self._tokenizer = list(rows), folder, build_tokenizer(_VOCABULARY // 2)
        self._supervised = sum(label != IGNORED_LABEL for row in rows for label in row.labels)
        torch.manual_seed(0)
        config = LlamaConfig(
            vocab_size=_VOCABULARY,
            hidden_size=hidden_size,
            intermediate_size=hidden_size * 11 // 4,
            num_hidden_layers=layers,
            num_attention_heads=max(hidden_size // 64, 1),
            max_position_embeddings=_MAX_LENGTH,
            use_cache=False,
        )
        self._model = LlamaForCausalLM(config)
        self.builders: dict[str, Callable[[int], Any]] = {
            "trl_default": lambda seed: self._trl(seed),
            "trl_packed": lambda seed: self._trl(seed, **_BINS_IN_TURN),
            "unpacked": lambda seed: self._ours(seed=seed, **_PADDED),
            "packed": lambda seed: self._ours(seed=seed, **_BINS),
        }

    def rate(self, arm: str, *, seed: int) -> float:
        """Supervised tokens per second of CPU time, first step to last; with one thread, that is wall time without other processes."""
        trainer, stopwatch = self.builders[arm](seed), _Stopwatch()
        trainer.add_callback(stopwatch)
        trainer.train()
        rate = self._supervised / stopwatch.seconds
        print(f"{arm}: {rate:.1f} supervised tokens a second")
        return rate

    def max_loss_difference(self) -> float:
        """The largest difference, in float32, between the loss of a bin and of its rows as one padded batch."""
        packed, unpacked = self._ours(dtype="float32", **_BINS), self._ours(dtype="float32", **_PADDED)
        pad = PackingCollator(self._tokenizer.pad_token_id, joined=False)
        differences = []
        with torch.no_grad():
            for example in packed.train_dataset:
                losses = [
                    trainer.compute_loss(trainer.model, batch)
                    for trainer, batch in ((packed, packed.data_collator([example])), (unpacked, pad(list(_rows_of(example)))))
                ]
                differences.append(abs(losses[0] - losses[1]).item())
        return max(differences)

    def _ours(self, **values: Any) -> Any:
        fixed = {"task": "refinement", "base": "random", "data": ["random"], "output_dir": str(self._folder), "strategy": "full"}
        recipe = TrainRecipe.model_validate(fixed | {"learning_rate": 2e-5, "epochs": 1, "max_length": _MAX_LENGTH} | values)
        return build_trainer(copy.deepcopy(self._model), self._tokenizer, self._rows, recipe)

    def _trl(self, seed: int, **values: Any) -> Any:
        arguments = SFTConfig(str(self._folder), num_train_epochs=1, seed=seed, use_cpu=True, **values)
        dataset = Dataset.from_dict({"input_ids": [row.input_ids for row in self._rows], "labels": [row.labels for row in self._rows]})
        tokenizer = cast("PreTrainedTokenizerBase", self._tokenizer)
        return SFTTrainer(copy.deepcopy(self._model), arguments, train_dataset=dataset, processing_class=tokenizer)


class _Stopwatch(TrainerCallback):
    """CPU seconds from the start of training to the end of its last step, before the checkpoint is written."""

    def on_train_begin(self, *_: Any, **__: Any) -> None:
        self._begun = time.process_time()

    def on_step_end(self, *_: Any, **__: Any) -> None:
        self.seconds = time.process_time() - self._begun


def _rows_of(example: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """The rows of a packed example."""
    start = 0
    for length in example["seq_lengths"]:
        yield {name: example[name][start : start + length] for name in ("input_ids", "labels", "kinds")}
        start += length


def compare(*, num_rows: int, repeats: int, hidden_size: int, layers: int) -> dict[str, Any]:
    """The ratios, each the median over repeats that run every arm in turn on another order of the rows; and their inputs."""
    torch.set_num_threads(1)
    rows = trajectory_rows(num_rows, vocabulary=_VOCABULARY, scale=_MAX_LENGTH / 4096, seed=0)
    with tempfile.TemporaryDirectory() as folder:
        arms = Arms(rows, Path(folder), hidden_size=hidden_size, layers=layers)
        rates = [{arm: arms.rate(arm, seed=seed) for arm in arms.builders} for seed in range(repeats)]

        def ratio(arm: str, other: str) -> float:
            return median(rate[arm] / rate[other] for rate in rates)

        return {
            "packed_vs_unpacked": ratio("packed", "unpacked"),
            "packed_vs_trl_default": ratio("packed", "trl_default"),
            "trl_packed_vs_trl_default": ratio("trl_packed", "trl_default"),
            "max_loss_difference": arms.max_loss_difference(),
            "supervised_tokens_per_second": {arm: median(rate[arm] for rate in rates) for arm in arms.builders},
            "threads": 1,
        }


if __name__ == "__main__":
    with redirect_stdout(sys.stderr):  # the trainers print their logs
        figures = compare(**json.loads(sys.argv[1]))
    print(json.dumps(figures))
