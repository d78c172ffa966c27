"""An LLM behind a chat endpoint of any protocol: contexts are messages, and replies are text.

It is for decoders that only prompt. A chat gives neither token ids nor log-probabilities of given text. Calls that need them (`score`,
control tokens) are refused with a line that says which kind of model has them. chat_labels.py reads labels.
"""

import asyncio
import dataclasses
import json
import logging
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Self, cast

from refinery.contract.search_tool import SearchCall
from refinery.contract.segments import Segment
from refinery.contract.tokenizer import Tokenizer
from refinery.errors import IncapableModelError
from refinery.llms.base import BaseContext, Counters, Generation, GenerationOptions, Need, Usage
from refinery.llms.served.completions.capabilities import Capabilities
from refinery.llms.served.completions.context_limit import ByteTokens
from refinery.llms.served.endpoint import WITHHELD, EndpointConfig, RefusedRequest, Reply
from refinery.llms.served.paid.paid_replies import PaidReplies
from refinery.llms.served.protocols.base import Chat, ToolUse, protocol_of
from refinery.llms.served.transport.chat_labels import LABEL_TOKENS, LabelReply, label_probs_of, mean_probs
from refinery.llms.served.transport.chat_request import ChatRequest, parse_chat
from refinery.llms.served.transport.client import EndpointClient
from refinery.runtime.concurrency.single_flight import SingleFlight
from refinery.runtime.files.fingerprint import store_key

logger = logging.getLogger(__name__)

# Tokens that a chat template adds around a message, including its own system prompt.
_TEMPLATE_TOKENS = 64
_CHAT = Capabilities(chat_labels=True)
Messages = tuple[tuple[str, str], ...]  # (role, content)


class ChatLLM:
    """An `LLM` over any chat endpoint. Equal greedy requests that are open at the same time are sent once.

    A reply has at most the endpoint's `max_tokens`; the endpoint's `temperature` applies when the decoder sets none. `counters` holds what
    was actually sent, the `Usage` of a context what its question requested. `served_limit` is the longest context that the server accepts.
    Prompts are fitted to `context_limit` by counting bytes, because a chat endpoint's tokenizer is unknown.
    """

    token_counter = cast(Tokenizer, ByteTokens())  # it has all that counting and cutting need

    def __init__(self, config: EndpointConfig, served_limit: int | None = None, *, label_samples: int = 1) -> None:
        self.config, self.served_limit, self.label_samples = config, served_limit, label_samples
        self.context_limit = None if served_limit is None else max(served_limit - _TEMPLATE_TOKENS, 1)
        self.counters = Counters()
        # Unknown before the first label, if the protocol has them at all.
        self.label_logprobs: bool | None = None if protocol_of(config).first_logprobs else False
        self._endpoint: EndpointClient | PaidReplies = EndpointClient(config)
        self._in_flight: SingleFlight[bytes, Reply] = SingleFlight()

    @property
    def tokenizer(self) -> Tokenizer:
        """Raises IncapableModelError, because a chat endpoint's tokenizer is unknown."""
        raise self.lacks("control tokens")

    def context(self, prompt: str | Sequence[Segment], *, usage: Usage | None = None) -> "RemoteContext":
        """A chat whose first message is `prompt`. Raises IncapableModelError for a control token."""
        segments = [Segment(prompt, "prompt")] if isinstance(prompt, str) else prompt
        return RemoteContext(self, (), usage or Usage()).extend(segments)

    async def reply(self, request: "GenerationRequest", usage: Usage) -> Reply:
        """The endpoint's reply. A withheld reply has the finish_reason `refusal`. Raises UnusableEndpoint when there is no answer."""
        if self._samples(request):
            return await self._send(request.keyed(usage.next_sample(request.key)))  # samples are independent, so none is shared
        return await self._in_flight(request.key, lambda: self._send(request))

    def _samples(self, request: "GenerationRequest") -> bool:
        return bool(request.temperature or self.config.temperature)

    async def _send(self, request: "GenerationRequest") -> Reply:
        self.counters.forwards += 1
        try:
            reply = await self._endpoint.reply(request)
        except RefusedRequest as error:
            if error.reason != "refused":  # the server was too busy, and may answer later
                raise
            logger.warning("endpoint model '%s' withheld a reply: %s", self.config.model, error)
            return Reply("", "refusal", request_id="", num_prompt_tokens=0, num_completion_tokens=0)
        self.counters.prefill_tokens += reply.num_prompt_tokens
        self.counters.decode_tokens += reply.num_completion_tokens
        return reply

    async def label_reply(self, messages: Messages, usage: Usage) -> LabelReply:
        """A reply to read a label from. An endpoint that refuses to give log-probabilities is not asked for them again."""
        if self.label_logprobs is not False:
            reply = await self.reply(LabelRequest.of(messages, LABEL_TOKENS, 0.0, ()), usage)
            if isinstance(reply, LabelReply):
                self.label_logprobs = self.label_logprobs or reply.first_logprobs is not None
                return reply
            if self.label_logprobs:
                return LabelReply.of(reply, None)
            self.label_logprobs = False
        return LabelReply.of(await self.reply(GenerationRequest.of(messages, LABEL_TOKENS, 0.0, ()), usage), None)

    def lacks(self, what: str, *, for_whom: str = "This decoder") -> IncapableModelError:
        """The error for something that a chat cannot give."""
        return IncapableModelError(
            f"endpoint model '{self.config.model}' is used by chat, which has no {what}. {for_whom} needs a causal model on this machine,"
            " named in `llm` instead of `endpoint`, or one behind a completions server (vLLM): then name its `tokenizer` in `endpoint`."
        )

    def require(self, decoder: str, needs: frozenset[Need]) -> None:
        """Raise IncapableModelError when the decoder needs something that a chat cannot give."""
        if lacking := _CHAT.lacking(needs):
            raise self.lacks(" and no ".join(lacking), for_whom=f"Decoder '{decoder}'")

    def record(self) -> dict[str, Any]:
        """The endpoint's capabilities, for the run's record."""
        return dataclasses.asdict(_CHAT) | {"context_limit": self.served_limit, "label_logprobs": self.label_logprobs}

    def pay_through(self, replies: PaidReplies) -> None:
        """See `ServedLLM.pay_through`."""
        self._endpoint = replies

    async def close(self) -> None:
        """Close the connections."""
        await self._endpoint.close()


class RemoteContext(BaseContext[ChatLLM]):
    """The messages of a chat so far. Immutable."""

    def __init__(self, llm: ChatLLM, messages: Messages, usage: Usage, tools: ToolUse = "") -> None:
        self._llm, self.messages, self._usage = llm, messages, usage
        self._tools: ToolUse = tools

    @property
    def token_ids(self) -> list[int]:
        """Raises IncapableModelError, because a chat has no token ids."""
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

    async def _generate(self, options: GenerationOptions) -> Generation:
        """The endpoint's reply up to the first of the `stop_texts`, without ids or log-probabilities.

        Raises IncapableModelError for a `stop` token.
        """
        if options.stop:
            raise self._llm.lacks("control tokens")
        assert options.adapter is None, "an endpoint serves no adapters by role"
        stop = tuple(options.stop_texts)
        request = GenerationRequest.of(self.messages, options.max_new_tokens, options.temperature, stop, self._tools)
        self._usage.calls += 1
        reply = await self._llm.reply(request, self._usage)
        self._usage.prefill_tokens += reply.num_prompt_tokens
        self._usage.decode_tokens += reply.num_completion_tokens
        text = _before(reply.text, options.stop_texts)
        refused = reply.finish_reason in WITHHELD
        return Generation(
            text=text.strip(),
            token_ids=[],
            logprobs=[],
            stopped_by="refused" if refused else "length" if reply.finish_reason == "length" else "stop",
            reasoning=reply.reasoning,
            context=self._continued((*self.messages, ("assistant", text))),
        )

    def with_tools(self, tools: ToolUse) -> "RemoteContext":
        """The same chat, in which the model may call the search tool now (`offered`) or may not (`withheld`)."""
        if protocol_of(self._llm.config).tool_calls is None:
            raise self._llm.lacks("tool calls")
        return RemoteContext(self._llm, self.messages, self._usage, tools)

    def found(self, calls: Sequence[SearchCall], texts: Sequence[str]) -> "RemoteContext":
        """The chat after the model's last turn, which was these calls, and after what each of them found."""
        asked = json.dumps([dataclasses.asdict(call) for call in calls])
        return self._continued((*self.messages[:-1], ("call", asked), *(("tool", text) for text in texts)))

    async def label_probs(self, labels: Sequence[str], *, adapter: str | None = None) -> dict[str, float]:
        """See `Context.label_probs`. From the log-probabilities of the reply's first token if there are any, else from the reply's words.

        With `label_samples`, the mean over that many replies. All probabilities are zero when no reply names a label.
        """
        assert adapter is None, "an endpoint serves no adapters by role"
        return mean_probs(await asyncio.gather(*(self._label(labels) for _ in range(self._llm.label_samples))))

    async def _label(self, labels: Sequence[str]) -> dict[str, float]:
        self._usage.calls += 1
        reply = await self._llm.label_reply(self.messages, self._usage)
        self._usage.prefill_tokens += reply.num_prompt_tokens
        self._usage.decode_tokens += reply.num_completion_tokens
        return label_probs_of(reply, labels)

    async def score(self, segments: Sequence[Segment], *, adapter: str | None = None) -> list[float]:
        """Raises IncapableModelError: a chat has no log-probabilities of given text."""
        raise self._llm.lacks("log-probabilities")

    def _continued(self, messages: Messages) -> "RemoteContext":
        return RemoteContext(self._llm, messages, self._usage, self._tools)


@dataclass(frozen=True, slots=True)
class GenerationRequest(ChatRequest):
    """A chat with the limits and the temperature of one `generate`."""

    max_new_tokens: int = 1
    temperature: float = 0.0
    stop: tuple[str, ...] = ()
    tools: ToolUse = ""

    @classmethod
    def of(
        cls, messages: Messages, max_new_tokens: int, temperature: float, stop: tuple[str, ...], tools: ToolUse = ""
    ) -> "GenerationRequest":
        """The request, with a key that only equal requests share."""
        content = json.dumps([messages, max_new_tokens, temperature, stop, *([tools] if tools else [])])
        key = store_key(content.encode())
        return cls(key, messages, max_new_tokens=max_new_tokens, temperature=temperature, stop=stop, tools=tools)

    def most_tokens(self, config: EndpointConfig) -> int:
        """See `ChatRequest.most_tokens`."""
        return min(self.max_new_tokens, config.max_tokens) + config.reasoning_tokens

    def keyed(self, key: bytes) -> Self:
        """See `StoredRequest.keyed`."""
        return dataclasses.replace(self, key=key)

    def read_stored(self, values: list[Any]) -> Reply:
        """See `StoredRequest.read_stored`."""
        return Reply.of_stored(values)

    def chat(self, config: EndpointConfig) -> Chat:
        """See `ChatRequest.chat`."""
        temperature = self.temperature or config.temperature
        return Chat(self.messages, self.most_tokens(config), temperature, self.stop, seed=config.seed, tools=self.tools)

    def parse(self, reply: Any, config: EndpointConfig, *, unseen_tries: int = 0) -> Reply:
        """See `ChatRequest.parse`. Tool calls become the text of the reply, as Hermes writes them."""
        parsed, tool_calls = ChatRequest.parse(self, reply, config, unseen_tries=unseen_tries), protocol_of(config).tool_calls
        calls = tool_calls(reply) if self.tools and tool_calls else []
        return dataclasses.replace(parsed, text="".join(map(_hermes_call, calls))) if calls else parsed


def _hermes_call(call: tuple[str, Any]) -> str:
    return f"<tool_call>{json.dumps({'name': call[0], 'arguments': call[1]})}</tool_call>"


@dataclass(frozen=True, slots=True)
class LabelRequest(GenerationRequest):
    """A chat that requests the alternatives of the reply's first token."""

    @classmethod
    def of(cls, messages: Messages, max_new_tokens: int, temperature: float, stop: tuple[str, ...], tools: ToolUse = "") -> "LabelRequest":
        """The request, with a separate key."""
        content = json.dumps(["label", messages, max_new_tokens, temperature])
        key = store_key(content.encode())
        return cls(key, messages, max_new_tokens=max_new_tokens, temperature=temperature, stop=stop)

    def chat(self, config: EndpointConfig) -> Chat:
        """See `ChatRequest.chat`."""
        return dataclasses.replace(GenerationRequest.chat(self, config), first_logprobs=True)

    def read_stored(self, values: list[Any]) -> LabelReply:
        """See `StoredRequest.read_stored`."""
        return LabelReply.of_stored(values)

    def parse(self, reply: Any, config: EndpointConfig, *, unseen_tries: int = 0) -> Reply:
        """See `ChatRequest.parse`."""
        first_logprobs = protocol_of(config).first_logprobs
        return LabelReply.of(parse_chat(reply, config, unseen_tries=unseen_tries), first_logprobs(reply) if first_logprobs else None)


def _before(text: str, stop: Sequence[str]) -> str:
    """The text before the first stop text, because not every server cuts it there."""
    return text[: min((text.find(end) for end in stop if end in text), default=len(text))]
