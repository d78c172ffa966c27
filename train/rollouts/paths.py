"""Sample RQ-RAG's paths: the model writes each action, query and answer itself, and the evidence of real searches is inserted.

The decoder opens actions by force. Here the model chooses them among all tokens, because its own choices are what is trained. Only when no
search is left does the decoder's `[A_Response]` open the answer, which then does not count as written.

The paths of a question may grow as a tree: siblings continue the same step, search and evidence, each in its own way.
"""

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from math import prod
from random import Random

from infer.decoders.rq_rag import Options, evidence_budget, read_query
from infer.pipeline import Pipeline
from infer.session import Session
from refinery.contract.control_tokens import RQ_RAG
from refinery.contract.formats import END, action_segment, evidence_segments, prompt_segments
from refinery.contract.records import Action, Question
from refinery.contract.segments import Segment, control_token_id
from refinery.llms.base import Context, Generation
from refinery.prompts.render import render_prompt
from train.rollout_settings import GrpoSettings
from train.rollouts.rollout import Rollout, Text

# The session in which a sibling goes on, whose number and step decide what it draws.
OpenSession = Callable[[int, int], Session]


@dataclass(slots=True)
class _Path:
    """A path that may grow: `context` has read its text, of which the first `prompt` tokens are the prompt's."""

    context: Context
    session: Session
    rollout: Rollout
    prompt: int
    depth: int = 0
    ended: bool = False

    @property
    def text(self) -> Text:
        return self.rollout.texts[0]

    def move_to(self, context: Context) -> None:
        """Go on after more text that the model has only read."""
        self.text.read(context.token_ids[len(self.text.token_ids) :])
        self.context = context

    def move_after(self, written: Generation) -> None:
        """Go on after what the model wrote."""
        self.text.wrote(written.token_ids, written.logprobs)
        self.context = written.context

    def end(self, answer: str = "", *, whole: bool) -> None:
        """End the path, with its answer if there is one."""
        self.rollout = replace(self.rollout, answer=answer, whole=self.rollout.whole and whole)
        self.ended = True


async def sampled_paths(pipeline: Pipeline, question: Question, settings: GrpoSettings, key: str, number: int) -> list[Rollout]:
    """The paths of a question that grow together; the numbers of what they draw begin with `number`."""

    def open_session(sibling: int, step: int) -> Session:
        session = pipeline.session(question)
        session.usage.random = Random(f"{key}:{number + sibling}:{step}")
        return session

    return await PathSampler(question, open_session, pipeline.options, settings.temperature).tree(settings.levels)


class PathSampler:
    """Samples the paths of one question. `levels` of a tree are the numbers of ways in which each step is continued: [1] is one path."""

    def __init__(self, question: Question, open_session: OpenSession, options: Options, temperature: float) -> None:
        self._question, self._open, self._options, self._temperature = question, open_session, options, temperature
        session = open_session(0, 0)
        tokenizer = session.llm.tokenizer
        self._read = session.readable()
        self._prompt = prompt_segments(self._read.text, render_prompt(options.system_prompt), tokenizer, format=options.format)
        self._control = {control_token_id(token.token, tokenizer): token.role for token in RQ_RAG}
        self._end = control_token_id(END.text, tokenizer)
        self._actions: tuple[Action, ...] = ("answer", *options.actions)

    async def tree(self, levels: Sequence[int]) -> list[Rollout]:
        """The rollouts of one tree, as many as the product of `levels`."""
        session = self._open(0, 0)
        context = session.context(self._prompt)
        text = Text()
        text.read(context.token_ids)
        return await self._grown(_Path(context, session, Rollout(self._question, [text]), len(text.token_ids)), levels, first=0)

    async def _grown(self, path: _Path, levels: Sequence[int], *, first: int) -> list[Rollout]:
        """The rollouts below a path, the first of which has the number `first`."""
        if path.ended:
            return [path.rollout] * prod(levels)
        if not levels:
            while not path.ended:
                await self._step(path)
            return [path.rollout]
        each = prod(levels[1:])

        async def grow(number: int) -> list[Rollout]:
            sibling = self._sibling(path, number)
            await self._step(sibling)
            return await self._grown(sibling, levels[1:], first=number)

        below = await asyncio.gather(*(grow(first + i * each) for i in range(levels[0])))
        return [rollout for rollouts in below for rollout in rollouts]

    def _sibling(self, path: _Path, number: int) -> _Path:
        """A copy of the path that draws other numbers. The engine does not compute again what the two share."""
        session = self._open(number, path.depth)
        context, after_prompt = session.context(self._prompt), tuple(path.text.token_ids[path.prompt :])
        if after_prompt:
            context = context.extend([Segment("", "answer", token_ids=after_prompt)])
        rollout = replace(path.rollout, texts=[path.text.copy()], queries=[*path.rollout.queries])
        return replace(path, context=context, session=session, rollout=rollout)

    async def _step(self, path: _Path) -> None:
        """One action: the model chooses it, unless only answering is left, and writes the query or the answer."""
        if path.depth == self._options.max_depth:
            path.move_to(path.context.extend([action_segment("answer")]))
            await self._answer(path)
            return
        chosen = await self._write(path, 1)
        action = self._control.get(chosen.token_ids[0])
        if action not in self._actions:
            path.end(whole=False)
        elif action == "answer":
            await self._answer(path)
        else:
            await self._search(path)

    async def _answer(self, path: _Path) -> None:
        written = await self._write(path, path.session.max_new_tokens)
        path.end(written.text, whole=self._is_whole(written))

    async def _search(self, path: _Path) -> None:
        session, options = path.session, self._options
        written = await self._write(path, options.max_query_tokens)
        query, closing, otherwise = read_query(written, self._read, session, options)
        budget = evidence_budget(written.context, path.depth, session, options)
        passages = await session.search(query, depth=path.depth, token_budget=budget) or session.fitted(otherwise, budget)
        path.move_to(written.context.extend([*closing, *evidence_segments(passages, format=options.format)]))
        path.depth += 1
        path.rollout = replace(
            path.rollout,
            whole=path.rollout.whole and self._is_whole(written),
            searches=path.depth,
            queries=[*path.rollout.queries, written.text],
            failed=path.rollout.failed or session.failed,
        )

    async def _write(self, path: _Path, max_new_tokens: int) -> Generation:
        written = await path.context.generate(max_new_tokens=max_new_tokens, stop=(END.text,), temperature=self._temperature)
        path.move_after(written)
        return written

    def _is_whole(self, written: Generation) -> bool:
        """Whether it is a text that ends with `[EOS]` and has no other control token."""
        *inside, last = written.token_ids
        return last == self._end and bool(written.text) and self._control.keys().isdisjoint(inside)
