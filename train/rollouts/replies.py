"""Sample RA-ISF's decompositions: the decoder runs as ever, with the sub-model in training in its role, which draws its replies.

Each decomposition is a text of its own. They share the reward of the question's final answer.
"""

from collections.abc import Sequence
from random import Random
from typing import Any, cast

from infer.pipeline import Pipeline
from refinery.contract.records import Question
from refinery.contract.segments import Segment
from refinery.contract.sub_questions import parse_sub_questions
from refinery.contract.tokenizer import Tokenizer
from refinery.llms.base import LLM, Context, Generation, Usage
from train.rollout_settings import GrpoSettings
from train.rollouts.rollout import Rollout, Text, opening

DECOMPOSITION = "decomposition"  # the sub-model's role


async def sampled_decompositions(pipeline: Pipeline, question: Question, settings: GrpoSettings, key: str, number: int) -> list[Rollout]:
    """One rollout, of all decompositions that RA-ISF asks for; they share the reward of its answer."""
    session, llm = pipeline.session(question), pipeline.sub_models[DECOMPOSITION]
    drawing = DrawingLLM(llm, temperature=settings.temperature, key=f"{key}:{number}")
    session.sub_models = {**pipeline.sub_models, DECOMPOSITION: drawing}
    prediction = await pipeline.decode(session, question)
    replies = sorted(drawing.replies, key=lambda reply: reply[0].token_ids)
    rollout = Rollout(
        question,
        [text for text, _ in replies] or [opening(llm, question)],
        answer=prediction.answer,
        whole=all(sub_questions_of(reply) for _, reply in replies),
        searches=session.retrievals,
        queries=[text for _, reply in replies for text in sub_questions_of(reply)],
        failed=prediction.failed,
    )
    return [rollout]


class DrawingLLM:
    """An LLM that draws each reply at a temperature and keeps it, with its prompt, in `replies`.

    The numbers with which a reply is drawn depend on `key` and its prompt alone, so that the order of concurrent calls does not matter.
    """

    def __init__(self, llm: LLM, *, temperature: float, key: str) -> None:
        self.temperature, self._llm, self._key = temperature, llm, key
        self.replies: list[tuple[Text, Generation]] = []

    @property
    def tokenizer(self) -> Tokenizer:
        """See `LLM.tokenizer`."""
        return self._llm.tokenizer

    @property
    def token_counter(self) -> Tokenizer:
        """See `LLM.token_counter`."""
        return self._llm.token_counter

    @property
    def context_limit(self) -> int | None:
        """See `LLM.context_limit`."""
        return self._llm.context_limit

    def context(self, prompt: str | Sequence[Segment], *, usage: Usage | None = None) -> Context:
        """See `LLM.context`. What it costs is not added to the question's usage."""
        context = self._llm.context(prompt, usage=Usage(random=Random(f"{self._key}:{prompt}")))
        return cast(Context, _DrawingContext(self, context))


class _DrawingContext:
    """A prompt of the sub-model in training: the engine's context, which draws what it writes."""

    def __init__(self, llm: DrawingLLM, context: Context) -> None:
        self._llm, self._context = llm, context

    def __getattr__(self, name: str) -> Any:
        return getattr(self._context, name)

    async def generate(self, *, temperature: float = 0.0, **options: Any) -> Generation:
        """See `Context.generate`; drawn at the temperature of training."""
        reply = await self._context.generate(temperature=self._llm.temperature, **options)
        text = Text()
        text.read(self._context.token_ids)
        text.wrote(reply.token_ids, reply.logprobs)
        self._llm.replies.append((text, reply))
        return reply


def sub_questions_of(reply: Generation) -> list[str]:
    """The sub-questions of a decomposition; none unless it is a list that was written to its end."""
    return parse_sub_questions(reply.text) if reply.stopped_by == "stop" else []
