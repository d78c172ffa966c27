"""Verdicts of a judge, if the recipe names one as `sub_models.judge`: for a module's texts yes, no or None (an unreadable reply), and for
a question or a passage the judge's own label.

Its tokens are not part of the module's cost.
"""

import asyncio
import re
from collections.abc import Sequence
from typing import Literal

from pydantic import BaseModel

from infer.modules.kinds.base import Case
from infer.modules.kinds.gold import answers_of, gold_steps
from infer.session import Session
from infer.steps.ask import reply_to
from refinery.contract.module_output import ModuleOutput
from refinery.contract.records import Question
from refinery.llms.base import Usage
from refinery.llms.served.replies.bare_reply import yes_or_no
from refinery.llms.served.replies.json_reply import parse_json_reply
from refinery.prompts.render import render_prompt

ROLE = "judge"
_WORD, _LABEL, _LIST = 8, 32, 200  # tokens of a yes or no, of a JSON label, and of a list of numbers with its explanation (MIGRES Table 14)
_INDEX = re.compile(r"\bindex(?:es)?\W*\[([\d, ]*)\]", re.IGNORECASE)


async def judged_answers(case: Case, output: ModuleOutput, question: Question, session: Session) -> ModuleOutput:
    """Whether the answer implies the gold one (MIGRES Table 15)."""
    answers = " / ".join(answers_of(question, case.step))
    return await _of_texts("judge", output, session, question=case.question, answer=answers, shown_as="prediction")


async def judged_useful(case: Case, output: ModuleOutput, question: Question, session: Session) -> ModuleOutput:
    """Whether each piece of information is useful for the question (MIGRES Table 13)."""
    return await _of_texts("module_useful", output, session, question=question.text, shown_as="statement")


async def judged_consistent(case: Case, output: ModuleOutput, question: Question, session: Session) -> ModuleOutput:
    """Whether each sub-question is consistent in meaning with the question (RA-ISF Sec. 5.5); no sub-questions are not."""
    if ROLE in session.sub_models and not output.texts:
        return output.model_copy(update={"judged": [False]})
    return await _of_texts("module_consistent", output, session, question=question.text, shown_as="sub_question")


async def judged_known(case: Case, output: ModuleOutput, question: Question, session: Session) -> ModuleOutput:
    """Whether the judge says that it knows the answer itself (RA-ISF Sec. 5.5)."""
    if ROLE not in session.sub_models:
        return output
    reply = await _reply("teacher_self_knowledge", session, _LABEL, question=case.question)
    return output.model_copy(update={"judged": [_says(reply, _Knows, "yes")]})


async def judged_relevant(case: Case, output: ModuleOutput, question: Question, session: Session) -> ModuleOutput:
    """Whether the judge finds each passage relevant (RA-ISF Sec. 5.5)."""
    if ROLE not in session.sub_models:
        return output
    asked = (_reply("teacher_relevance_each", session, _LABEL, question=case.question, passage=passage) for passage in case.passages)
    return output.model_copy(update={"judged": [_says(reply, _IsRelevant, "relevant") for reply in await asyncio.gather(*asked)]})


class _Knows(BaseModel):
    answer: Literal["yes", "no"]


class _IsRelevant(BaseModel):
    label: Literal["relevant", "irrelevant"]


def _says(reply: str, schema: type[BaseModel], positive: str) -> bool | None:
    """Whether the one field of a reply has the `positive` value; None if the reply cannot be read."""
    try:
        return positive in parse_json_reply(reply, schema).model_dump().values()
    except ValueError:
        return None


def judged_the_same(outputs: Sequence[ModuleOutput]) -> dict[str, tuple[float, float]]:
    """The share of labels that agree with the judge's, as counts; an unreadable reply of the judge agrees with none."""
    pairs = [pair for output in outputs if output.judged for pair in zip(output.labels, output.judged, strict=True)]
    return {"judged the same": (sum(label is verdict for label, verdict in pairs), len(pairs))} if pairs else {}


async def judged_aligned(case: Case, output: ModuleOutput, question: Question, session: Session) -> ModuleOutput:
    """Whether the missing information is that of one of the sub-questions that are not answered yet (MIGRES Table 14)."""
    left = [step.text for number, step in enumerate(gold_steps(question)) if step and number not in case.given]
    if ROLE not in session.sub_models or not output.texts or not left:
        return output
    reply = await _reply("module_aligned", session, _LIST, missing=output.texts[0], candidates=left)
    found = _INDEX.search(reply)
    listed = None if found is None else any(0 < int(number) <= len(left) for number in re.findall(r"\d+", found[1]))
    return output.model_copy(update={"judged": [listed]})


async def _of_texts(prompt: str, output: ModuleOutput, session: Session, *, shown_as: str, **values: str) -> ModuleOutput:
    if ROLE not in session.sub_models:
        return output
    replies = await asyncio.gather(*(_reply(prompt, session, _WORD, **values, **{shown_as: text}) for text in output.texts))
    return output.model_copy(update={"judged": [yes_or_no(reply) for reply in replies]})


async def _reply(name: str, session: Session, max_new_tokens: int, **values: object) -> str:
    prompt = session.fit_prompt(ROLE, render_prompt(name, **values), to_write=max_new_tokens)
    context = session.sub_models[ROLE].context(prompt, usage=Usage())
    return (await reply_to(prompt, context, max_new_tokens=max_new_tokens))[0].text
