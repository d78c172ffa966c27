"""The head on supervised positions only gives the loss and the gradients that it gives on all of them."""

import torch
from datasets import Dataset
from trl import SFTConfig, SFTTrainer

from refinery.llms.checkpoint import load_base
from train.supervised_head import SupervisedHeadTrainer

ROWS = [
    {"input_ids": [5, 6, 7, 8, 9, 10], "labels": [-100, -100, 7, 8, -100, 10]},
    {"input_ids": [11, 12, 13], "labels": [-100, -100, 13]},
    {"input_ids": [14, 15, 16, 17], "labels": [14, 15, 16, 17]},
]


def step(trainer_type, base, folder):
    """Loss and gradients of one batch."""
    model, tokenizer = load_base(base, dtype="float32")
    arguments = SFTConfig(
        output_dir=str(folder), use_cpu=True, bf16=False, gradient_checkpointing=False, report_to="none", max_length=None,
        dataset_kwargs={"skip_prepare_dataset": True},
    )  # fmt: skip
    if tokenizer.pad_token is None:
        tokenizer.pad_token = tokenizer.eos_token
    trainer = trainer_type(model=model, args=arguments, train_dataset=Dataset.from_list(ROWS), processing_class=tokenizer)
    loss = trainer.compute_loss(trainer.model, trainer.data_collator(ROWS))
    loss.backward()
    return loss.item(), {name: parameter.grad for name, parameter in trainer.model.named_parameters()}


def test_loss_and_gradients_equal_those_of_the_head_on_every_position(tiny_bases, tmp_path):
    for base in tiny_bases.values():
        loss, gradients = step(SupervisedHeadTrainer, str(base), tmp_path)
        plain_loss, plain_gradients = step(SFTTrainer, str(base), tmp_path)
        assert abs(loss - plain_loss) < 1e-6
        for name, gradient in plain_gradients.items():
            torch.testing.assert_close(gradients[name], gradient, rtol=1e-5, atol=1e-7)
