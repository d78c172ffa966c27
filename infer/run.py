"""Answer every question with one decoder, thousands at once, and score the answers."""

import asyncio
import os
import time
from collections.abc import Sequence
from typing import Any

from infer.evaluate import evaluate, total_cost
from infer.provenance import provenance
from infer.recipe import InferRecipe
from infer.scores import SCORES_FILE, score
from infer.tools import Tools
from infer.trace import Prediction
from refinery import plugins
from refinery.control_tokens import check_manifest
from refinery.errors import RecipeError
from refinery.progress import Progress
from refinery.questions.base import read_questions
from refinery.records import Question, parse_record, write_records
from refinery.retrievers.base import Retriever, build_retriever
from refinery.run_dir import RunDir, check_run, open_run

PREDICTIONS_FILE = "predictions.jsonl"


def run(recipe: InferRecipe, *, resume: bool) -> dict[str, Any]:
    """Answer, write predictions with their traces, score. Returns what `metrics.json` holds."""
    bench = InferBench(recipe)
    if (finished := check_run(recipe, recipe.output_dir, resume=resume)) is not None:
        return finished
    questions = read_questions(recipe.questions, reader=recipe.reader, limit=recipe.limit)
    bench.load()
    output = open_run(recipe, recipe.output_dir, stage="infer", resume=resume)
    done = _read_done(output) if resume else {}
    started = time.perf_counter()
    asyncio.run(_answer_all(bench, [q for q in questions if q.id not in done], done, output))
    seconds = time.perf_counter() - started
    predictions = [done[question.id] for question in questions]
    write_records(output / PREDICTIONS_FILE, predictions)
    rows = score(recipe.name or recipe.decoder, questions, predictions)
    write_records(output / SCORES_FILE, rows)
    metrics = {
        "results": evaluate(rows, predictions, seconds=seconds),
        "questions": len(questions),
        "cost": total_cost(predictions, seconds=seconds),
        **provenance(recipe, questions, bench.retriever),
    }
    output.write_metrics(metrics)
    (output / f"{PREDICTIONS_FILE}.ledger").unlink(missing_ok=True)
    return metrics


class InferBench:
    """A recipe's decoder, checked before anything is loaded, and then its model and retriever."""

    def __init__(self, recipe: InferRecipe) -> None:
        self.recipe = recipe
        self.decoder = plugins.load("infer.decoders", recipe.decoder)
        self.options = recipe.decoder_options(str(recipe.output_dir))
        if self.decoder.NEEDS_RETRIEVER and recipe.retriever is None:
            raise RecipeError(f"{recipe.output_dir}: decoder '{recipe.decoder}' needs 'retriever' in the recipe.")
        self.llm: Any = None
        self.retriever: Retriever | None = None

    def load(self) -> None:
        """Build the retriever and load the model. Raises CheckpointError when the model lacks what the decoder needs."""
        from refinery.llms.build import build_llm

        self.retriever = build_retriever(self.recipe.retriever) if self.recipe.retriever else None
        self.llm = build_llm(self.recipe.model)
        if self.recipe.llm:
            check_manifest(self.recipe.llm.base, self.llm.tokenizer, needed=getattr(self.decoder, "CONTROL_TOKENS", ()))

    async def answer(self, question: Question) -> Prediction:
        """Decode one question."""
        recipe = self.recipe
        tools = Tools(
            question=question,
            llm=self.llm,
            retriever=self.retriever,
            passages_per_query=recipe.passages_per_query,
            adapters=frozenset(recipe.llm.adapters if recipe.llm else ()),
            max_new_tokens=recipe.max_new_tokens,
        )
        return await self.decoder.decode(question, tools, self.options)

    async def close(self) -> None:
        """Close the connections of an endpoint."""
        if self.recipe.endpoint:
            await self.llm.close()


async def _answer_all(bench: InferBench, questions: Sequence[Question], done: dict[str, Prediction], output: RunDir) -> None:
    """Decode with a bounded number of questions in flight; each prediction is on disk before the next question starts."""
    gate = asyncio.Semaphore(bench.recipe.questions_in_flight)
    calls = 0
    with (
        Progress(f"infer {bench.recipe.name or bench.recipe.decoder}", total=len(questions), beside=lambda: f"calls={calls}") as progress,
        (output / f"{PREDICTIONS_FILE}.ledger").open("a", encoding="utf-8") as ledger,
    ):

        async def answer_one(question: Question) -> None:
            nonlocal calls
            async with gate:
                prediction = await bench.answer(question)
            done[question.id] = prediction
            ledger.write(prediction.model_dump_json(exclude_none=True) + "\n")
            ledger.flush()
            calls += prediction.cost.calls
            progress.advance()

        try:
            async with asyncio.TaskGroup() as group:
                for question in questions:
                    group.create_task(answer_one(question))
        except ExceptionGroup as errors:
            raise errors.exceptions[0] from None
        finally:
            await bench.close()


def _read_done(output: RunDir) -> dict[str, Prediction]:
    """Predictions of an interrupted run; a line cut short by the interruption is left out and answered again."""
    path = output / f"{PREDICTIONS_FILE}.ledger"
    if not path.exists():
        return {}
    written = path.read_bytes()
    whole = written[: written.rfind(b"\n") + 1]
    os.truncate(path, len(whole))  # the next prediction is appended, and must not continue a torn line
    lines = whole.decode("utf-8").split("\n")[:-1]
    rows = [parse_record(line, Prediction, where=f"{path}:{number}") for number, line in enumerate(lines, 1)]
    return {row.question_id: row for row in rows}
