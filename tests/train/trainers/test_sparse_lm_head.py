"""The head on supervised positions only, and the loss of each kind of token."""

import pytest
import torch
from trl import SFTConfig, SFTTrainer

from refinery.contract.segments import EncodedRow
from refinery.llms.weights.checkpoint import load_base
from train.rows.packing import PackingCollator, build_dataset
from train.trainers.sparse_lm_head import SupervisedHeadTrainer

ROWS = [
    EncodedRow([5, 6, 7, 8, 9, 10], [-100, -100, 7, 8, -100, 10], ["prompt", "prompt", "control_token", "query", "evidence", "answer"]),
    EncodedRow([11, 12, 13], [-100, -100, 13], ["prompt", "prompt", "control_token"]),
    EncodedRow([14, 15, 16, 17], [-100, 15, 16, 17], ["prompt", "query", "query", "control_token"]),
]
KINDS = ["control_token", "query", "answer", "control_token", "query", "query", "control_token"]  # of the supervised tokens


def trainer_of(base, folder, *, trainer_type=SupervisedHeadTrainer, weights=None, joined=False, bin_length=None, **arguments):
    """A trainer over ROWS in float32."""
    model, tokenizer = load_base(str(base), dtype="float32")
    if tokenizer.pad_token is None:
        tokenizer.pad_token = tokenizer.eos_token
    ours = {"data_collator": PackingCollator(tokenizer.pad_token_id, joined), "loss_weights": weights or {}, "recipe": None}
    return trainer_type(
        model=model,
        args=SFTConfig(
            output_dir=str(folder), use_cpu=True, bf16=False, gradient_checkpointing=False, report_to="none", max_length=None,
            dataset_kwargs={"skip_prepare_dataset": True}, remove_unused_columns=False, save_strategy="no", disable_tqdm=True, **arguments,
        ),
        train_dataset=build_dataset(ROWS, bin_length=bin_length),
        processing_class=tokenizer,
        **(ours if trainer_type is SupervisedHeadTrainer else {}),
    )  # fmt: skip


def step(trainer):
    """Loss and gradients of all rows as one batch."""
    examples = [{name: value for name, value in row.items() if name != "kinds"} for row in trainer.train_dataset]
    batch = trainer.data_collator(list(trainer.train_dataset) if isinstance(trainer, SupervisedHeadTrainer) else examples)
    loss = trainer.compute_loss(
        trainer.model.train(), batch, num_items_in_batch=trainer._get_num_items_in_batch([batch], torch.device("cpu"))
    )
    loss.backward()
    return loss.item(), {name: parameter.grad for name, parameter in trainer.model.named_parameters()}


def token_losses(trainer) -> torch.Tensor:
    """The loss of each supervised token, row by row, from the model's own logits."""
    losses = []
    for row in ROWS:
        logits = trainer.model(input_ids=torch.tensor([row.input_ids])).logits[0, :-1]
        losses.append(torch.nn.functional.cross_entropy(logits, torch.tensor(row.labels[1:]), reduction="none", ignore_index=-100))
    kept = [loss[torch.tensor(row.labels[1:]) != -100] for loss, row in zip(losses, ROWS, strict=True)]
    return torch.cat(kept)


@pytest.fixture
def base(tiny_bases):
    return tiny_bases["untied"]


@pytest.mark.parametrize("name", ["tied", "untied"])
def test_loss_and_gradients_equal_those_of_the_head_on_every_position(tiny_bases, tmp_path, name):
    base = tiny_bases[name]
    loss, gradients = step(trainer_of(base, tmp_path))
    plain_loss, plain_gradients = step(trainer_of(base, tmp_path, trainer_type=SFTTrainer))
    assert abs(loss - plain_loss) < 1e-6
    for name, gradient in plain_gradients.items():
        torch.testing.assert_close(gradients[name], gradient, rtol=1e-5, atol=1e-7)


@pytest.mark.parametrize("weights", [{"control_token": 2.0}, {"control_token": 0.25, "answer": 0.1}, {"query": 3.0, "label": 9.0}])
def test_a_weighted_loss_is_divided_by_the_sum_of_the_weights(base, tmp_path, weights):
    trainer = trainer_of(base, tmp_path, weights=weights)
    per_token = torch.tensor([weights.get(kind, 1.0) for kind in KINDS])
    losses = token_losses(trainer)
    loss, gradients = step(trainer)
    expected = (losses * per_token).sum() / per_token.sum()
    assert loss == pytest.approx(expected.item(), rel=1e-5)
    trainer.model.zero_grad()
    expected.backward()
    for name, parameter in trainer.model.named_parameters():
        torch.testing.assert_close(gradients[name], parameter.grad, rtol=1e-4, atol=1e-6)


def test_equal_weights_train_what_no_weights_train(base, tmp_path):
    loss, gradients = step(trainer_of(base, tmp_path, weights=dict.fromkeys(("control_token", "query", "answer"), 2.0)))
    plain_loss, plain_gradients = step(trainer_of(base, tmp_path))
    assert loss == pytest.approx(plain_loss, rel=1e-6)
    for name, gradient in plain_gradients.items():
        torch.testing.assert_close(gradients[name], gradient, rtol=1e-5, atol=1e-7)


@pytest.mark.parametrize("weights", [{}, {"control_token": 2.0}])
def test_accumulated_batches_weigh_tokens_as_one_batch_does(base, tmp_path, weights):
    """Rows have 3, 1 and 3 supervised tokens of different weights: a mean of the batches' means would differ."""
    trained = []
    for size, accumulation in ((3, 1), (1, 3)):
        trainer = trainer_of(
            base, tmp_path, weights=weights, max_steps=1, per_device_train_batch_size=size, gradient_accumulation_steps=accumulation,
            learning_rate=0.1, optim="sgd", lr_scheduler_type="constant",
        )  # fmt: skip
        loss = trainer.train().training_loss
        trained.append((loss, [parameter.detach() for parameter in trainer.model.parameters()]))
    (loss, whole), (accumulated_loss, accumulated) = trained
    assert loss == pytest.approx(accumulated_loss, rel=1e-5)
    for one, other in zip(whole, accumulated, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("weights", [{}, {"control_token": 5.0}])
@pytest.mark.parametrize("size", [1, 3])
def test_the_loss_of_each_kind_is_its_tokens_unweighted_mean(base, tmp_path, weights, size):
    trainer = trainer_of(
        base,
        tmp_path,
        weights=weights,
        max_steps=1,
        per_device_train_batch_size=size,
        gradient_accumulation_steps=3 // size,
        logging_steps=1,
    )
    losses = token_losses(trainer).detach()
    metrics = trainer.train().metrics
    for kind in ("control_token", "query", "answer"):
        expected = losses[[found == kind for found in KINDS]].mean().item()
        assert metrics[f"train_loss_{kind}"] == pytest.approx(expected, rel=1e-5)
        assert trainer.state.log_history[0][f"loss_{kind}"] == pytest.approx(expected, rel=1e-5)
    assert "train_loss_label" not in metrics


def test_a_logged_loss_covers_the_steps_since_the_last_log_and_the_result_all_steps(base, tmp_path):
    trainer = trainer_of(
        base, tmp_path, max_steps=4, per_device_train_batch_size=3, logging_steps=2, learning_rate=0.05, lr_scheduler_type="constant"
    )
    metrics = trainer.train().metrics
    first, second = (log["loss_query"] for log in trainer.state.log_history[:2])
    assert second < first
    assert metrics["train_loss_query"] == pytest.approx((first + second) / 2, rel=1e-6)
