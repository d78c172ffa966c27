"""The first prompts of a run, rendered by the task itself for a teacher and a target that only listen."""

from dataclasses import dataclass
from typing import Any, NoReturn

from distill.bench import Bench
from distill.recipe import DistillRecipe
from distill.run import load_task
from distill.teacher import RejectedRow
from refinery.questions.base import read_questions
from refinery.retrievers.base import build_retriever


@dataclass
class _Heard(Exception):
    prompt: str


class _Listener:
    """Stands for the teacher and the target: the first prompt either is given ends the row."""

    async def ask(self, prompt: str, *arguments: Any) -> NoReturn:
        raise _Heard(prompt)

    def context(self, prompt: str) -> NoReturn:
        raise _Heard(prompt)


async def first_prompts(recipe: DistillRecipe, count: int) -> list[str]:
    """What each of the first `count` questions would ask first; for a task that asks no model, the rows it would write."""
    task = load_task(recipe)
    listener: Any = _Listener()
    bench = Bench(recipe, listener, listener, build_retriever(recipe.retriever) if recipe.retriever else None)
    shown: list[str] = []
    for question in read_questions(recipe.questions, reader=recipe.reader, limit=count):
        try:
            rows = await task.label(question, bench)
            shown.append("\n".join(row.model_dump_json(exclude_none=True) for row in rows))
        except _Heard as heard:
            shown.append(heard.prompt)
        except RejectedRow as rejected:
            shown.append(f"rejected: {rejected}")
    return shown
