from pathlib import Path

from train.__main__ import run_summary

METRICS = {
    "rows": 1840,
    "tokens": 583_112,
    "tokens_trained": 3_680,
    "steps": 500,
    "train_loss": 0.4121,
    "trainable_parameters": 3_276_800,
    "best_step": 450,
    "best_score": 0.861,
    "validation_rows": 219,
    "accuracy": 0.8812,
    "f1": 0.84,
}


def test_training_ends_in_five_lines():
    assert run_summary(METRICS, Path("runs/judge")).splitlines() == [
        "rows      1,840, 3,680 of their 583,112 tokens trained",
        "loss      0.412 after 500 steps, best at step 450 (0.861)",
        "held out  accuracy 0.881, f1 0.840 on 219 rows",
        "files     3,276,800 trained parameters in runs/judge",
        "next      refinery view runs/judge --output runs/judge.html; to use it, name runs/judge in an infer recipe",
    ]


def test_without_held_out_rows_there_is_no_line_about_them():
    metrics = {name: METRICS[name] for name in ("rows", "tokens", "tokens_trained", "steps", "train_loss", "trainable_parameters")}
    assert [line.split()[0] for line in run_summary(metrics, Path("run")).splitlines()] == ["rows", "loss", "files", "next"]


def test_a_run_of_grpo_says_whether_its_rewards_rose():
    reward = {"first": 0.31, "last": 0.42, "error": 0.02, "equal_groups": 0.25}
    line = run_summary(METRICS | {"reward": reward}, Path("run")).splitlines()[2]
    assert line.startswith("reward    0.310 in the first third of the steps, 0.420 in the last; in 25% of the groups")
    assert "learned nothing" not in line
    assert "learned nothing" in run_summary(METRICS | {"reward": reward | {"last": 0.34}}, Path("run"))
