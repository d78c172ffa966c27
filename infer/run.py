"""Answer every question with one decoder, thousands concurrently, and score the answers. Questions and answers stream through."""

from collections.abc import Callable, Iterable
from contextlib import nullcontext
from pathlib import Path
from typing import Any

from infer.cost.payments import Payments, may_change
from infer.evaluation.answer_files import AnswerFiles
from infer.evaluation.answers import Answers
from infer.evaluation.evaluate import score_answers
from infer.evaluation.scores import Scorer, has_gold
from infer.pipeline import Pipeline
from infer.recipe import InferRecipe
from infer.run_record.ledger import AnswerLedger, LedgerAnswers, Processes, delete_ledgers, ledgers_of
from infer.run_record.provenance import fingerprints, prompts_now, provenance
from infer.run_record.questions import AskedQuestions
from refinery.contract.records import Question
from refinery.errors import LLMError, RunDirError
from refinery.indexes.supporting_passages import check_supporting
from refinery.llms.served.resumed_endpoints import warn_of_moved_endpoints
from refinery.prompts.render import use_prompts
from refinery.runtime.concurrency.background_loop import run_anywhere
from refinery.runtime.concurrency.gather import each
from refinery.runtime.run.bad_rows import bad_rows_report, skipping_bad_rows
from refinery.runtime.run.progress import Progress
from refinery.runtime.run.run_dir import RunDir, check_fingerprints, check_run, open_run, read_run
from refinery.runtime.run.run_lock import locked_run

# Scores the answers that were just written, for `metrics.json`; the last argument is the wall time in seconds.
Finish = Callable[[Any, Pipeline, Answers, AnswerFiles, float], dict[str, Any]]


def run(recipe: InferRecipe, *, resume: bool) -> dict[str, Any]:
    """Answer the questions, write predictions with their traces, and score them. Returns the content of `metrics.json`.

    A failed question has a row with the reason. `resume` asks it again, even if the run has finished.
    """
    return run_recipe(recipe, stage="infer", finish=_scored, resume=resume)


def run_recipe(recipe: InferRecipe, *, stage: str, finish: Finish, resume: bool) -> dict[str, Any]:
    """Decode the recipe's questions and write the predictions; `finish` adds to `metrics.json`, whose content is returned."""
    pipeline = Pipeline(recipe)
    with use_prompts(pipeline.prompts), skipping_bad_rows(recipe):
        return _run(recipe, pipeline, stage, finish, resume=resume)


def _run(recipe: InferRecipe, pipeline: Pipeline, stage: str, finish: Finish, *, resume: bool) -> dict[str, Any]:
    processes = Processes.launched()
    questions = AskedQuestions(recipe)
    known = fingerprints(recipe, questions, pipeline.options) if processes.is_main else {}
    finished = check_run(recipe, recipe.output_dir, resume=resume, may_change=may_change(recipe), fingerprints=known)
    if finished is not None and finished.get("failed") and read_run(recipe.output_dir).get("shards"):
        raise RunDirError(f"{recipe.output_dir}: was merged from shards. Resume those that have failed questions, and merge them again.")
    if finished is not None and not finished.get("failed"):
        check_fingerprints(recipe.output_dir, finished["prompts"], prompts_now(finished["prompts"]))
        return finished
    check_supporting(questions, recipe.retriever)
    with locked_run(recipe.output_dir) if processes.is_main else nullcontext():
        if processes.is_main:
            warn_of_moved_endpoints(recipe.output_dir, recipe.served.values())
        pipeline.load()
        processes.wait()  # every process has checked the directory; from here on only the main process writes to it
        output = RunDir(recipe.output_dir)
        if processes.is_main:
            revision = pipeline.retriever and pipeline.retriever.revision
            known = {**fingerprints(recipe, questions, pipeline.options), "retriever": revision}
            output = open_run(recipe, recipe.output_dir, stage=stage, resume=resume, may_change=may_change(recipe), fingerprints=known)
            if pipeline.prompts:
                pipeline.prompts.keep(output.path)
            if not output.begun:
                delete_ledgers(output)  # of an earlier start without any answer, perhaps of another recipe
        earlier = LedgerAnswers(ledgers_of(output) if output.begun else [])
        check_fingerprints(output.path, earlier.prompts, prompts_now(earlier.prompts))
        processes.wait()  # every process has read the answers so far; from here on each one adds to them
        left = processes.share(question for question in questions if not earlier.has_answer(question))
        total = len(range(processes.rank, len(questions) - earlier.num_answered, processes.count))
        with (
            Payments(recipe, pipeline.endpoints(), num_processes=processes.count) as payments,
            AnswerLedger(output, processes.rank, attempt=earlier.attempts + 1) as ledger,
        ):
            run_anywhere(_answer_all(pipeline, left, total, ledger, output.path, payments))
        processes.wait()
        processes.part()
        return _merge(recipe, pipeline, questions, output, payments, finish) if processes.is_main else {}


def _scored(recipe: InferRecipe, pipeline: Pipeline, answers: Answers, files: AnswerFiles, seconds: float) -> dict[str, Any]:
    """Score the answers, question by question and together."""
    scorer = Scorer(recipe.name or recipe.decoder, files.survey.close(answers), metrics=recipe.metrics)
    tokenizer = pipeline.llm.tokenizer if recipe.tokenizer else None
    return {
        "results": score_answers(recipe.output_dir, answers, scorer, seconds=seconds, tokenizer=tokenizer),
        "questions_without_gold_answers": sum(not has_gold(question) for question, _ in answers),
    }


def _merge(
    recipe: InferRecipe, pipeline: Pipeline, questions: AskedQuestions, output: RunDir, payments: Payments, finish: Finish
) -> dict[str, Any]:
    """Merge the answers of all processes in question order and finish. The ledgers remain until every question has an answer."""
    with LedgerAnswers(ledgers_of(output)) as ledger, AnswerFiles(output.path) as files:
        for question in questions:
            files.add(question, ledger.last_outcome(question))
        if files.failed.total() == len(questions) and not output.begun:
            delete_ledgers(output)
            raise _all_failed(files)
        files.tokens.write(output.path, pipeline.tokenizer_of)
        finished = finish(recipe, pipeline, files.answers(questions), files, ledger.wall_seconds)
    metrics = {
        **finished,
        "questions": len(questions),
        "failed": files.failed.total(),
        "failed_by_reason": dict(files.failed.most_common()),
        "causes": files.cause_report(),
        "cost": files.cost.report(seconds=ledger.wall_seconds),
        **provenance(recipe, questions, pipeline.retriever),
        **bad_rows_report(),
        "endpoints": {role: llm.record() | payments.summary(role) for role, llm in pipeline.endpoints().items()},
        "prompts": ledger.prompts,
    }
    output.write_metrics(metrics)
    if not files.failed:
        delete_ledgers(output)
    return metrics


def _all_failed(files: AnswerFiles) -> LLMError:
    reasons, first = ", ".join(f"{reason} {count}" for reason, count in files.failed.most_common()), files.first_failed
    assert first is not None, "all of them failed"
    return LLMError(f"all {files.count} questions failed ({reasons}). The first, '{first.question_id}': {first.failed}")


async def _answer_all(
    pipeline: Pipeline, questions: Iterable[Question], total: int, ledger: AnswerLedger, folder: Path, payments: Payments
) -> None:
    """Decode `questions_in_flight` questions at once, and write each prediction to disk when it is done."""
    failed = 0
    title = f"infer {pipeline.recipe.name or pipeline.recipe.decoder}"

    def below() -> str:
        usage = pipeline.usage()
        tokens = usage.prefill_tokens + usage.decode_tokens
        line = f"answering={pipeline.num_open} calls={usage.calls:,} tokens={tokens:,}{payments.spent}"
        return line + (f" failed={failed}" if failed else "")

    def details() -> dict[str, Any]:
        return {"failed": failed, "cost_usd": payments.spent_usd}

    with Progress(title, total=total, below=below, folder=folder, details=details) as progress:

        async def answer_one(question: Question) -> None:
            nonlocal failed
            prediction = await pipeline.outcome(question)
            ledger.write(prediction)
            failed += prediction.failed is not None
            progress.advance()

        try:
            await each(questions, answer_one, at_once=pipeline.recipe.questions_in_flight)
        finally:
            await pipeline.close()
