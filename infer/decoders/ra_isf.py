"""RA-ISF: iterative self-feedback with three sub-models (Algorithm 1).

Where the paper leaves a choice or contradicts itself, the choice is an option whose default is the algorithm as printed.
"""

import asyncio
import re
from collections.abc import Callable, Coroutine
from dataclasses import dataclass, field
from typing import Any, Literal, TypeVar

from pydantic import Field

from infer.session import Tools
from infer.steps.ask import read_label, reply_to
from infer.steps.reasoning import reason, spoken
from refinery.contract.records import Passage, Question
from refinery.contract.trace import Prediction
from refinery.llms.served.capabilities import Need
from refinery.prompts.render import render_prompt
from refinery.runtime.recipe import Recipe
from refinery.tasks.sub_models import (
    IRRELEVANT,
    KNOW,
    RELEVANT,
    UNKNOW,
    decomposition_prompt,
    fill_references,
    knowledge_prompt,
    parse_sub_questions,
    relevance_prompt,
)

NEEDS_RETRIEVER = True
UNKNOWN_ANSWER = "Unknow"
_LIST_TOKENS = 256  # of a reply that names relevant paragraphs; App. D's are shorter
T = TypeVar("T")


class Options(Recipe):
    """Switches of Algorithm 1, its ambiguities and its ablations (Table 2)."""

    max_depth: int = Field(3, description="D_th: deeper questions are not solved", ge=0)
    know_threshold: float = Field(0.5, description="a question counts as known from this probability on", ge=0, le=1)
    relevance_threshold: float = Field(0.5, description="a passage counts as relevant from this probability on", ge=0, le=1)
    relevance: Literal["per_passage", "listwise"] = Field(
        "per_passage", description="Algorithm 1 judges one passage a call, App. D all in one prompt, which an in-context model replies to"
    )
    answer_from: Literal["relevant", "all"] = Field("relevant", description="Eq. 3 answers from P_rel, line 14 prints P")
    sub_questions: Literal["independent", "sequential"] = Field(
        "independent",
        description="Algorithm 1 solves them alone; sequential puts earlier answers where a later one says #1",
    )
    unresolved: Literal["unknow", "from_passages"] = Field(
        "unknow",
        description="what a question past max_depth, or one that decomposes into itself, answers: Algorithm 1's Unknow, or a guess",
    )
    max_sub_question_tokens: int = Field(128, ge=1)
    no_self_knowledge: bool = Field(False, description="ablation: never answer closed-book")
    no_passage_relevance: bool = Field(
        False, description="ablation: no passage is read, and a question not known is decomposed at once (Sec. 5.2)"
    )
    no_decomposition: bool = Field(False, description="ablation: never decompose")


def role_needs(options: Options) -> dict[str, frozenset[Need]]:
    """By role what an endpoint that plays it must be able to do; the model that answers needs nothing."""
    read, written = frozenset[Need]({"label_reads"}), frozenset[Need]()
    return {
        "self_knowledge": written if options.no_self_knowledge else read,
        "relevance": written if options.no_passage_relevance or options.relevance == "listwise" else read,
        "decomposition": written,
    }


@dataclass(slots=True)
class _Solver:
    """One question's tools, and what is under way or done for it and its sub-questions, so that nothing is asked twice."""

    tools: Tools
    options: Options
    begun: dict[tuple[object, ...], asyncio.Task[Any]] = field(default_factory=dict)

    async def once(self, work: Callable[..., Coroutine[Any, Any, T]], *key: Any) -> T:
        """What `work(self, *key)` returns, or returned when it was first asked for."""
        whole = (work.__name__, *map(_same, key))
        if whole not in self.begun:
            self.begun[whole] = asyncio.ensure_future(work(self, *key))
        return await self.begun[whole]


async def decode(question: Question, tools: Tools, options: Options) -> Prediction:
    """Solve the question from iteration 0 (Algorithm 1, line 22). There is an answer always, if only Algorithm 1's Unknow."""
    answer = await _solve(question.text, 0, (), _Solver(tools, options))
    return tools.prediction(answer.strip() or UNKNOWN_ANSWER)


async def _solve(question: str, depth: int, above: tuple[str, ...], solver: _Solver) -> str:
    """Algorithm 1's Problem-solving(q_t, iter); `above` are the questions that this one came from."""
    tools, options = solver.tools, solver.options
    if depth > options.max_depth:
        return UNKNOWN_ANSWER
    if not options.no_self_knowledge and await solver.once(_knows, question, depth):
        return await _write("answer_direct", depth, tools, question=question)

    passages = await solver.once(_search, question, depth)
    relevant = [] if options.no_passage_relevance else await solver.once(_relevant, question, depth)
    if relevant:
        return await _answer_from(relevant if options.answer_from == "relevant" else passages, question, depth, tools)

    sub_questions = [] if options.no_decomposition else await solver.once(_decompose, question, depth)
    comes_back = {_same(sub) for sub in sub_questions} & {_same(asked) for asked in (question, *above)}
    if not sub_questions or comes_back or depth == options.max_depth:
        return await _unresolved(question, passages, depth, solver)
    sub_answers = await _solve_all(sub_questions, depth, (question, *above), solver)
    return await _synthesise(question, sub_answers, depth, tools)


async def _knows(solver: _Solver, question: str, depth: int) -> bool:
    """M_know(q)."""
    tools = solver.tools
    context = tools.ask("self_knowledge", knowledge_prompt(question))
    shares = await read_label("self_knowledge", context, (KNOW, UNKNOW), question, tools, depth=depth)
    tools.note("self_knowledge", question, depth=depth, probabilities=shares)
    return shares[KNOW] >= solver.options.know_threshold


async def _search(solver: _Solver, question: str, depth: int) -> list[Passage]:
    """P = R(q, C) (line 7)."""
    return await solver.tools.search(question, depth=depth)


async def _relevant(solver: _Solver, question: str, depth: int) -> list[Passage]:
    """P_rel: the passages that M_rel finds relevant and sufficient (lines 8-11, App. D)."""
    passages = await solver.once(_search, question, depth)
    if solver.options.relevance == "listwise":
        return await _relevant_of_list(question, passages, depth, solver.tools)
    tools = solver.tools

    async def judge(passage: Passage) -> bool:
        context = tools.ask("relevance", tools.fitted_prompt("relevance", relevance_prompt(question, passage), to_write=1))
        shares = await read_label("relevance", context, (RELEVANT, IRRELEVANT), question, tools, depth=depth)
        tools.note("relevance", question, depth=depth, text=passage.title, probabilities=shares)
        return shares[RELEVANT] >= solver.options.relevance_threshold

    judged = await asyncio.gather(*(judge(passage) for passage in passages))
    return [passage for passage, is_relevant in zip(passages, judged, strict=True) if is_relevant]


async def _relevant_of_list(question: str, passages: list[Passage], depth: int, tools: Tools) -> list[Passage]:
    """P_rel by App. D: one prompt with all passages; the reply names those that are relevant by their numbers, or says No."""
    if not passages:
        return []
    prompt = tools.fitted_prompt(
        "relevance", render_prompt("relevance_listwise", question=question, passages=passages), to_write=_LIST_TOKENS
    )
    context = tools.ask("relevance", prompt)
    reply, cut = await reply_to(prompt, context, max_new_tokens=_LIST_TOKENS, adapter=tools.adapter("relevance"))
    tools.note_reply("relevance", question, reply, cut, depth=depth)
    named = {int(number) for number in re.findall(r"\[(\d{1,3})\]", reply.text)}
    return [passage for position, passage in enumerate(passages, 1) if position in named]


async def _decompose(solver: _Solver, question: str, depth: int) -> list[str]:
    """Q_sub = M_decom(q) (line 15)."""
    tools = solver.tools
    prompt, most = decomposition_prompt(question), solver.options.max_sub_question_tokens
    context = tools.ask("decomposition", prompt)
    reply, cut = await reply_to(prompt, context, max_new_tokens=most, adapter=tools.adapter("decomposition"))
    tools.note_reply("decompose", question, reply, cut, depth=depth)
    return parse_sub_questions(reply.text)


async def _solve_all(sub_questions: list[str], depth: int, above: tuple[str, ...], solver: _Solver) -> list[tuple[str, str]]:
    """Lines 16-19: each sub-question one iteration deeper, alone or after the answers it refers to."""

    async def solve(sub_question: str) -> str:
        # Equal sub-questions of one depth are solved once; a deeper one has less depth left, so it may have another answer.
        key = ("_solve", _same(sub_question), depth + 1)
        if key not in solver.begun:
            solver.begun[key] = asyncio.ensure_future(_solve(sub_question, depth + 1, above, solver))
        return await solver.begun[key]

    if solver.options.sub_questions == "independent":
        answers = await asyncio.gather(*map(solve, sub_questions))
        return list(zip(sub_questions, answers, strict=True))
    solved: list[tuple[str, str]] = []
    for sub_question in sub_questions:
        filled = fill_references(sub_question, [answer for _, answer in solved])
        solved.append((filled, await solve(filled)))
    return solved


async def _answer_from(passages: list[Passage], question: str, depth: int, tools: Tools) -> str:
    """M(q, P_rel) (Eq. 3)."""
    return await _write("answer_with_passages", depth, tools, question=question, passages=passages)


async def _synthesise(question: str, sub_answers: list[tuple[str, str]], depth: int, tools: Tools) -> str:
    """M(q, Q_sub, A_sub) (line 20, Eq. 4)."""
    return await _write("answer_from_sub_answers", depth, tools, question=question, sub_answers=sub_answers)


async def _write(prompt: str, depth: int, tools: Tools, *, question: str, **values: Any) -> str:
    """What M writes after a prompt of App. D; empty where it declines."""
    rendered = render_prompt(prompt, question=question, **values)
    reply = await reason(prompt, rendered, question, tools, depth=depth, max_new_tokens=tools.max_new_tokens)
    return spoken(reply, question, tools, depth=depth)


async def _unresolved(question: str, passages: list[Passage], depth: int, solver: _Solver) -> str:
    """A question that cannot be taken further."""
    tools = solver.tools
    if solver.options.unresolved == "unknow" or not passages:
        tools.note("unresolved", question, depth=depth, text=UNKNOWN_ANSWER)
        return UNKNOWN_ANSWER
    return await _answer_from(passages, question, depth, tools)


def _same(value: Any) -> Any:
    """Questions that differ in case or white space are the same question."""
    return " ".join(value.casefold().split()) if isinstance(value, str) else None
