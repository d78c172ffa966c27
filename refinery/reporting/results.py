"""Print results and traces in a terminal."""

import sys
from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

from refinery.contract.records import Trajectory
from refinery.contract.trace import Prediction, TraceStep
from refinery.reporting.tables import tokens_per_question
from refinery.text import printable

_FILE_WIDTH = 160


def print_results(results: dict[str, Any], *, title: str) -> None:
    """Print `results_table` in the width of the terminal, or into a file with room for every column."""
    (Console() if sys.stdout.isatty() else Console(width=_FILE_WIDTH)).print(results_table(results, title=title))


def results_table(results: dict[str, Any], *, title: str) -> Table:
    """A table of systems and question groups, with the datasets' metrics and the cost per question. `metrics.json` has all metrics."""
    first = next(iter(results.values()))
    groups = [group for group in ("all", "single_hop", "multi_hop") if group in first]
    metrics = first["default_metrics"]
    table = Table(title=_text(title, "table.title"), caption=_text(_caption(results), "table.caption"), box=None, padding=(0, 1, 0, 0))
    table.add_column("system", overflow="fold")
    for group in groups:
        head = [group, *metrics]
        table.add_column(
            _text("\n".join(head)), justify="right", min_width=max(map(len, head))
        )  # a narrow terminal folds the systems' names
    for column in ("calls", "searches", "tokens", "read", "seconds"):
        table.add_column(column, justify="right")
    for system, scores in results.items():
        cost = scores["cost_per_question"]
        cells = ["\n".join(_mean(scores[group], metric) for metric in metrics) for group in groups]
        table.add_row(
            _text(system),
            *cells,
            f"{cost['calls']:.1f}",
            f"{cost['retrievals']:.1f}",
            tokens_per_question(cost),
            f"{cost['knowledge_tokens']:.0f}",
            f"{cost['seconds']:.3f}",
        )
    return table


def _caption(results: dict[str, Any]) -> str:
    """Explains the cost columns, and lists the faults of each system that had any."""
    unit = next(iter(results.values()))["knowledge_unit"]
    lines = [f"Costs are per question; read: {unit} of passages that the model was shown."]
    for system, scores in results.items():
        if scores["faults"]:
            lines.append(f"Faults of {system}: " + ", ".join(f"{reason} {count}" for reason, count in scores["faults"].items()))
    return "\n".join(lines)


def _mean(scores: dict[str, Any], metric: str) -> str:
    """The mean, with the number of questions if the metric does not apply to the whole group."""
    if (found := scores["metrics"].get(metric)) is None:
        return "-"
    return f"{found['mean']:.1f}" + (f" on {found['questions']:,}" if found["questions"] < scores["questions"] else "")


def print_trace(prediction: Prediction, console: Console) -> None:
    """Print one question step by step. Model and passage text is printed as plain text, never as markup."""
    console.print(_text(prediction.question, style="bold"))
    for step in prediction.trace:
        if not prediction.paths or step.depth == 0:
            _print_step(step, console)
    for number, path in enumerate(prediction.paths, 1):
        _print_path(number, path, console)
    for strategy, answer in prediction.selected.items():
        console.print(_text(f"selected by {strategy}: {answer}"))
    cost = prediction.cost
    console.print(_text(f"answer: {prediction.answer}", style="bold green"))
    at_most = "at most " if cost.prefill_at_most else ""
    console.print(
        _text(
            f"{cost.calls} calls, {cost.retrievals} retrievals, {at_most}{cost.prefill_tokens + cost.decode_tokens} tokens",
            style="dim",
        )
    )


def _print_step(step: TraceStep, console: Console) -> None:
    indent = "  " * (step.depth + 1)
    shares = ", ".join(f"{label.strip()} {share:.2f}" for label, share in (step.probabilities or {}).items())
    console.print(_text(f"{indent}{step.name}: {step.question}", style="cyan"))
    for line in (step.reasoning and f"reasoning: {step.reasoning}", step.text, step.cut and f"cut off: {step.cut}", shares):
        if line:
            console.print(_text(f"{indent}  {line.strip()}"))
    for passage in step.passages or []:
        console.print(_text(f"{indent}  [{passage.retrieval_score:.2f}] {passage.title}: {passage.text}", style="dim"))


def _print_path(number: int, path: Trajectory, console: Console) -> None:
    written = " -> ".join(f"{step.action}: {step.text}" for step in path.steps)
    console.print(_text(f"  path {number}: {written}"))


def _text(text: str, style: str = "") -> Text:
    """Outside text as plain text, without markup or terminal control characters."""
    return Text(printable(text), style=style)
