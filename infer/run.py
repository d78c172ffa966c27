"""Answer every question with one decoder, thousands concurrently, and score the answers."""

import asyncio
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from pathlib import Path
from typing import Any

from infer.evaluation.evaluate import evaluate, total_cost
from infer.evaluation.run_inputs import keep_questions, keep_token_texts
from infer.evaluation.scores import SCORES_FILE, has_gold, score
from infer.payments import MAY_CHANGE, Payments
from infer.pipeline import Pipeline
from infer.provenance import fingerprints, prompts_now, provenance
from infer.recipe import InferRecipe
from infer.shards import (
    AnswerLedger,
    Processes,
    attempts,
    delete_ledgers,
    last_outcomes,
    prompts_used,
    read_ledgers,
    wall_seconds,
)
from refinery.contract.records import Question, write_records
from refinery.contract.trace import PREDICTIONS_FILE, Prediction
from refinery.errors import LLMError
from refinery.prompts.render import use_prompts
from refinery.runtime.bad_rows import bad_rows_report, skipping_bad_rows
from refinery.runtime.progress import Progress
from refinery.runtime.run_dir import RunDir, check_fingerprints, check_run, locked_run, open_run
from refinery.runtime.together import together
from refinery.supporting import check_supporting

# Says for `metrics.json` what predictions, in the order of their questions, are worth; the last argument is the wall time in seconds.
Finish = Callable[[Any, Pipeline, Sequence[Question], Sequence[Prediction], float], dict[str, Any]]


def run(recipe: InferRecipe, *, resume: bool) -> dict[str, Any]:
    """Answer the questions, write predictions with their traces, and score them. Returns the content of `metrics.json`.

    A question that fails has a row that says why. `resume` asks it again, even if the run has finished.
    """
    return run_recipe(recipe, stage="infer", finish=_scored, resume=resume)


def run_recipe(recipe: InferRecipe, *, stage: str, finish: Finish, resume: bool) -> dict[str, Any]:
    """Decode the recipe's questions and write the predictions; `finish` adds to `metrics.json`, all of which is returned."""
    pipeline = Pipeline(recipe)
    with use_prompts(pipeline.prompts), skipping_bad_rows(recipe):
        return _run(recipe, pipeline, stage, finish, resume=resume)


def _run(recipe: InferRecipe, pipeline: Pipeline, stage: str, finish: Finish, *, resume: bool) -> dict[str, Any]:
    processes = Processes.launched()
    questions = recipe.read()
    known = fingerprints(recipe, questions, pipeline.options) if processes.is_main else {}
    finished = check_run(recipe, recipe.output_dir, resume=resume, may_change=MAY_CHANGE, fingerprints=known)
    if finished is not None and not finished.get("failed"):
        check_fingerprints(recipe.output_dir, finished["prompts"], prompts_now(finished["prompts"]))
        return finished
    check_supporting(questions, recipe.retriever)
    with locked_run(recipe.output_dir) if processes.is_main else nullcontext():
        pipeline.load()
        processes.wait()  # every process has checked the directory; from here on only the main process writes to it
        output = RunDir(recipe.output_dir)
        if processes.is_main:
            revision = pipeline.retriever and pipeline.retriever.revision
            known = {**fingerprints(recipe, questions, pipeline.options), "retriever": revision}
            output = open_run(recipe, recipe.output_dir, stage=stage, resume=resume, may_change=MAY_CHANGE, fingerprints=known)
            if pipeline.prompts:
                pipeline.prompts.keep(output.path)
            if not output.begun:
                delete_ledgers(output)  # of an earlier start without any answer, perhaps of another recipe
        earlier = read_ledgers(output) if output.begun else []
        check_fingerprints(output.path, prompts_used(earlier), prompts_now(prompts_used(earlier)))
        processes.wait()  # every process has read the answers so far; from here on each one adds to them
        answered = {row.prediction.question_id for row in earlier if row.prediction.failed is None}
        share = processes.share([question for question in questions if question.id not in answered])
        with (
            Payments(recipe, pipeline.endpoints(), num_processes=processes.count) as payments,
            AnswerLedger(output, processes.rank, attempt=attempts(earlier) + 1) as ledger,
        ):
            asyncio.run(_answer_all(pipeline, share, ledger, output.path, payments))
        processes.wait()
        processes.part()
        return _merge(recipe, pipeline, questions, output, payments, finish) if processes.is_main else {}


def _scored(
    recipe: InferRecipe, pipeline: Pipeline, questions: Sequence[Question], predictions: Sequence[Prediction], seconds: float
) -> dict[str, Any]:
    """Score the answers, question by question and together."""
    rows = score(recipe.name or recipe.decoder, questions, predictions, metrics=recipe.metrics)
    write_records(recipe.output_dir / SCORES_FILE, rows)
    tokenizer = pipeline.llm.tokenizer if recipe.tokenizer else None
    return {
        "results": evaluate(rows, predictions, seconds=seconds, tokenizer=tokenizer),
        "questions_without_gold_answers": sum(not has_gold(question) for question in questions),
    }


def _merge(
    recipe: InferRecipe, pipeline: Pipeline, questions: Sequence[Question], output: RunDir, payments: Payments, finish: Finish
) -> dict[str, Any]:
    """Merge the answers of all processes in question order and finish. The ledgers remain until every question has an answer."""
    ledger = read_ledgers(output)
    seconds, by_id = wall_seconds(ledger), last_outcomes(ledger)
    predictions = [by_id[question.id] for question in questions]
    failed = Counter(prediction.failed.partition(":")[0] for prediction in predictions if prediction.failed)
    if failed.total() == len(questions) and not output.begun:
        delete_ledgers(output)
        reasons, first = ", ".join(f"{reason} {count}" for reason, count in failed.most_common()), predictions[0]
        raise LLMError(f"all {len(questions)} questions failed ({reasons}). The first, '{first.question_id}': {first.failed}")
    write_records(output / PREDICTIONS_FILE, predictions)
    keep_questions(output.path, questions, predictions)
    keep_token_texts(output.path, predictions, pipeline.tokenizer_of)
    metrics = {
        **finish(recipe, pipeline, questions, predictions, seconds),
        "questions": len(questions),
        "failed": failed.total(),
        "failed_by_reason": dict(failed.most_common()),
        "cost": total_cost(predictions, seconds=seconds),
        **provenance(recipe, questions, pipeline.retriever),
        **bad_rows_report(),
        "endpoints": {role: llm.record() | payments.summary(role) for role, llm in pipeline.endpoints().items()},
        "prompts": prompts_used(ledger),
    }
    output.write_metrics(metrics)
    if not failed:
        delete_ledgers(output)
    return metrics


async def _answer_all(pipeline: Pipeline, questions: Sequence[Question], ledger: AnswerLedger, folder: Path, payments: Payments) -> None:
    """Decode `questions_in_flight` questions at once, and write each prediction to disk when it is done."""
    failed = 0
    title = f"infer {pipeline.recipe.name or pipeline.recipe.decoder}"

    def below() -> str:
        usage = pipeline.usage()
        tokens = usage.prefill_tokens + usage.decode_tokens
        line = f"answering={pipeline.num_open} calls={usage.calls:,} tokens={tokens:,}{payments.spent}"
        return line + (f" failed={failed}" if failed else "")

    with Progress(title, total=len(questions), below=below, folder=folder) as progress:

        async def answer_one(question: Question) -> None:
            nonlocal failed
            prediction = await pipeline.outcome(question)
            ledger.write(prediction)
            failed += prediction.failed is not None
            progress.advance()

        try:
            await together(answer_one(question) for question in questions)
        finally:
            await pipeline.close()
