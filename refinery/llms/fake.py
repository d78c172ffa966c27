"""A scripted LLM for tests of decoders: what it writes is a function of the text before it. It needs no model and no torch.

A token is a word with the white space before it, so `max_new_tokens` counts words. Control tokens have separate ids, which the same
characters in outside text never get, as with a real tokenizer.
"""

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, cast

from refinery.contract.control_tokens import RQ_RAG
from refinery.contract.segments import Segment, encode_segment
from refinery.contract.tokenizer import Tokenizer
from refinery.llms.base import BaseContext, Generation, GenerationOptions, Usage
from refinery.llms.thinking import split_thinking

Script = Callable[[str], str | Mapping[str, float]]


@dataclass(frozen=True, slots=True)
class Call:
    """One call of the fake: the text of the context, and what was requested."""

    kind: Literal["generate", "label_probs", "score"]
    text: str
    adapter: str | None = None
    labels: tuple[str, ...] = ()


@dataclass(slots=True)
class FakeLLM:
    """An `LLM` that replies with `script(text)`, where `text` is the whole context with its control tokens written out.

    The script gives the text to write for `generate`, and a label or a probability per label for `label_probs`. Every token that it writes
    or scores has `token_logprob`, except the control tokens in `scores`. `calls` records all requests in order.
    """

    script: Script
    token_logprob: float = -0.1
    scores: Mapping[str, float] = field(default_factory=dict)
    # It has all that a prompt without a chat template needs from a tokenizer.
    tokenizer: Tokenizer = field(default_factory=lambda: cast(Tokenizer, FakeTokenizer()))
    calls: list[Call] = field(default_factory=list)

    @property
    def token_counter(self) -> Tokenizer:
        """See `LLM.token_counter`."""
        return self.tokenizer

    @property
    def context_limit(self) -> int | None:
        """None, since it reads texts of any length. A subclass may set a limit."""
        return None

    def context(self, prompt: str | Sequence[Segment], *, usage: Usage | None = None) -> "FakeContext":
        """See `LLM.context`."""
        segments = [Segment(prompt, "prompt")] if isinstance(prompt, str) else prompt
        return FakeContext(self, [], usage or Usage()).extend(segments)

    def texts(self, kind: str) -> list[str]:
        """The texts of the calls of one kind."""
        return [call.text for call in self.calls if call.kind == kind]


class FakeContext(BaseContext[FakeLLM]):
    """An immutable prefix of the fake."""

    def __init__(self, llm: FakeLLM, token_ids: list[int], usage: Usage) -> None:
        self._llm, self._token_ids, self._usage = llm, token_ids, usage

    @property
    def token_ids(self) -> list[int]:
        """See `Context.token_ids`."""
        return list(self._token_ids)

    def extend(self, segments: Sequence[Segment]) -> "FakeContext":
        """See `Context.extend`."""
        return self._continued([token for segment in segments for token in encode_segment(segment, self._llm.tokenizer)])

    @property
    def ends_its_turns(self) -> bool:
        """See `Context.ends_its_turns`."""
        return False

    def ask_next(self, text: str) -> "FakeContext":
        """See `Context.ask_next`."""
        return self.extend([Segment(f"\n{text}\n", "prompt")])

    async def _generate(self, options: GenerationOptions) -> Generation:
        """The script's reply with a stop token, cut at `max_new_tokens`."""
        reply = self._ask(Call("generate", self._text(), options.adapter))
        assert isinstance(reply, str), f"the script must give the text to write after {self._text()!r}"
        reply = reply[: min((reply.find(text) + len(text) for text in options.stop_texts if text in reply), default=len(reply))]
        tokenizer = self._llm.tokenizer
        end = tokenizer.convert_tokens_to_ids(options.stop[0]) if options.stop else tokenizer.eos_token_id
        token_ids = [*tokenizer(reply)["input_ids"], end][: options.max_new_tokens]
        stopped = token_ids[-1] == end
        if options.on_text:
            for count in range(1, len(token_ids)):
                options.on_text(tokenizer.decode(token_ids[:count]).strip())
        self._usage.decode_tokens += len(token_ids)
        reasoning, text = split_thinking(tokenizer.decode(token_ids[:-1] if stopped else token_ids).strip())
        return Generation(
            text=text,
            token_ids=token_ids,
            logprobs=[self._llm.token_logprob] * len(token_ids),
            stopped_by="stop" if stopped else "length",
            context=self._continued(token_ids),
            reasoning=reasoning,
        )

    async def label_probs(self, labels: Sequence[str], *, adapter: str | None = None) -> dict[str, float]:
        """The script's probabilities. A single label gets probability 1."""
        reply = self._ask(Call("label_probs", self._text(), adapter, tuple(labels)))
        probs = {reply: 1.0} if isinstance(reply, str) else dict(reply)
        assert probs.keys() <= set(labels), f"the script gives {sorted(probs)}, but the labels are {list(labels)}"
        return {label: probs.get(label, 0.0) for label in labels}

    async def score(self, segments: Sequence[Segment], *, adapter: str | None = None) -> list[float]:
        """A log-probability for every token, without calling the script."""
        self._llm.calls.append(Call("score", self._text(), adapter))
        self._usage.calls += 1
        tokenizer, default = self._llm.tokenizer, self._llm.token_logprob
        scored = self.extend(segments).token_ids[len(self._token_ids) :]
        return [self._llm.scores.get(tokenizer.convert_ids_to_tokens(token_id), default) for token_id in scored]

    def _ask(self, call: Call) -> str | Mapping[str, float]:
        self._llm.calls.append(call)
        self._usage.calls += 1
        return self._llm.script(call.text)

    def _text(self) -> str:
        return self._llm.tokenizer.decode(self._token_ids)

    def _continued(self, token_ids: list[int]) -> "FakeContext":
        return FakeContext(self._llm, [*self._token_ids, *token_ids], self._usage)


class FakeTokenizer:
    """Words as tokens, numbered as they first occur after RQ-RAG's control tokens. It has no BOS."""

    name_or_path = "fake"
    bos_token_id = chat_template = None
    unk_token_id = None
    eos_token, eos_token_id = "</s>", 0

    def __init__(self) -> None:
        self._control = {self.eos_token: self.eos_token_id} | {token.token: i for i, token in enumerate(RQ_RAG, 1)}
        self._words: dict[str, int] = {}
        self._texts: list[str] = list(self._control)

    def __call__(self, text: str, **options: Any) -> dict[str, list[int]]:
        """Token ids of plain text, in which nothing becomes a control token."""
        return {"input_ids": [self._word_id(word) for word in re.findall(r"\s*\S+|\s+$", text)]}

    def convert_tokens_to_ids(self, token: str) -> int | None:
        """The id of a control token, or None."""
        return self._control.get(token)

    def convert_ids_to_tokens(self, token_id: int) -> str:
        """The text of one token."""
        return self._texts[token_id]

    def decode(self, token_ids: Sequence[int], **options: Any) -> str:
        """The text of the tokens, control tokens written out."""
        return "".join(self._texts[token_id] for token_id in token_ids)

    def _word_id(self, word: str) -> int:
        if word not in self._words:
            self._words[word] = len(self._texts)
            self._texts.append(word)
        return self._words[word]
