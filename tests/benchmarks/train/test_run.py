"""The training benchmark at toy size: its rows, its figures' meaning, and what it counts on a GPU. No speed is asserted."""

import pytest
import torch

from benchmarks.train.arms import compare
from benchmarks.train.mfu import build_lora_trainer, flops_per_step, measure_mfu
from benchmarks.train.rows import trajectory_rows
from refinery.contract.segments import IGNORED_LABEL


def test_the_rows_are_as_long_as_the_papers_trajectories():
    lengths = sorted(len(row.input_ids) * 10 for row in trajectory_rows(1000, vocabulary=4096, scale=0.1, seed=0))
    assert lengths[100] == pytest.approx(150, rel=0.2)
    assert lengths[900] == pytest.approx(2000, rel=0.2)
    assert lengths[-1] == 4090


def test_the_rows_train_queries_and_answers_only():
    for row in trajectory_rows(50, vocabulary=4096, scale=0.25, seed=0):
        trained = {kind for kind, label in zip(row.kinds, row.labels, strict=True) if label != IGNORED_LABEL}
        assert "answer" in trained
        assert trained <= {"query", "answer"}


@pytest.mark.slow
def test_a_comparison_trains_every_arm_and_finds_the_losses_equal():
    figures = compare(num_rows=4, repeats=1, hidden_size=32, layers=1)
    rates = figures["supervised_tokens_per_second"]
    assert figures["packed_vs_unpacked"] == pytest.approx(rates["packed"] / rates["unpacked"])
    assert figures["packed_vs_trl_default"] == pytest.approx(rates["packed"] / rates["trl_default"])
    assert figures["max_loss_difference"] <= 1e-5


def test_the_flops_of_a_step_are_those_of_its_matrices(tiny_bases, tmp_path):
    """Counted by hand for the tiny base: 2 layers of width 32, 2 heads, a feed-forward of 64, a LoRA of rank 64 on all seven matrices."""
    trainer = build_lora_trainer(str(tiny_bases["untied"]), str(tmp_path), rows=4, max_length=512)
    bins = list(trainer.train_dataset)
    tokens = sum(len(example["input_ids"]) for example in bins)
    frozen = 2 * (4 * 32 * 32 + 3 * 32 * 64)
    adapter = 2 * 64 * (4 * (32 + 32) + 3 * (32 + 64))
    supervised = sum(label != IGNORED_LABEL for example in bins for label in example["labels"])
    attention = sum(length**2 for example in bins for length in example["seq_lengths"]) * 2 * 32 * 6
    vocabulary = trainer.model.config.vocab_size
    expected = (4 * frozen + 6 * adapter) * tokens + 4 * vocabulary * 32 * supervised + attention
    assert flops_per_step(trainer) == pytest.approx(expected / len(bins))


def test_without_a_gpu_there_is_no_utilisation():
    if torch.cuda.is_available():
        pytest.skip("this machine has a GPU")
    assert measure_mfu() == {"mfu": None, "gpu": None}


@pytest.mark.gpu
@pytest.mark.slow
def test_a_gpu_is_used_for_some_of_what_it_could_do():
    assert 0 < measure_mfu()["mfu"] < 1
