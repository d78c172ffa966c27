"""The protocol that decoders are written for. It does not mention batches, devices or caches, which belong to the engines."""

import asyncio
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from random import Random
from typing import Generic, Literal, Protocol, TypeVar

from refinery.contract.chat_template import has_template, next_turn, reply_text
from refinery.contract.segments import Segment, encode_text
from refinery.contract.tokenizer import Tokenizer
from refinery.llms.softmax import label_softmax

Need = Literal["token_ids", "control_tokens", "stop_token_ids", "logprobs", "label_logprobs", "token_scores", "scores"]


@dataclass(slots=True)
class Usage:
    """The cost of one question so far. An engine adds to it as it serves the question's contexts.

    `drawn` counts the samples of each request of the question `question_id`, so that a store can tell its samples apart. `random` draws the
    tokens that the in-process engine samples for it, whatever else is in the batch; without it, the engine draws from its own numbers.
    `prefill_at_most`: a server may have had some of `prefill_tokens` in its prefix cache, and did not say.
    """

    calls: int = 0
    prefill_tokens: int = 0
    decode_tokens: int = 0
    prefill_at_most: bool = False
    question_id: str = ""
    drawn: Counter[bytes] = field(default_factory=Counter[bytes])
    random: Random | None = None

    def next_sample(self, key: bytes) -> bytes:
        """The key of the next sample of a request with this key: no other sample of any question has it."""
        self.drawn[key] += 1
        return key + f"{self.drawn[key]}:{self.question_id}".encode("utf-8", "surrogatepass")


@dataclass(frozen=True, slots=True)
class Generation:
    """What the model wrote after a context. `logprobs[i]` is the raw log-probability of `token_ids[i]`, recorded while decoding.

    `text` is stripped and has no special tokens. `context` is the old context extended by exactly `token_ids`. A chat endpoint gives
    neither ids nor log-probabilities, and may withhold a reply (`refused`). `reasoning` is what a reasoning model wrote before `text`.
    """

    text: str
    token_ids: list[int]
    logprobs: list[float]
    stopped_by: Literal["stop", "length", "refused"]
    context: "Context"
    reasoning: str = ""


class Context(Protocol):
    """An immutable prefix. A context that extends it reuses what is already computed."""

    @property
    def token_ids(self) -> list[int]:
        """The ids of every token of the prefix."""
        ...

    def extend(self, segments: Sequence[Segment]) -> "Context":
        """The context that continues this one with `segments`."""
        ...

    @property
    def ends_its_turns(self) -> bool:
        """Whether the model was trained to end its replies. A base model continues, for example with another question."""
        ...

    def ask_next(self, text: str) -> "Context":
        """The context that asks the model `text` after a reply, as a new user turn if there is a chat template."""
        ...

    async def generate(
        self,
        *,
        max_new_tokens: int,
        stop: Sequence[str] = (),
        stop_texts: Sequence[str] = (),
        temperature: float = 0.0,
        adapter: str | None = None,
        on_text: Callable[[str], None] | None = None,
        avoid: Sequence[int] = (),
    ) -> Generation:
        """Write at most `max_new_tokens` tokens, up to a `stop` token (included) or the end of sequence. Greedy at temperature 0.

        Writing also ends when the reply contains one of `stop_texts`. The stop text stays in the reply, unless an endpoint cuts it off.
        `on_text` is called with the text so far every few tokens, from any thread; an engine that gives only whole replies ignores it.
        Tokens to `avoid` are never written.
        """
        ...

    async def label_probs(self, labels: Sequence[str], *, adapter: str | None = None) -> dict[str, float]:
        """The probability of each label as the continuation, normalized over the labels. Nothing is decoded.

        A chat endpoint may have to write a reply instead. When the reply names no label, every probability is zero.
        """
        ...

    async def score(self, segments: Sequence[Segment], *, adapter: str | None = None) -> list[float]:
        """The log-probability of every token of `segments` as the continuation of this context."""
        ...


class LLM(Protocol):
    """A model, on which contexts are opened."""

    @property
    def tokenizer(self) -> Tokenizer:
        """The checkpoint's tokenizer. Raises IncapableModelError for a chat endpoint, whose tokenizer is unknown."""
        ...

    @property
    def token_counter(self) -> Tokenizer:
        """The tokenizer for counting and cutting texts, or its substitute for a chat endpoint."""
        ...

    @property
    def context_limit(self) -> int | None:
        """The most tokens of a prompt and its reply together, or None when there is no limit or it is unknown."""
        ...

    def context(self, prompt: str | Sequence[Segment], *, usage: Usage | None = None) -> Context:
        """A new context. A str is a prompt: it goes through the model's chat template if there is one, else it is plain text after BOS.

        Segments are used unchanged, after BOS unless a chat template begins them. Costs are added to `usage`.
        """
        ...


M = TypeVar("M", bound=LLM)


@dataclass(frozen=True, slots=True)
class GenerationOptions:
    """What `Context.generate` is asked to write."""

    max_new_tokens: int
    stop: Sequence[str]
    stop_texts: Sequence[str]
    temperature: float
    adapter: str | None
    on_text: Callable[[str], None] | None = None
    avoid: Sequence[int] = ()


class BaseContext(Context, Generic[M]):
    """A context of `_llm` that writes by `_generate`."""

    _llm: M

    async def generate(
        self,
        *,
        max_new_tokens: int,
        stop: Sequence[str] = (),
        stop_texts: Sequence[str] = (),
        temperature: float = 0.0,
        adapter: str | None = None,
        on_text: Callable[[str], None] | None = None,
        avoid: Sequence[int] = (),
    ) -> Generation:
        """See `Context.generate`."""
        return await self._generate(GenerationOptions(max_new_tokens, stop, stop_texts, temperature, adapter, on_text, avoid))

    async def _generate(self, options: GenerationOptions) -> Generation:
        raise NotImplementedError


class TokenContext(BaseContext[M]):
    """A context of a model whose tokens are known: turns follow its chat template, and labels are read from their tokens."""

    @property
    def ends_its_turns(self) -> bool:
        """See `Context.ends_its_turns`."""
        return has_template(self._llm.tokenizer)

    def ask_next(self, text: str) -> Context:
        """See `Context.ask_next`."""
        return self.extend(next_turn(text, self._llm.tokenizer, after=self.token_ids))

    async def label_probs(self, labels: Sequence[str], *, adapter: str | None = None) -> dict[str, float]:
        """See `Context.label_probs`. Reads only the labels' first tokens if these differ, else scores the whole labels."""
        replies = [self._reply_text(label) for label in labels]
        firsts = tuple(encode_text(reply, self._llm.tokenizer)[0] for reply in replies)
        if len(set(firsts)) == len(labels):
            scores = await self._next_logprobs(firsts, adapter)
        else:
            scores = [sum(s) for s in await asyncio.gather(*(self.score([Segment(x, "label")], adapter=adapter) for x in replies))]
        return label_softmax(labels, scores)

    def _reply_text(self, label: str) -> str:
        return reply_text(label, self._llm.tokenizer)

    async def _next_logprobs(self, tokens: Sequence[int], adapter: str | None) -> Sequence[float]:
        """The log-probability of each token as the next one."""
        raise NotImplementedError


@dataclass(slots=True)
class Counters:
    """An engine's totals, for benchmarks and tests."""

    forwards: int = 0
    prefill_tokens: int = 0
    decode_tokens: int = 0
    batch_sizes: list[int] = field(default_factory=list)
