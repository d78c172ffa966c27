"""The part of the public Python API that answers and scores: `refinery.load(...).ask(...)` and `refinery.score(...)`."""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self, overload

from infer.evaluation import scores
from infer.evaluation.answers import Answers
from infer.evaluation.evaluate import evaluate
from infer.pipeline import Pipeline
from infer.recipe import PipelineRecipe
from infer.recipe_sources import recipe_of
from refinery.contract.records import Question
from refinery.contract.trace import PREDICTIONS_FILE, Cost, Prediction
from refinery.errors import LLMError, RecordError, check_argument
from refinery.metrics.bootstrap import Interval
from refinery.metrics.registry import Metric
from refinery.questions.base import as_questions, given_questions
from refinery.runtime.concurrency.background_loop import await_in_background, run_in_background
from refinery.runtime.concurrency.gather import together
from refinery.runtime.recipes.plugins import name_of


def load(source: str | Path | Mapping[str, Any], **changes: Any) -> "LoadedPipeline":
    """Load a decoder with its models and its retriever, ready to answer.

    `source` is the folder of a project that has been run, or of an infer run, the path of a recipe (yours or one that ships with the
    package), a recipe as a dict, the folder of a train run or of any model, or a model's name on a hub (`owner/name`, or
    `owner/name@revision`). `changes` override the recipe's keys; write a nested key with a dot:

        refinery.load("recipes/demo/infer/rag.yaml", max_new_tokens=24, **{"llm.device": "cuda"})

    A model without a recipe is run by the decoder that it was trained for: `rq_rag` for a generator, which then needs a `retriever`.
    Any other model is run by `rag` if a `retriever` is given, and by `direct` otherwise:

        refinery.load("Qwen/Qwen3-0.6B", retriever={"passages": "passages.jsonl"}).ask("Which country is Lyon in?").answer

    Raises RecipeError for a wrong key, RunDirError for a folder of another kind, and CheckpointError or LLMError for a model that cannot
    be loaded or lacks what the decoder needs. All of them are RefineryErrors.
    """
    return LoadedPipeline(recipe_of(source, changes))


async def aload(source: str | Path | Mapping[str, Any], **changes: Any) -> "LoadedPipeline":
    """Load without blocking the caller's event loop. Raises the same errors as `load`.

        async with await refinery.aload("runs/x") as pipeline:
            prediction = await pipeline.aask("Which country is Lyon in?")

    Canceling it stops the wait, but not the loading.
    """
    return await asyncio.to_thread(load, source, **changes)


class LoadedPipeline:
    """A decoder with its models and its retriever in memory, as `refinery.load` returns it; `recipe` describes it.

    It can be asked from any thread and any event loop, including a notebook's. As a context manager it closes itself:

        with refinery.load("runs/x") as pipeline:
            print(pipeline.ask("Which country is Lyon in?").answer)
    """

    def __init__(self, recipe: PipelineRecipe) -> None:
        self.recipe = recipe
        self._pipeline = Pipeline(recipe)
        self._pipeline.load()
        self._closed = False

    @overload
    def ask(self, question: str | Question) -> Prediction: ...
    @overload
    def ask(self, question: list[str] | list[Question]) -> list[Prediction]: ...
    def ask(self, question: str | Question | list[str] | list[Question]) -> Prediction | list[Prediction]:
        """Answer one question, or a list of questions in batches; a list returns a list in the same order.

            prediction = pipeline.ask("Which country is Lyon in?")
            prediction.answer, prediction.trace, prediction.cost

        A `refinery.Question` can carry choices, its own passages, or the history of a dialogue, which the model reads to reword the
        question so that it can be understood alone. An error of a single question is raised (a RefineryError, or whatever a third-party
        decoder raises). In a list it is recorded in `failed` of its prediction, and the other questions continue. An error that would
        affect every question is raised in both cases.
        """
        self._check_open()
        return run_in_background(self._answered(question))

    @overload
    async def aask(self, question: str | Question) -> Prediction: ...
    @overload
    async def aask(self, question: list[str] | list[Question]) -> list[Prediction]: ...
    async def aask(self, question: str | Question | list[str] | list[Question]) -> Prediction | list[Prediction]:
        """Ask without blocking the caller's event loop; questions that are asked at the same time are batched too.

            first, second = await asyncio.gather(pipeline.aask("Who directed Dune?"), pipeline.aask("Where is Lyon?"))

        Canceling it cancels the questions.
        """
        self._check_open()
        return await await_in_background(self._answered(question))

    async def _answered(self, question: str | Question | list[str] | list[Question]) -> Prediction | list[Prediction]:
        if isinstance(question, str | Question):
            return await self._pipeline.answer(as_questions([question])[0])
        return await together(self._pipeline.outcome(one) for one in as_questions(question))

    def _check_open(self) -> None:
        if self._closed:
            raise LLMError("the pipeline is closed. Load it again to ask more.")

    def close(self) -> None:
        """Close the connections to endpoints; models are freed with the object. Calling it again does nothing."""
        if not self._closed:
            self._closed = True
            run_in_background(self._pipeline.close())

    async def aclose(self) -> None:
        """Close without blocking the caller's event loop."""
        if not self._closed:
            self._closed = True
            await await_in_background(self._pipeline.close())

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *error: object) -> None:
        await self.aclose()


@dataclass(frozen=True, slots=True)
class Score(Interval):
    """A metric's mean in percent with its 95% bootstrap interval (`mean`, `low`, `high`), over the questions that it applies to."""

    questions: int


def score(
    predictions: str | Path | Sequence[Prediction] | Sequence[str | None],
    questions: str | Path | Sequence[Question],
    *,
    metrics: Sequence[str | Callable[..., float] | Metric] = (),
    reader: str = "jsonl",
) -> dict[str, Score]:
    """Score answers with every metric that applies to their questions. A metric is named after the script it reproduces (`em.squad`).

    `predictions` is the folder of an infer run, its predictions.jsonl, the result of `ask`, or plain texts, one per question in the order
    of `questions` (None, or a prediction that failed without an answer, counts as wrong). `questions` is a file in the schema of `reader`
    or a list of Questions. `metrics` are additional metrics: functions, or names such as "my_lab.metrics:mine".

        scores = refinery.score(["France", "Paris"], "questions.jsonl")
        print(scores["em.squad"].mean, scores["f1.squad"].mean)

    For a decoder that grows a tree, the answer that it selected is scored. A question without gold answers is not scored. Raises
    RecordError if predictions and questions do not belong together or no question has a gold answer, PluginError for an unknown metric.
    """
    check_argument("metrics", metrics, list | tuple, "a list of functions or names")
    asked = given_questions(questions, reader=reader)
    if not any(scores.has_gold(question) for question in asked):
        raise RecordError("none of the questions has gold answers to score against. Give them `answers`.")
    given = [prediction and _answer_alone(prediction) for prediction in _predictions_of(predictions, asked)]
    rows = scores.score("answers", asked, given, metrics=[metric if isinstance(metric, str) else name_of(metric) for metric in metrics])
    scored = next(iter(evaluate(rows, given, seconds=0.0).values()))  # a tree's selected answers come before its upper bound
    return {metric: Score(**values) for metric, values in scored["all"]["metrics"].items()}


def _answer_alone(prediction: Prediction) -> Prediction:
    return prediction.model_copy(update={"selected": {"answer": prediction.answer}}) if prediction.selected else prediction


def _predictions_of(
    given: str | Path | Sequence[Prediction] | Sequence[str | None], questions: Sequence[Question]
) -> Sequence[Prediction | None]:
    """One prediction per question, in the order of the questions; None for a missing one."""
    if isinstance(given, str | Path):
        file = Path(given) / PREDICTIONS_FILE if Path(given).is_dir() else Path(given)
        return [prediction for _, prediction in Answers(questions, file)]
    check_argument("predictions", given, list | tuple, "a run's folder, or a list of predictions or texts")
    if len(given) != len(questions):
        raise RecordError(f"there are {len(given)} predictions for {len(questions)} questions. Give one for each, in their order.")
    return [_prediction_of(one, question) for one, question in zip(given, questions, strict=True)]


def _prediction_of(given: Prediction | str | None, question: Question) -> Prediction | None:
    if isinstance(given, Prediction):
        if given.question != question.text:
            raise RecordError(f"prediction '{given.question_id}' answers {given.question!r}, and the question there is {question.text!r}.")
        return given
    if given is None:
        return None
    check_argument("predictions", given, str, "predictions, texts or None in the list")
    cost = Cost(calls=0, retrievals=0, prefill_tokens=0, decode_tokens=0)
    return Prediction(question_id=question.id, question=question.text, answer=given, trace=[], cost=cost)
