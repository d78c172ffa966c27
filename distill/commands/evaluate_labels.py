"""`refinery evaluate-labels RUN... [--against [READER=]FILE...]`."""

import argparse
from pathlib import Path

GROUP = "Results"
HELP = "compare labels with annotated rows: precision, recall and cost of each teacher, prompt and number of passages"
READS_RUNS = True


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the command's arguments."""
    parser.add_argument("runs", type=Path, nargs="+", metavar="RUN", help="output_dir of a finished distill run")
    parser.add_argument(
        "--against",
        nargs="+",
        default=[],
        metavar="[READER=]FILE",
        help="the same questions with annotations, such as musique=dev.jsonl (default: as the run itself read them)",
    )
    parser.add_argument(
        "--closed-book",
        type=Path,
        metavar="RUN",
        help="for self-knowledge labels by a teacher: a run with `by: student` in which the same model answered these questions",
    )
    parser.add_argument("--breakdown", action="store_true", help="also a line for each group of questions: dataset, type, hops")
    parser.add_argument("--format", default="terminal", choices=["terminal", "markdown", "csv", "latex", "json"])


def run(arguments: argparse.Namespace) -> None:
    """Print a table for each task."""
    from distill.quality.evaluate import evaluate_labels
    from distill.quality.table import quality_json, quality_text
    from refinery.questions.base import read_named_questions

    annotated = read_named_questions(arguments.against)
    found = evaluate_labels(arguments.runs, annotated, closed_book=arguments.closed_book, breakdown=arguments.breakdown)
    print(quality_json(found) if arguments.format == "json" else quality_text(found, arguments.format), end="")
