"""RA-ISF: iterative self-feedback with three sub-models (Algorithm 1).

Where the paper leaves a choice or contradicts itself, the choice is an option whose default is the algorithm as printed.
"""

import asyncio
from typing import Literal

from pydantic import Field

from infer.tools import Tools
from infer.trace import Prediction
from refinery.prompts.render import render_prompt
from refinery.recipe import Recipe
from refinery.records import Passage, Question
from refinery.sub_models import (
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


class Options(Recipe):
    """Switches of Algorithm 1, its ambiguities and its ablations (Table 2)."""

    max_depth: int = Field(3, description="D_th: deeper questions are not solved", ge=0)
    know_threshold: float = Field(0.5, description="a question counts as known from this probability on", ge=0, le=1)
    relevance_threshold: float = Field(0.5, description="a passage counts as relevant from this probability on", ge=0, le=1)
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
    no_passage_relevance: bool = Field(False, description="ablation: every passage counts as relevant")
    no_decomposition: bool = Field(False, description="ablation: never decompose")


async def decode(question: Question, tools: Tools, options: Options) -> Prediction:
    """Solve the question from iteration 0 (Algorithm 1, line 22)."""
    return tools.prediction(await _solve(question.text, 0, (), tools, options))


async def _solve(question: str, depth: int, above: tuple[str, ...], tools: Tools, options: Options) -> str:
    """Algorithm 1's Problem-solving(q_t, iter); `above` are the questions that this one came from."""
    if depth > options.max_depth:
        return UNKNOWN_ANSWER
    if not options.no_self_knowledge and await _knows(question, depth, tools, options):
        return await tools.answer("answer_direct", render_prompt("answer_direct", question=question), question, depth=depth)

    passages = await tools.search(question, depth=depth)
    relevant = passages if options.no_passage_relevance else await _relevant(question, passages, depth, tools, options)
    if relevant:
        return await _answer_from(relevant if options.answer_from == "relevant" else passages, question, depth, tools)

    sub_questions = [] if options.no_decomposition else await _decompose(question, depth, tools, options)
    if not sub_questions or set(sub_questions) & {question, *above} or depth == options.max_depth:
        return await _unresolved(question, passages, depth, tools, options)
    sub_answers = await _solve_all(sub_questions, depth, (question, *above), tools, options)
    return await _synthesise(question, sub_answers, depth, tools)


async def _knows(question: str, depth: int, tools: Tools, options: Options) -> bool:
    """M_know(q)."""
    context = tools.context(knowledge_prompt(question))
    shares = await context.choose((KNOW, UNKNOW), adapter=tools.adapter("self_knowledge"))
    tools.note("self_knowledge", question, depth=depth, probabilities=shares)
    return shares[KNOW] >= options.know_threshold


async def _relevant(question: str, passages: list[Passage], depth: int, tools: Tools, options: Options) -> list[Passage]:
    """P_rel: the passages that M_rel finds relevant and sufficient (lines 8-11, App. D)."""

    async def judge(passage: Passage) -> bool:
        context = tools.context(relevance_prompt(question, passage))
        shares = await context.choose((RELEVANT, IRRELEVANT), adapter=tools.adapter("relevance"))
        tools.note("relevance", question, depth=depth, text=passage.title, probabilities=shares)
        return shares[RELEVANT] >= options.relevance_threshold

    judged = await asyncio.gather(*(judge(passage) for passage in passages))
    return [passage for passage, is_relevant in zip(passages, judged, strict=True) if is_relevant]


async def _decompose(question: str, depth: int, tools: Tools, options: Options) -> list[str]:
    """Q_sub = M_decom(q) (line 15)."""
    context = tools.context(decomposition_prompt(question))
    reply = await context.generate(max_new_tokens=options.max_sub_question_tokens, adapter=tools.adapter("decomposition"))
    tools.note("decompose", question, depth=depth, text=reply.text, token_ids=reply.token_ids, logprobs=reply.logprobs)
    return parse_sub_questions(reply.text)


async def _solve_all(sub_questions: list[str], depth: int, above: tuple[str, ...], tools: Tools, options: Options) -> list[tuple[str, str]]:
    """Lines 16-19: each sub-question one iteration deeper, alone or after the answers it refers to."""
    if options.sub_questions == "independent":
        answers = await asyncio.gather(*(_solve(sub, depth + 1, above, tools, options) for sub in sub_questions))
        return list(zip(sub_questions, answers, strict=True))
    solved: list[tuple[str, str]] = []
    for sub_question in sub_questions:
        filled = fill_references(sub_question, [answer for _, answer in solved])
        solved.append((filled, await _solve(filled, depth + 1, above, tools, options)))
    return solved


async def _answer_from(passages: list[Passage], question: str, depth: int, tools: Tools) -> str:
    """M(q, P_rel) (Eq. 3)."""
    prompt = render_prompt("answer_with_passages", question=question, passages=passages)
    return await tools.answer("answer_with_passages", prompt, question, depth=depth)


async def _synthesise(question: str, sub_answers: list[tuple[str, str]], depth: int, tools: Tools) -> str:
    """M(q, Q_sub, A_sub) (line 20, Eq. 4)."""
    prompt = render_prompt("answer_from_sub_answers", question=question, sub_answers=sub_answers)
    return await tools.answer("answer_from_sub_answers", prompt, question, depth=depth)


async def _unresolved(question: str, passages: list[Passage], depth: int, tools: Tools, options: Options) -> str:
    """A question that cannot be taken further."""
    if options.unresolved == "unknow" or not passages:
        tools.note("unresolved", question, depth=depth, text=UNKNOWN_ANSWER)
        return UNKNOWN_ANSWER
    return await _answer_from(passages, question, depth, tools)
