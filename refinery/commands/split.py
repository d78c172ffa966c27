"""`refinery split QUESTIONS... --output DIR`."""

import argparse
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from refinery.contract.records import Passage, Question

GROUP = "Pipeline"
HELP = "divide questions into train, validation and test, without repetitions"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the command's arguments."""
    parser.add_argument(
        "questions",
        nargs="+",
        metavar="[READER=]QUESTIONS",
        help="files of questions, or datasets on the hub; their own splits are kept if they have any",
    )
    parser.add_argument("--reader", default="jsonl", help="the schema of files that name none (default: Refinery's own)")
    parser.add_argument("--output", type=Path, required=True, metavar="DIR", help="folder for train.jsonl, validation.jsonl and test.jsonl")
    parser.add_argument("--validation", type=float, default=0.1, metavar="SHARE", help="share held out for validation (default: 0.1)")
    parser.add_argument("--test", type=float, default=0.1, metavar="SHARE", help="share held out for testing (default: 0.1)")
    parser.add_argument(
        "--unanswerable",
        type=float,
        default=0.0,
        metavar="SHARE",
        help="take away the passages that support this share of the questions, so that they have no answer (default: 0)",
    )
    parser.add_argument(
        "--passages", type=Path, metavar="FILE", help="the corpus to take them from too; what is left is written to passages.jsonl in DIR"
    )


def run(arguments: argparse.Namespace) -> None:
    """Write one file per split and print how many questions each has."""
    from refinery.contract.records import write_records
    from refinery.question_splits import HELD_OUT, few_questions, split_questions
    from refinery.questions.base import check_ids, read_named_questions, repeated_id
    from refinery.text import printable

    questions, left = read_named_questions(arguments.questions, reader=arguments.reader), None
    check_ids([Path(arguments.questions[0])], len(questions), repeated_id(questions))
    found = split_questions(questions, {"test": arguments.test, "validation": arguments.validation})
    if arguments.unanswerable:
        left = _take_support(found.by_split, arguments)
    arguments.output.mkdir(parents=True, exist_ok=True)
    for split, kept in found.by_split.items():
        write_records(arguments.output / f"{split}.jsonl", kept)
    if left is not None:
        write_records(arguments.output / "passages.jsonl", left)
    counts = ", ".join(f"{split} {len(kept)}" for split, kept in found.by_split.items())
    print(printable(f"{arguments.output}: {counts}"))
    for split in filter(found.by_split.get, HELD_OUT):
        if remark := few_questions(split, len(found.by_split[split])):
            print(remark)
    for repeated, how in ((found.same, "the same"), (found.nearly_the_same, "nearly the same")):
        if repeated:
            one, other = repeated[0]
            print(
                printable(
                    f"left out: {len(repeated)} with {how} text as another, such as {one.id} ({one.text}) and {other.id} ({other.text})"
                )
            )


def _take_support(by_split: "dict[str, list[Question]]", arguments: argparse.Namespace) -> "list[Passage] | None":
    """Make a share of each split's questions unanswerable, in place. The passages that are left of the corpus, if there is one."""
    from refinery.errors import RecordError
    from refinery.retrievers.base import read_passages
    from refinery.unanswerable import without_support

    if not 0 < arguments.unanswerable < 1:
        raise RecordError(f"--unanswerable: is {arguments.unanswerable:g}. Give a share between 0 and 1, such as 0.3.")
    corpus = read_passages(arguments.passages) if arguments.passages else []
    made = without_support([question for kept in by_split.values() for question in kept], arguments.unanswerable, corpus)
    for split in by_split:
        by_split[split] = [question for question in made.questions if question.split == split]
    print(f"unanswerable: {sum(question.answerable is False for question in made.questions)} of {len(made.questions)} questions")
    return made.passages if arguments.passages else None
