"""What the tests of the labelling tasks share: a scripted teacher, a workbench around it, and the real rows where they are."""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from distill.label_context import LabelContext
from distill.label_task import TASKS
from distill.recipe import DistillRecipe
from distill.teacher.config import TeacherConfig
from distill.teacher.teacher import RejectedRow
from refinery.questions.base import read_questions
from refinery.retrievers.base import RetrieverConfig
from refinery.retrievers.search.build import build_retriever
from refinery.runtime.recipes import plugins

SHARED = Path(__file__).parents[4] / "shared" / "data"
RELEASES = {
    "hotpotqa": ["hotpotqa/hotpot_dev_distractor_v1.json"],
    "two_wiki": ["2wikimultihopqa/train.json", "2wikimultihopqa/dev.json"],
    "musique": ["musique/musique_ans_v1.0_dev.jsonl"],
    "strategyqa": ["strategyqa/train.json", "strategyqa/dev.json"],
}


@dataclass
class ScriptedTeacher:
    """A teacher that replies `script(prompt)`. `prompts` and `schemas` remember what it was asked for, in order."""

    script: Callable[[str], str]
    prompts: list[str] = field(default_factory=list)
    schemas: list[dict] = field(default_factory=list)

    async def ask(self, prompt, schema, asked, *, rollout=0):
        self.schemas.append(schema.model_json_schema())
        return schema.model_validate_json(await self.text(prompt, asked))

    async def text(self, prompt, asked, *, rollout=0):
        self.prompts.append(prompt)
        asked.request_ids.append(f"request {len(self.prompts)}")
        return self.script(prompt)


def _workbench(task, options, *, teacher=None, target=None, passages_per_query=5, max_steps=5, target_endpoint=None):
    recipe = DistillRecipe(
        task=task,
        options=options,
        questions=["questions.jsonl"],
        output_dir="unused",
        teacher=TeacherConfig(model="scripted"),
        target={"base": "unused"} if target else None,
        target_endpoint=target_endpoint,
        retriever=RetrieverConfig(name="candidates"),
        passages_per_query=passages_per_query,
        max_steps=max_steps,
    )
    return LabelContext(
        recipe=recipe,
        teacher=teacher,
        target=target or teacher,
        retriever=build_retriever(recipe.retriever),
        options=recipe.task_options(),
    )


@pytest.fixture
def label():
    """The rows that a task gives a question. Options are keywords; `parts` are what the workbench is made of."""

    def rows(task, question, parts=None, **options):
        context = _workbench(task, options, **parts or {})
        return asyncio.run(plugins.find(TASKS, task).label(question, context))

    return rows


@pytest.fixture
def rejection(label):
    """Why a task gives a question no row."""

    def rejected(task, question, parts=None, **options):
        with pytest.raises(RejectedRow) as raised:
            label(task, question, parts, **options)
        return raised.value

    return rejected


@pytest.fixture
def label_release():
    """(questions, rows, reasons of rejection) of a task over the real rows of a dataset; skips where these are not."""

    def run(task, dataset, parts=None, **options):
        paths = [SHARED / name for name in RELEASES[dataset]]
        if missing := [path for path in paths if not path.exists()]:
            pytest.skip(f"{missing[0]} is not here")
        context = _workbench(task, options, **parts or {})
        return asyncio.run(_label_all(plugins.find(TASKS, task), read_questions(paths, reader=dataset), context))

    return run


async def _label_all(task, questions, context):
    rows, reasons = [], []
    for question in questions:
        try:
            rows += await task.label(question, context)
        except RejectedRow as error:
            reasons.append(error.reason)
    return questions, rows, reasons


@pytest.fixture
def scripted_teacher():
    """A teacher that replies by a script, or always the same."""
    return lambda script: ScriptedTeacher(script if callable(script) else lambda _: script)
