"""The public Python API over trained models: `refinery.load(...).ask(...)`."""

import asyncio
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Self, overload

from infer.pipeline import Pipeline
from infer.recipe import PipelineRecipe
from infer.sources import recipe_of
from refinery.contract.records import Question
from refinery.contract.trace import Prediction
from refinery.errors import LLMError, RecordError
from refinery.runtime.background_loop import await_in_background, run_in_background


def load(source: str | Path | Mapping[str, Any], **changes: Any) -> "LoadedPipeline":
    """Load a decoder with its models and its retriever, ready to answer.

    `source` is the folder of an infer run, a recipe's path (of one that ships too), a recipe as a dict, the folder of a train run or of
    any model, or a model's name on a hub (`owner/name`, or `owner/name@revision`). `changes` go over the recipe's keys; a key of a part
    is written with a dot:

        refinery.load("recipes/demo/infer/rag.yaml", max_new_tokens=24, **{"llm.device": "cuda"})

    A model alone is asked by the decoder that it was trained for: `rq_rag` for a generator, which then needs a `retriever`. Another is
    asked by `rag` where a `retriever` is given, and by `direct` where none is:

        refinery.load("Qwen/Qwen3-0.6B", retriever={"passages": "passages.jsonl"}).ask("Which country is Lyon in?").answer

    Raises RecipeError for a wrong key, RunDirError for a folder of another kind, CheckpointError and LLMError for a model that cannot be
    loaded or lacks what the decoder needs; all are RefineryError.
    """
    return LoadedPipeline(recipe_of(source, changes))


async def aload(source: str | Path | Mapping[str, Any], **changes: Any) -> "LoadedPipeline":
    """`load`, for a caller on an event loop that must go on meanwhile. Raises what `load` raises.

        async with await refinery.aload("runs/x") as pipeline:
            prediction = await pipeline.aask("Which country is Lyon in?")

    Cancelling it stops the wait and not the loading.
    """
    return await asyncio.to_thread(load, source, **changes)


class LoadedPipeline:
    """A decoder with its models and its retriever in memory; `refinery.load` gives one, and `recipe` says what it is.

    It may be asked from any thread and any event loop, a notebook's too. As a context manager it closes itself:

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
        """Answer a question, or a list of them at once, which the models batch; a list gives a list in its order.

            prediction = pipeline.ask("Which country is Lyon in?")
            prediction.answer, prediction.trace, prediction.cost

        A `refinery.Question` brings choices, a dialogue's history or passages of its own. An error of a lone question is raised
        (RefineryError, or what a decoder from outside raises); in a list it becomes its prediction's `failed`, and the others go on. An
        error that every question would meet is raised in both cases.
        """
        self._check_open()
        return run_in_background(self._answered(question))

    @overload
    async def aask(self, question: str | Question) -> Prediction: ...
    @overload
    async def aask(self, question: list[str] | list[Question]) -> list[Prediction]: ...
    async def aask(self, question: str | Question | list[str] | list[Question]) -> Prediction | list[Prediction]:
        """`ask` for a caller on an event loop; questions that are asked at the same time are batched too.

            first, second = await asyncio.gather(pipeline.aask("Who directed Dune?"), pipeline.aask("Where is Lyon?"))

        Cancelling it cancels the questions.
        """
        self._check_open()
        return await await_in_background(self._answered(question))

    async def _answered(self, question: str | Question | list[str] | list[Question]) -> Prediction | list[Prediction]:
        if isinstance(question, str | Question):
            return await self._pipeline.answer(as_questions([question])[0])
        return await self._outcomes(as_questions(question))

    async def _outcomes(self, questions: Sequence[Question]) -> list[Prediction]:
        try:
            async with asyncio.TaskGroup() as group:
                tasks = [group.create_task(self._pipeline.outcome(question)) for question in questions]
        except ExceptionGroup as errors:
            raise errors.exceptions[0] from None
        return [task.result() for task in tasks]

    def _check_open(self) -> None:
        if self._closed:
            raise LLMError("the pipeline is closed. Load it again to ask more.")

    def close(self) -> None:
        """Close the connections to endpoints; models are freed with the object. May be repeated."""
        if not self._closed:
            self._closed = True
            run_in_background(self._pipeline.close())

    async def aclose(self) -> None:
        """`close`, for a caller on an event loop."""
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


def as_questions(questions: Iterable[str | Question]) -> list[Question]:
    """Texts as questions, whose ids are their places from 1 on; questions stay as they are. Raises RecordError for a blank text."""
    return [question if isinstance(question, Question) else _question(number, question) for number, question in enumerate(questions, 1)]


def _question(number: int, text: str) -> Question:
    if not text.strip():
        raise RecordError(f"question {number}: is empty. Ask something.")
    return Question(id=str(number), text=text)
