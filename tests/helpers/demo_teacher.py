"""What the tests of the demo's teacher share: its worlds, questions about them, and asking it over real HTTP as distillation does."""

import asyncio
import random
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, TypeVar

import pytest

from distill.tasks.decomposition import Reply as Decomposition
from distill.teacher.teacher import RejectedRow, RequestLog, Teacher
from refinery.contract.records import Question
from refinery.demo.teacher.server import MODEL, ChatServer
from refinery.demo.world.entities import demo_worlds
from refinery.demo.world.questions import QUESTION_TYPES, draw_questions
from refinery.llms.served.endpoint import EndpointConfig
from refinery.llms.served.paid.budget import Budget
from refinery.llms.served.paid.paid_replies import persist_in
from refinery.llms.served.transport.client import EndpointClient
from refinery.prompts.render import render_prompt
from refinery.stores.sqlite import SqliteStore

T = TypeVar("T")

WORLDS = demo_worlds(0)
PASSAGES = {passage.id: passage for world in WORLDS.values() for passage in world.passages()}
QUESTIONS = draw_questions(WORLDS["test"], random.Random(1), dict.fromkeys(QUESTION_TYPES, 300))
COMMON_QUESTIONS = draw_questions(WORLDS["common"], random.Random(1), dict.fromkeys(QUESTION_TYPES, 20))


def config(server: ChatServer, **changes: Any) -> EndpointConfig:
    return EndpointConfig(base_url=server.base_url, model=MODEL, api_key_env="NO_SUCH_KEY", **changes)


def with_teacher(server: ChatServer, folder: Path, use: Callable[[Teacher], Awaitable[T]], **changes: Any) -> T:
    async def run() -> T:
        endpoint, store = config(server, **changes), SqliteStore(folder / "effects.sqlite")
        teacher = Teacher(endpoint, store, EndpointClient(endpoint, persist_in(store)), Budget(endpoint, None))
        try:
            return await use(teacher)
        finally:
            await teacher.close()
            store.close()

    return asyncio.run(run())


def several(question_type: str) -> list[Question]:
    """Two questions of each relation or chain of this type."""
    by_chain: dict[str, list[Question]] = {}
    for question in QUESTIONS:
        if question.type == question_type:
            by_chain.setdefault(question.id.rsplit(":", 1)[1], []).append(question)
    return [question for questions in by_chain.values() for question in questions[:2]]


def some(question_type: str) -> Question:
    return several(question_type)[0]


def decomposition_prompts(count: int) -> list[str]:
    return [render_prompt("teacher_decomposition", question=question.text) for question in QUESTIONS[:count]]


async def rejection(teacher: Teacher, prompt: str) -> str:
    """The reason why the reply to `prompt` makes no row."""
    with pytest.raises(RejectedRow) as caught:
        await teacher.ask(prompt, Decomposition, RequestLog())
    return caught.value.reason
