"""An LLM behind a chat endpoint of any protocol: contexts are messages, and what comes back is text.

For decoders that only prompt. A chat gives no token ids and no log-probabilities of given text; whatever needs them (`score`, control
tokens) is refused with a line that says which kind of model has them. A label is read by chat_labels.py.
"""

import asyncio
import dataclasses
import json
import logging
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, cast

from refinery.contract.segments import Segment
from refinery.contract.tokenizer import Tokenizer
from refinery.errors import IncapableModelError
from refinery.llms.base import Counters, Generation, Need, Usage
from refinery.llms.served.capabilities import Capabilities
from refinery.llms.served.chat_labels import LabelReply, label_probs_of, mean_probs
from refinery.llms.served.chat_request import ChatRequest, parse_chat
from refinery.llms.served.client import EndpointClient
from refinery.llms.served.context_limit import ByteTokens
from refinery.llms.served.endpoint import EndpointConfig, RefusedRequest, Reply
from refinery.llms.served.protocols.base import Chat, protocol_of
from refinery.runtime.fingerprint import store_key
from refinery.runtime.single_flight import SingleFlight

logger = logging.getLogger(__name__)

# What a chat template writes around a message, its own system prompt included.
_TEMPLATE_TOKENS = 64
_LABEL_TOKENS = 16  # a short sentence that names the label
_CHAT = Capabilities(chat_labels=True)
Messages = tuple[tuple[str, str], ...]  # (role, content)


class ChatLLM:
    """An `LLM` over any chat endpoint. Equal greedy requests that are open at once are sent once.

    A reply has at most `max_tokens` of the endpoint's configuration; its `temperature` holds where the decoder asks for none.
    `counters` holds what was really sent, the `Usage` of a context what its question asked for. `served_limit` is the longest context
    that the server takes; prompts are fitted to `context_limit` by counting bytes, since a chat shows no tokenizer.
    """

    token_counter = cast(Tokenizer, ByteTokens())  # it has what counting and cutting need of a tokenizer

    def __init__(self, config: EndpointConfig, served_limit: int | None = None, *, label_samples: int = 1) -> None:
        self.config, self.served_limit, self.label_samples = config, served_limit, label_samples
        self.context_limit = None if served_limit is None else max(served_limit - _TEMPLATE_TOKENS, 1)
        self.counters = Counters()
        # Not known before the first label, where the protocol has them at all.
        self.label_logprobs: bool | None = None if protocol_of(config).first_logprobs else False
        self._endpoint = EndpointClient(config)
        self._in_flight: SingleFlight[bytes, Reply] = SingleFlight()

    @property
    def tokenizer(self) -> Tokenizer:
        """An endpoint shows none. Raises IncapableModelError."""
        raise self.lacks("control tokens")

    def context(self, prompt: str | Sequence[Segment], *, usage: Usage | None = None) -> "RemoteContext":
        """A chat whose first message is `prompt`. Raises IncapableModelError for a control token."""
        segments = [Segment(prompt, "prompt")] if isinstance(prompt, str) else prompt
        return RemoteContext(self, (), usage or Usage()).extend(segments)

    async def reply(self, request: "GenerationRequest") -> Reply:
        """The endpoint's reply; one that it withholds has the finish_reason `refusal`. Raises UnusableEndpoint when it does not answer."""
        if request.temperature or self.config.temperature:
            return await self._send(request)  # every sample is one of its own
        return await self._in_flight(request.key, lambda: self._send(request))

    async def _send(self, request: "GenerationRequest") -> Reply:
        self.counters.forwards += 1
        try:
            reply = await self._endpoint.reply(request)
        except RefusedRequest as error:
            if error.reason != "refused":  # the server had no time for it, and may have later
                raise
            logger.warning("endpoint model '%s' withheld a reply: %s", self.config.model, error)
            return Reply("", "refusal", request_id="", num_prompt_tokens=0, num_completion_tokens=0)
        self.counters.prefill_tokens += reply.num_prompt_tokens
        self.counters.decode_tokens += reply.num_completion_tokens
        return reply

    async def label_reply(self, messages: Messages) -> LabelReply:
        """A reply that a label is read of. An endpoint that refuses to give log-probabilities is not asked for them again."""
        if self.label_logprobs is not False:
            reply = await self.reply(LabelRequest.of(messages, _LABEL_TOKENS, 0.0, ()))
            if isinstance(reply, LabelReply):
                self.label_logprobs = self.label_logprobs or reply.first_logprobs is not None
                return reply
            if self.label_logprobs:
                return LabelReply.of(reply, None)
            self.label_logprobs = False
        return LabelReply.of(await self.reply(GenerationRequest.of(messages, _LABEL_TOKENS, 0.0, ())), None)

    def lacks(self, what: str, *, for_whom: str = "This decoder") -> IncapableModelError:
        """The error for what a chat cannot give."""
        return IncapableModelError(
            f"endpoint model '{self.config.model}' is asked by chat, which has no {what}. {for_whom} needs a causal model on this machine,"
            " named by `llm` in place of `endpoint`, or behind a completions server (vLLM): then name its `tokenizer` in `endpoint`."
        )

    def require(self, decoder: str, needs: frozenset[Need]) -> None:
        """Raises IncapableModelError when the decoder needs what no chat gives."""
        if lacking := _CHAT.lacking(needs):
            raise self.lacks(" and no ".join(lacking), for_whom=f"Decoder '{decoder}'")

    def record(self) -> dict[str, Any]:
        """What the endpoint can do, for the run's record."""
        return dataclasses.asdict(_CHAT) | {"context_limit": self.served_limit, "label_logprobs": self.label_logprobs}

    async def close(self) -> None:
        """Close the connections."""
        await self._endpoint.close()


class RemoteContext:
    """The messages of a chat so far; immutable."""

    def __init__(self, llm: ChatLLM, messages: Messages, usage: Usage) -> None:
        self._llm, self.messages, self._usage = llm, messages, usage

    @property
    def token_ids(self) -> list[int]:
        """A chat shows none. Raises IncapableModelError."""
        raise self._llm.lacks("token ids")

    def extend(self, segments: Sequence[Segment]) -> "RemoteContext":
        """More of the user's message, or the user's next one after a reply. Raises IncapableModelError for a control token."""
        if any(segment.kind == "control_token" for segment in segments):
            raise self._llm.lacks("control tokens")
        text = "".join(segment.text for segment in segments)
        if self.messages and self.messages[-1][0] == "user":
            return self._continued((*self.messages[:-1], ("user", self.messages[-1][1] + text)))
        return self._continued((*self.messages, ("user", text)))

    @property
    def ends_its_turns(self) -> bool:
        """See `Context.ends_its_turns`."""
        return True

    def ask_next(self, text: str) -> "RemoteContext":
        """See `Context.ask_next`."""
        return self.extend([Segment(text, "prompt")])

    async def generate(
        self,
        *,
        max_new_tokens: int,
        stop: Sequence[str] = (),
        stop_texts: Sequence[str] = (),
        temperature: float = 0.0,
        adapter: str | None = None,
    ) -> Generation:
        """The endpoint's reply up to the first of the `stop_texts`, without ids and log-probabilities.

        Raises IncapableModelError for a `stop` token.
        """
        if stop:
            raise self._llm.lacks("control tokens")
        assert adapter is None, "an endpoint serves no adapters by role"
        self._usage.calls += 1
        reply = await self._llm.reply(GenerationRequest.of(self.messages, max_new_tokens, temperature, tuple(stop_texts)))
        self._usage.prefill_tokens += reply.num_prompt_tokens
        self._usage.decode_tokens += reply.num_completion_tokens
        text = _before(reply.text, stop_texts)
        refused = reply.finish_reason in ("refusal", "content_filter")
        return Generation(
            text=text.strip(),
            token_ids=[],
            logprobs=[],
            stopped_by="refused" if refused else "length" if reply.finish_reason == "length" else "stop",
            reasoning=reply.reasoning,
            context=self._continued((*self.messages, ("assistant", text))),
        )

    async def label_probs(self, labels: Sequence[str], *, adapter: str | None = None) -> dict[str, float]:
        """See `Context.label_probs`: the probabilities that the endpoint gives of its first token, else the label that the reply names.

        With `label_samples` the mean over as many replies. All shares are zero where no reply names a label.
        """
        assert adapter is None, "an endpoint serves no adapters by role"
        return mean_probs(await asyncio.gather(*(self._label(labels) for _ in range(self._llm.label_samples))))

    async def _label(self, labels: Sequence[str]) -> dict[str, float]:
        self._usage.calls += 1
        reply = await self._llm.label_reply(self.messages)
        self._usage.prefill_tokens += reply.num_prompt_tokens
        self._usage.decode_tokens += reply.num_completion_tokens
        return label_probs_of(reply, labels)

    async def score(self, segments: Sequence[Segment], *, adapter: str | None = None) -> list[float]:
        """Raises IncapableModelError: a chat has no log-probabilities of given text."""
        raise self._llm.lacks("log-probabilities")

    def _continued(self, messages: Messages) -> "RemoteContext":
        return RemoteContext(self._llm, messages, self._usage)


@dataclass(frozen=True, slots=True)
class GenerationRequest(ChatRequest):
    """A chat with the limits and the temperature of one `generate`."""

    max_new_tokens: int = 1
    temperature: float = 0.0
    stop: tuple[str, ...] = ()

    @classmethod
    def of(cls, messages: Messages, max_new_tokens: int, temperature: float, stop: tuple[str, ...]) -> "GenerationRequest":
        """The request, under a key that only an equal one has."""
        content = json.dumps([messages, max_new_tokens, temperature, stop])
        key = store_key(content.encode())
        return cls(key, messages, max_new_tokens=max_new_tokens, temperature=temperature, stop=stop)

    def chat(self, config: EndpointConfig) -> Chat:
        """See `ChatRequest.chat`."""
        return Chat(self.messages, min(self.max_new_tokens, config.max_tokens), self.temperature or config.temperature, self.stop)


@dataclass(frozen=True, slots=True)
class LabelRequest(GenerationRequest):
    """A chat whose first token's alternatives are asked for."""

    @classmethod
    def of(cls, messages: Messages, max_new_tokens: int, temperature: float, stop: tuple[str, ...]) -> "LabelRequest":
        """The request, under a key of its own."""
        content = json.dumps(["label", messages, max_new_tokens, temperature])
        key = store_key(content.encode())
        return cls(key, messages, max_new_tokens=max_new_tokens, temperature=temperature, stop=stop)

    def chat(self, config: EndpointConfig) -> Chat:
        """See `ChatRequest.chat`."""
        return dataclasses.replace(GenerationRequest.chat(self, config), first_logprobs=True)

    def parse(self, reply: Any, config: EndpointConfig, *, unseen_tries: int = 0) -> Reply:
        """See `ChatRequest.parse`."""
        first_logprobs = protocol_of(config).first_logprobs
        return LabelReply.of(parse_chat(reply, config, unseen_tries=unseen_tries), first_logprobs(reply) if first_logprobs else None)


def _before(text: str, stop: Sequence[str]) -> str:
    """What comes before the first stop text; not every server cuts it off."""
    return text[: min((text.find(end) for end in stop if end in text), default=len(text))]
