"""`python -m infer RECIPE`: answer questions and score the answers; `python -m infer merge OUT RUN...`: join shards."""

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from infer.recipe import InferRecipe
from refinery.errors import LLMError
from refinery.runtime.run.command import merge_shards, run_stage
from refinery.text import printable

DESCRIPTION = "Answer questions with a decoder and trained checkpoints, and score the answers."


def main(argv: Sequence[str] | None = None) -> int:
    """Run the stage from the command line; `merge OUT RUN...` joins the runs of all shards."""
    arguments = list(sys.argv[1:] if argv is None else argv)
    if arguments[:1] == ["merge"]:
        return merge_shards("infer", _merge, arguments[1:])
    return run_stage("infer", DESCRIPTION, InferRecipe, preview=_preview, run=_run, report=_report, pilot=_pilot, argv=arguments)


def _merge(out: Path, runs: Sequence[Path]) -> None:
    from infer.evaluation.merge import merge

    _report_of(out, merge(out, runs), remedy="Resume their shards with --resume, and merge again.")


def _run(recipe: InferRecipe, *, resume: bool) -> dict[str, Any]:
    from infer.run import run

    return run(recipe, resume=resume)


def _preview(recipe: InferRecipe) -> None:
    from infer.cost.pilot import bill
    from infer.pipeline import Pipeline

    options = Pipeline(recipe).options
    print(printable(f"--- options of decoder '{recipe.decoder}', defaults included"))
    for name, value in options.model_dump(mode="json").items():
        print(printable(f"{name}: {value}"))
    questions = recipe.read()
    for number, question in enumerate(questions[:3], 1):
        print(printable(f"--- question {number}\n{question.text}"))
    print("--- what it will take")
    for line in bill(recipe, questions):
        print(printable(line))


def _pilot(recipe: InferRecipe, count: int) -> None:
    from infer.cost.pilot import run_pilot

    run_pilot(recipe, count)


def _report(recipe: InferRecipe, metrics: dict[str, Any]) -> None:
    _report_of(recipe.output_dir, metrics, remedy="Pass --resume to ask them again.")


def _report_of(folder: Path, metrics: dict[str, Any], *, remedy: str) -> None:
    from infer.evaluation.evaluate import length_note
    from refinery.reporting.results import print_results
    from refinery.reporting.summary import summary

    unscored = metrics.get("questions_without_gold_answers", 0)
    title = f"{metrics['questions']} questions" + (f", {unscored} of them without gold answers and not scored" if unscored else "")
    print_results(metrics["results"], title=title)
    if unscored == metrics["questions"]:
        print("No question has gold answers, so nothing can be scored. The answers are in predictions.jsonl.")
    notes = dict.fromkeys(filter(None, map(length_note, metrics["results"].values())))
    causes = [*(("note", note) for note in notes), *_causes(metrics, "failed"), *_causes(metrics, "faults")]
    files = f"predictions.jsonl, scores.jsonl in {folder}"
    print(summary([*causes, ("files", files), ("next", f"refinery view {folder} --output {folder}.html")]))
    if failed := metrics.get("failed", 0):
        reasons = ", ".join(f"{reason} {count}" for reason, count in metrics["failed_by_reason"].items())
        raise LLMError(f"{failed} of {metrics['questions']} questions failed ({reasons}). {remedy}")


def _causes(metrics: dict[str, Any], name: str) -> list[tuple[str, str]]:
    """The failed questions or faulty replies, with the most frequent cause for each reason."""
    from refinery.reporting.causes import cause_lines
    from refinery.reporting.summary import counted

    report = metrics.get("causes", {}).get(name, {})
    total = counted({reason: of["total"] for reason, of in report.items()})
    return [(name, f"{total}. See predictions.jsonl"), *(("", line) for line in cause_lines(report))] if report else []


if __name__ == "__main__":
    sys.exit(main())
