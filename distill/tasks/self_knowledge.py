"""Self-knowledge labels, in both of RA-ISF's senses.

`by: student` (App. A.1): the target model answers closed-book, and its answers are graded against the gold answers. The share that is
right is kept with the replies, so another threshold can be applied later at no cost. `by: teacher` (App. D): the teacher says whether
it knows.
"""

import asyncio
from typing import Literal, cast

from pydantic import BaseModel, Field

from distill.label_context import LabelContext
from distill.label_task import LabelTask
from distill.teacher.teacher import RejectedRow, RequestLog, Teacher
from refinery.contract.records import KnowledgeLabel, Question
from refinery.llms.base import LLM
from refinery.metrics.squad import exact_match, token_f1
from refinery.prompts.render import render_prompt
from refinery.runtime.recipe import Recipe

METRICS = {"em.squad": exact_match, "f1.squad": token_f1}


class Options(Recipe):
    """Who says what is known, and how."""

    by: Literal["student", "teacher"] = Field(
        default="student", description="the target's own right answers (App. A.1), or the teacher (App. D)"
    )
    examples: Literal["zero", "few"] = Field(default="zero", description="few puts worked examples into the prompt")
    samples: int = Field(default=1, description="closed-book answers of the student; 1 is Eq. 5", ge=1)
    temperature: float = Field(default=0.0, description="of a local student's samples; an endpoint's is target_endpoint.temperature", ge=0)
    metric: Literal["em.squad", "f1.squad"] = Field(default="em.squad", description="grades an answer; em.squad is Eq. 5")
    threshold: float = Field(default=0.5, description="the label is `know` from this share of right answers on", gt=0, le=1)


def needs(options: Options) -> tuple[str, ...]:
    """Parts of the recipe that must be there."""
    return ("target",) if options.by == "student" else ("teacher",)


class Reply(BaseModel):
    """Whether the teacher knows."""

    answer: Literal["yes", "no"]


async def label(question: Question, context: LabelContext) -> list[KnowledgeLabel]:
    """`know` or `unknow`. Raises RejectedRow where a student's answers have no gold answer to be graded against."""
    return [await (_by_student if context.options.by == "student" else _by_teacher)(question, context)]


async def _by_teacher(question: Question, context: LabelContext) -> KnowledgeLabel:
    assert context.teacher is not None
    asked = RequestLog()
    prompt = render_prompt("teacher_self_knowledge", question=question.text, examples=context.options.examples)
    reply = await context.teacher.ask(prompt, Reply, asked)
    return KnowledgeLabel(
        question_id=question.id,
        question=question.text,
        label="know" if reply.answer == "yes" else "unknow",
        provenance=context.provenance("teacher_self_knowledge", asked=asked),
    )


async def _by_student(question: Question, context: LabelContext) -> KnowledgeLabel:
    if not question.answers:
        raise RejectedRow("no_gold_answer", f"question {question.id} has no gold answers to compare with")
    grade, asked = METRICS[context.options.metric], RequestLog()
    replies = await _closed_book_answers(question, context, asked)
    # Only the first line is an answer: a base model goes on with a question of its own.
    share = sum(grade(reply.strip().partition("\n")[0], question.answers) for reply in replies) / len(replies)
    return KnowledgeLabel(
        question_id=question.id,
        question=question.text,
        label="know" if share >= context.options.threshold else "unknow",
        share=share,
        replies=replies,
        provenance=context.provenance(_prompt_name(context), asked=asked, target=True),
    )


async def _closed_book_answers(question: Question, context: LabelContext, asked: RequestLog) -> list[str]:
    """`samples` answers of the target, a local model or an endpoint."""
    assert context.target is not None
    recipe, options = context.recipe, context.options
    temperature = recipe.target_endpoint.temperature if recipe.target_endpoint else options.temperature
    if options.samples > 1 and temperature == 0:
        key = "target_endpoint.temperature" if recipe.target_endpoint else "options.temperature"
        raise options.fault("samples", f"{options.samples} greedy answers are all the same. Set {key} above 0, or samples to 1.")
    prompt = render_prompt(_prompt_name(context), question=question.text)
    if recipe.target_endpoint:
        endpoint = cast(Teacher, context.target)
        return await asyncio.gather(*(endpoint.text(prompt, asked, rollout=rollout) for rollout in range(options.samples)))
    asked_alone = cast(LLM, context.target).context(prompt)
    sampled = (asked_alone.generate(max_new_tokens=recipe.max_new_tokens, temperature=temperature) for _ in range(options.samples))
    return [generation.text for generation in await asyncio.gather(*sampled)]


def _prompt_name(context: LabelContext) -> str:
    return "answer_direct" if context.options.examples == "zero" else "closed_book_few"


LABEL_TASK = LabelTask(label, Options, needs)
