"""The few lines that training prints at its end: rows, loss, held-out scores, files, and the next steps."""

from pathlib import Path
from typing import Any

from refinery.reporting.summary import summary
from train.rollouts.reward_gain import gain_line

# Keys that other lines show, or that appear only in `metrics.json`.
_NOT_SCORES = (
    "rows",
    "tokens",
    "tokens_trained",
    "steps",
    "train_loss",
    "trainable_parameters",
    "best_step",
    "best_score",
    "validation_rows",
)


def run_summary(metrics: dict[str, Any], folder: Path) -> str:
    """The lines about the run in `folder`."""
    scores = {name: value for name, value in metrics.items() if isinstance(value, float) and not name.startswith(_NOT_SCORES)}
    held_out = f" on {metrics['validation_rows']:,} rows" if "validation_rows" in metrics else ""
    return summary(
        [
            ("rows", f"{metrics['rows']:,}, {metrics['tokens_trained']:,} of their {metrics['tokens']:,} tokens trained"),
            ("loss", f"{metrics['train_loss']:.3f} after {metrics['steps']:,} steps{_best(metrics)}"),
            ("reward", gain_line(metrics["reward"]) if "reward" in metrics else ""),
            ("held out", ", ".join(f"{name} {value:.3f}" for name, value in scores.items()) + held_out),
            ("files", f"{metrics['trainable_parameters']:,} trained parameters in {folder}"),
            ("next", f"refinery view {folder} --output {folder}.html; to use it, name {folder} in an infer recipe"),
        ]
    )


def _best(metrics: dict[str, Any]) -> str:
    return f", best at step {metrics['best_step']} ({metrics['best_score']:.3f})" if metrics.get("best_score") is not None else ""
