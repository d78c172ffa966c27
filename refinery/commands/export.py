"""`refinery export LABELS --format FORMAT --output FILE`."""

import argparse
import json
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

GROUP = "Results"
HELP = "write labels as the rows that other trainers read (TRL, LLaMA-Factory, axolotl)"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the command's arguments."""
    parser.add_argument(
        "labels", type=Path, metavar="LABELS", help="a file of labels, or the folder of a distill run, whose train.jsonl is taken"
    )
    parser.add_argument(
        "--format",
        required=True,
        choices=["messages", "prompt_completion", "preference", "sharegpt", "alpaca"],
        help="the layout of the rows",
    )
    parser.add_argument("--output", type=Path, required=True, metavar="FILE", help="FILE.jsonl or FILE.parquet")
    parser.add_argument("--task", help="the task of the labels, if it is not one that ships")
    parser.add_argument(
        "--system-prompt", default="rq_rag_short_answer", metavar="NAME", help="a prompt's file name, for paths without one"
    )


def run(arguments: argparse.Namespace) -> None:
    """Write the rows and print their count."""
    from refinery.tasks.base import load_task
    from refinery.text import printable

    path: Path = arguments.labels / "train.jsonl" if arguments.labels.is_dir() else arguments.labels
    task = load_task(arguments.task) if arguments.task else _task_of(path)
    rows = _rows(path, task, arguments.format, arguments.system_prompt)
    count = _write_parquet(arguments.output, rows) if arguments.output.suffix == ".parquet" else _write_lines(arguments.output, rows)
    print(printable(f"{arguments.output}: {count:,} rows of task '{task.name}' as {arguments.format}"))


def _task_of(path: Path) -> Any:
    """The shipped task whose rows look like the file's first one."""
    from pydantic import ValidationError

    from refinery.errors import RecordError
    from refinery.runtime.files.text_file import filled_lines
    from refinery.tasks.base import TASKS, load_task

    _, line = next(iter(filled_lines(str(path))), ("", "{}"))
    for task in map(load_task, TASKS.shipped()):
        try:
            task.record.model_validate_json(line)
        except ValidationError:
            continue
        return task
    raise RecordError(f"{path}: its first row is of no shipped task. Name its task with --task.")


def _rows(path: Path, task: Any, layout: str, system_prompt: str) -> Iterator[dict[str, Any]]:
    from refinery.chat_rows import LAYOUTS
    from refinery.errors import RecordError

    for number, record in enumerate(task.read(path), 1):
        try:
            yield LAYOUTS[layout](record, task, system_prompt)
        except RecordError as error:
            raise RecordError(f"{path}: row {number}: {error}") from None


def _write_lines(path: Path, rows: Iterable[dict[str, Any]]) -> int:
    from refinery.runtime.files.jsonl import write_lines

    path.parent.mkdir(parents=True, exist_ok=True)
    return write_lines(path, (json.dumps(row, ensure_ascii=False) for row in rows))


def _write_parquet(path: Path, rows: Iterable[dict[str, Any]]) -> int:
    from refinery.runtime.files.parquet import write_parquet

    path.parent.mkdir(parents=True, exist_ok=True)
    return write_parquet(path, [*rows])
