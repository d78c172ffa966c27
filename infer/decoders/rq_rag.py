"""RQ-RAG: a tree of searches opened by control tokens, every leaf an answer (Sec. 2.3, Fig. 8)."""

import asyncio
from typing import Literal

from pydantic import Field

from infer.selection import STRATEGIES, Fidelity, select
from infer.tools import Tools
from infer.trace import Prediction, written_step
from refinery.control_tokens import RQ_RAG
from refinery.formats import END, FormatName, action_segment, evidence_segments, prompt_segments
from refinery.llms.base import Context
from refinery.prompts.render import render_prompt
from refinery.recipe import Recipe
from refinery.records import Question, Step, Trajectory

NEEDS_RETRIEVER = True
CONTROL_TOKENS = RQ_RAG
SearchAction = Literal["rewrite", "decompose", "disambiguate"]


class Options(Recipe):
    """Shape of the tree and how an answer is selected from it."""

    max_depth: int = Field(2, description="searches on a path; the paper uses 2, and 4 for 2WikiMultihopQA and MuSiQue", ge=0)
    actions: list[SearchAction] = Field(["rewrite", "decompose", "disambiguate"], description="one alone is the ablation of Sec. 4.5")
    selection: Literal["ppl", "confidence", "ensemble"] = Field("ensemble", description="the paper's tables report the ensemble")
    fidelity: Fidelity = Field("paper", description="how confidence and ensemble are defined; see infer/selection.py")
    format: FormatName = Field("consistent", description="'official' for the released checkpoint")
    system_prompt: str = Field("rq_rag_short_answer", description="a file of refinery/prompts")
    max_query_tokens: int = Field(100, description="RQ-RAG's scripts use 100", ge=1)
    query_temperature: float = Field(0.0, description="RQ-RAG's script passes 1.0 to queries, greedy unless the checkpoint samples", ge=0)


async def decode(question: Question, tools: Tools, options: Options) -> Prediction:
    """Grow the whole tree, then select; the selections of every strategy are kept."""
    system_prompt = render_prompt(options.system_prompt)
    root = tools.context(prompt_segments(question.text, system_prompt, tools.llm.tokenizer))  # type: ignore[attr-defined]
    leaves = await _expand(root, (), question, tools, options)
    paths = [Trajectory(question_id=question.id, question=question.text, steps=list(steps)) for steps in leaves]
    selected = {strategy: select(paths, strategy, fidelity=options.fidelity) for strategy in STRATEGIES}
    return tools.prediction(selected[options.selection], paths=paths, selected=selected)


async def _expand(context: Context, steps: tuple[Step, ...], question: Question, tools: Tools, options: Options) -> list[tuple[Step, ...]]:
    """Every path below a node: answer here, or search by each action and go on; at `max_depth` only the answer is left."""
    actions = options.actions if len(steps) < options.max_depth else []
    searches = (_search(action, context, steps, question, tools, options) for action in actions)
    answer, *below = await asyncio.gather(_answer(context, steps, tools), *searches)
    return [answer, *(path for paths in below for path in paths)]


async def _answer(context: Context, steps: tuple[Step, ...], tools: Tools) -> tuple[Step, ...]:
    """Open `[A_Response]` and let the model answer."""
    opened, opened_with = await _open("answer", context)
    generation = await opened.generate(max_new_tokens=tools.max_new_tokens, stop=(END.text,))
    tools.note("answer", tools.question.text, depth=len(steps), text=generation.text)
    return (*steps, written_step("answer", generation, opened_with=opened_with))


async def _search(
    action: str, context: Context, steps: tuple[Step, ...], question: Question, tools: Tools, options: Options
) -> list[tuple[Step, ...]]:
    """Open a search, let the model write the query, insert what is found, and expand from there."""
    opened, opened_with = await _open(action, context)
    query = await opened.generate(max_new_tokens=options.max_query_tokens, stop=(END.text,), temperature=options.query_temperature)
    tools.note(action, question.text, depth=len(steps), text=query.text)
    # A query that is empty cannot be searched; the question itself is what is left to ask.
    passages = await tools.search(query.text or question.text, depth=len(steps))
    closing = [END] if query.stopped_by == "length" else []
    found = query.context.extend([*closing, *evidence_segments(passages, format=options.format)])
    step = written_step(action, query, opened_with=opened_with, passages=passages)
    return await _expand(found, (*steps, step), question, tools, options)


async def _open(action: str, context: Context) -> tuple[Context, tuple[int, float]]:
    """Extend by the control token that opens an action; also its id and the log-probability the model gave it."""
    segment = action_segment(action)
    logprob = (await context.score([segment]))[0]
    opened = context.extend([segment])
    return opened, (opened.token_ids[-1], logprob)
