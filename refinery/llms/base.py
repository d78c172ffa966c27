"""The protocol that decoders are written against. Nothing in it mentions batches, devices or caches: those live in the engines."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol

from refinery.contract.segments import Segment
from refinery.contract.tokenizer import Tokenizer

Need = Literal["token_ids", "control_tokens", "stop_token_ids", "logprobs", "label_logprobs", "token_scores", "scores"]


@dataclass(slots=True)
class Usage:
    """What one question has cost so far; an engine adds to it as it serves that question's contexts."""

    calls: int = 0
    prefill_tokens: int = 0
    decode_tokens: int = 0


@dataclass(frozen=True, slots=True)
class Generation:
    """What the model wrote after a context. `logprobs[i]` is the raw log-probability of `token_ids[i]`, kept while decoding.

    `text` has special tokens removed and is stripped; `context` is the old context extended by exactly `token_ids`. A chat endpoint
    gives no ids and no log-probabilities, and may withhold a reply (`refused`). `reasoning` is what a reasoning model thought
    before `text`.
    """

    text: str
    token_ids: list[int]
    logprobs: list[float]
    stopped_by: Literal["stop", "length", "refused"]
    context: "Context"
    reasoning: str = ""


class Context(Protocol):
    """An immutable prefix; extending it shares what is already computed."""

    @property
    def token_ids(self) -> list[int]:
        """Every token of the prefix."""
        ...

    def extend(self, segments: Sequence[Segment]) -> "Context":
        """The context that continues this one with `segments`."""
        ...

    @property
    def ends_its_turns(self) -> bool:
        """Whether the model was taught to end its replies. A base model goes on: with a question of its own, say."""
        ...

    def ask_next(self, text: str) -> "Context":
        """The context after a reply in which the model is asked `text` next: a user's turn of its own where there are turns."""
        ...

    async def generate(
        self,
        *,
        max_new_tokens: int,
        stop: Sequence[str] = (),
        stop_texts: Sequence[str] = (),
        temperature: float = 0.0,
        adapter: str | None = None,
    ) -> Generation:
        """Write up to `max_new_tokens` tokens, ending at a `stop` token (included) or the end of sequence. Greedy at temperature 0.

        Writing also ends once the reply holds one of `stop_texts`; what was written by then is kept, but by endpoints that cut it off.
        """
        ...

    async def label_probs(self, labels: Sequence[str], *, adapter: str | None = None) -> dict[str, float]:
        """A label read: the probability of each label as what comes next, normalized over the labels. Nothing is decoded.

        A chat endpoint may have to write; where what it writes names no label, every probability is zero.
        """
        ...

    async def score(self, segments: Sequence[Segment], *, adapter: str | None = None) -> list[float]:
        """Log-probability of every token of `segments` as the continuation of this context."""
        ...


class LLM(Protocol):
    """A model that contexts are opened on."""

    @property
    def tokenizer(self) -> Tokenizer:
        """The checkpoint's. Raises IncapableModelError for an endpoint by chat, which shows none."""
        ...

    @property
    def token_counter(self) -> Tokenizer:
        """What texts are counted and cut by: the tokenizer, or what takes its place for an endpoint by chat."""
        ...

    @property
    def context_limit(self) -> int | None:
        """Tokens of a prompt and its reply together; None where there is no such limit, or none is known."""
        ...

    def context(self, prompt: str | Sequence[Segment], *, usage: Usage | None = None) -> Context:
        """A fresh context. A str is what the model is asked: through its chat template where it has one, else plain text after BOS.

        Segments stand as they are, BOS before them unless a chat template opens them. Costs are added to `usage`.
        """
        ...


class ServedLLM(LLM, Protocol):
    """A model behind an endpoint."""

    def require(self, decoder: str, needs: frozenset[Need]) -> None:
        """Raise IncapableModelError when the endpoint lacks what the decoder needs."""
        ...

    def record(self) -> dict[str, Any]:
        """What the endpoint can do, for the run's record."""
        ...

    async def close(self) -> None:
        """Close the connections."""
        ...


@dataclass(slots=True)
class Counters:
    """Totals of an engine, for benchmarks and tests."""

    forwards: int = 0
    prefill_tokens: int = 0
    decode_tokens: int = 0
    batch_sizes: list[int] = field(default_factory=list)
