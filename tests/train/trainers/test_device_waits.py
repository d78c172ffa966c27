"""How often a training step waits for its device: once, to look at its losses, however many batches it accumulates."""

from collections import Counter
from typing import Any, cast

import pytest
import torch
from helpers.device_waits import counting_device_work
from trl import SFTConfig

from refinery.contract.segments import EncodedRow
from refinery.llms.weights.checkpoint import load_base
from train.launch.callbacks import watch_loss
from train.rows.packing import PackingCollator, build_dataset
from train.trainers.sparse_lm_head import SupervisedHeadTrainer

ROWS = [
    EncodedRow([5, 6, 7, 8], [-100, -100, 7, 8], ["prompt", "prompt", "control_token", "query"]),
    EncodedRow([11, 12, 13], [-100, -100, 13], ["prompt", "prompt", "control_token"]),
    EncodedRow([14, 15, 16, 17], [-100, 15, 16, 17], ["prompt", "query", "query", "control_token"]),
]


def trainer_of(base, folder, *, joined, weights) -> Any:
    model, tokenizer = cast(Any, load_base(str(base), dtype="float32"))
    arguments: dict[str, Any] = {"use_cpu": True, "bf16": False, "gradient_checkpointing": False, "report_to": "none", "max_length": None}
    settings = SFTConfig(
        output_dir=str(folder), dataset_kwargs={"skip_prepare_dataset": True}, remove_unused_columns=False, disable_tqdm=True, **arguments
    )
    return SupervisedHeadTrainer(
        model=model,
        recipe=cast(Any, None),
        args=settings,
        data_collator=PackingCollator(0, joined),
        train_dataset=build_dataset(ROWS),
        processing_class=tokenizer,
        loss_weights=weights,
    )


@pytest.mark.parametrize("weights", [{}, {"control_token": 2.0}])
@pytest.mark.parametrize("joined", [False, True])
def test_a_step_waits_once_however_many_batches_it_accumulates(tiny_bases, tmp_path, joined, weights):
    """Without the optimizer, whose state a CPU keeps elsewhere than a GPU does."""
    trainer = trainer_of(tiny_bases["untied"], tmp_path, joined=joined, weights=weights)
    watch_loss(trainer, ROWS, recipe=cast(Any, None))  # only an error asks for the recipe
    batches = [trainer.data_collator([row]) for row in trainer.train_dataset]
    waits: Counter[str] = Counter()
    model = trainer.model.train()
    for number, batch in enumerate(batches):
        trainer.accelerator.gradient_state._set_sync_gradients(number == len(batches) - 1)
        with counting_device_work() as counts:
            trainer.training_step(model, batch, torch.tensor(6))
        waits += counts.waits
    assert waits.pop("tolist") == 1  # the losses of all of them
    # transformers asks of every batch whether anything in it is padded, or whether it is joined of several rows.
    assert waits.total() <= len(batches)
