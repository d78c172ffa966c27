"""Show a run: its results, and the traces of its questions."""

from itertools import islice
from pathlib import Path

from rich.console import Console

from refinery.contract.records import iter_records
from refinery.contract.trace import PREDICTIONS_FILE, Prediction
from refinery.errors import RunDirError
from refinery.reporting.results import print_trace, results_table
from refinery.runtime.run.run_dir import read_metrics, read_run


def print_run(run: Path, *, question: str | None, limit: int) -> None:
    """Print `metrics.json`, and for an infer run the traces of `question` or of the first `limit` questions."""
    read_run(run)
    console = Console()
    metrics = read_metrics(run)
    if "results" not in metrics:
        console.print_json(data=metrics, ensure_ascii=True)
        return
    console.print(results_table(metrics["results"], title=str(run)))
    if not (run / PREDICTIONS_FILE).exists():
        return
    predictions = iter_records(run / PREDICTIONS_FILE, Prediction)
    chosen = [p for p in predictions if p.question_id == question] if question else list(islice(predictions, limit))
    if not chosen:
        raise RunDirError(f"{run}: has no question '{question}'. IDs are listed in {PREDICTIONS_FILE}.")
    for prediction in chosen:
        print_trace(prediction, console)
