"""An LLM behind a completions server (vLLM, SGLang, llama.cpp, OpenAI). Contexts are token ids, and decoded text is never re-encoded.

The tokenizer is loaded in this process, so control tokens and outside text are distinguished as in training. `capabilities.py` probes
the server's capabilities. A decoder that needs more is refused when it is checked, not in the middle of a run.
"""

import asyncio
import dataclasses
import logging
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any, Protocol

from refinery.contract.chat_template import end_ids, user_turn
from refinery.contract.plain_text import added_token_names
from refinery.contract.segments import Segment, bos_ids, control_token_id, encode_segment
from refinery.contract.tokenizer import Tokenizer
from refinery.errors import IncapableModelError
from refinery.llms.base import Counters, Generation, GenerationOptions, Need, TokenContext, Usage
from refinery.llms.served.completions.api import (
    CompletionReply,
    CompletionRequest,
    label_logprobs,
    label_requests,
    label_values,
    prompt_scores,
    score_request,
    whole,
)
from refinery.llms.served.completions.capabilities import Capabilities
from refinery.llms.served.completions.next_tokens import Branches, Branching
from refinery.llms.served.endpoint import WITHHELD, RefusedRequest, ServedModelConfig
from refinery.llms.served.paid.paid_replies import PaidReplies
from refinery.llms.served.transport.client import EndpointClient
from refinery.llms.thinking import opened_by, read_written, split_thinking

logger = logging.getLogger(__name__)
_STOP_TEXTS = 4  # OpenAI's maximum
_NEVER = -100  # OpenAI's bias of a token that is never chosen


class Transport(Protocol):
    """Anything that answers completion requests: an endpoint's client, a store of paid replies, or an engine in this process."""

    async def reply(self, request: CompletionRequest) -> CompletionReply:
        """The completion. Raises RefusedRequest for a fault of this request, UnusableEndpoint for one that affects all requests."""
        ...

    async def close(self) -> None:
        """Close the connections, or free the model."""
        ...


class CompletionsLLM:
    """An `LLM` over a completions endpoint. `counters` counts the requests sent; tokens in the server's cache do not count as prefill.

    The endpoint's `max_tokens` bounds every reply, and its `temperature` applies when the decoder sets none.
    """

    def __init__(
        self, config: ServedModelConfig, tokenizer: Tokenizer, capabilities: Capabilities, transport: Transport | None = None
    ) -> None:
        self.config, self.capabilities = config, capabilities
        self.tokenizer = self.token_counter = tokenizer
        self.counters = Counters()
        self._endpoint: Transport = transport or EndpointClient(config)

    def context(self, prompt: str | Sequence[Segment], *, usage: Usage | None = None) -> "CompletionsContext":
        """See `LLM.context`."""
        segments = user_turn(prompt, self.tokenizer) if isinstance(prompt, str) else prompt
        return CompletionsContext(self, bos_ids(segments, self.tokenizer), "", usage or Usage()).extend(segments)

    @property
    def context_limit(self) -> int | None:
        """The most tokens of a prompt and its reply together, as reported by the server."""
        return self.capabilities.context_limit

    def require(self, decoder: str, needs: frozenset[Need]) -> None:
        """Raise IncapableModelError when the endpoint lacks a capability that the decoder needs."""
        if lacking := self.capabilities.lacking(needs):
            raise IncapableModelError(
                f"endpoint {self.config.base_url} (model '{self.config.model}') gives no {', no '.join(lacking)}, which decoder '{decoder}'"
                " needs. Serve the model with vLLM, or name it in `llm` instead of `endpoint` in the recipe."
            )

    def record(self) -> dict[str, Any]:
        """The endpoint's capabilities, for the run's record."""
        return dataclasses.asdict(self.capabilities)

    async def send(self, request: CompletionRequest, usage: Usage) -> CompletionReply:
        """The endpoint's reply, with its cost counted. Raises RefusedRequest, or UnusableEndpoint when there is no answer."""
        usage.calls += 1
        self.counters.forwards += 1
        if request.temperature:  # each sample has its own key in a store
            request = request.keyed(usage.next_sample(request.key))
        reply = await self._endpoint.reply(request)
        usage.prefill_at_most = usage.prefill_at_most or not self.capabilities.cached_tokens
        for counted in (usage, self.counters):
            counted.prefill_tokens += reply.num_prompt_tokens - reply.num_cached_tokens
            counted.decode_tokens += reply.num_completion_tokens
        return reply

    def pay_through(self, replies: PaidReplies) -> None:
        """See `ServedLLM.pay_through`."""
        self._endpoint = replies

    async def close(self) -> None:
        """Close the connections."""
        await self._endpoint.close()


class CompletionsContext(TokenContext[CompletionsLLM]):
    """An immutable prefix of token ids. `text` is the prefix as given, or None once it contains tokens without an exact text."""

    def __init__(
        self, llm: CompletionsLLM, token_ids: list[int], text: str | None, usage: Usage, parent: "CompletionsContext | None" = None
    ) -> None:
        self._llm, self._token_ids, self._text, self._usage, self._parent = llm, token_ids, text, usage, parent
        self._by_adapter: dict[str | None, Branches] = {}

    @property
    def token_ids(self) -> list[int]:
        """Every token of the context, BOS included."""
        return list(self._token_ids)

    def extend(self, segments: Sequence[Segment]) -> "CompletionsContext":
        """The context that continues this one."""
        new_ids = [token for segment in segments for token in encode_segment(segment, self._llm.tokenizer)]
        plain = self._text is not None and all(segment.kind != "control_token" and segment.token_ids is None for segment in segments)
        return self._continued(new_ids, "".join([self._text or "", *(segment.text for segment in segments)]) if plain else None)

    async def _generate(self, options: GenerationOptions) -> Generation:
        """See `Context.generate`. For a prompt that the server refuses, the generation is empty and `refused`, and a warning is logged.

        Raises CheckpointError when a stop token is not in the tokenizer.
        """
        config, tokenizer = self._llm.config, self._llm.tokenizer
        stop_ids = sorted(end_ids(tokenizer).union(control_token_id(token, tokenizer) for token in options.stop))
        request = CompletionRequest(
            self._model(options.adapter),
            self._prompt(),
            min(options.max_new_tokens, config.max_tokens),
            options.temperature or config.temperature,
            self._generation_values(stop_ids, options),
        )
        try:
            reply = await self._written(request, options.adapter)
        except RefusedRequest as error:
            if error.reason != "refused":  # the server was too busy, and may answer later
                raise
            logger.warning("endpoint model '%s' withheld a reply: %s", config.model, error)
            return Generation(text="", token_ids=[], logprobs=[], stopped_by="refused", context=self)
        return self._generation(reply, stop_ids, options.stop_texts)

    async def _written(self, request: CompletionRequest, adapter: str | None) -> CompletionReply:
        """The reply to a request from this context; after a single token, it may be written while that token is read."""
        parent = self._parent
        if parent is not None and len(self._token_ids) == len(parent.token_ids) + 1 and self._llm.capabilities.label_reads_while_writing:
            return await parent._branches(adapter).behind(self._token_ids[-1], request)
        return await self._llm.send(request, self._usage)

    def _generation_values(self, stop_ids: list[int], options: GenerationOptions) -> dict[str, Any]:
        """The parameters that the server is known to accept, because some servers refuse a request with an unknown one."""
        able = self._llm.capabilities
        values: dict[str, Any] = {"stop": list(options.stop_texts[:_STOP_TEXTS])} if options.stop_texts else {}
        if options.avoid:
            values["logit_bias"] = dict.fromkeys(map(str, options.avoid), _NEVER)
        if able.token_ids_returned:
            # Tell servers not to trim the stop token; each has a different name for this.
            values |= {"return_token_ids": True, "skip_special_tokens": False, "include_stop_str_in_output": True, "no_stop_trim": True}
        if able.stop_token_ids:
            values["stop_token_ids"] = stop_ids
        if able.logprobs:
            values["logprobs"] = 1
        return values

    def _generation(self, reply: CompletionReply, stop_ids: list[int], stop_texts: Sequence[str]) -> Generation:
        if reply.token_ids is None:
            written: list[int] = []
            reasoning, text = split_thinking(reply.text.strip(), opened=opened_by(self._token_ids, self._llm.tokenizer))
            stopped, context = reply.finish_reason != "length", self._continued([], None)
        else:
            written = reply.token_ids
            reasoning, text = read_written(written, self._llm.tokenizer, prompt=self._token_ids)
            stopped = bool(written) and (written[-1] in stop_ids or any(stop in text for stop in stop_texts))
            context = self._continued(written, None)
        return Generation(
            text=text,
            token_ids=written,
            logprobs=whole(reply.logprobs or [], len(written), reply) if written and self._llm.capabilities.logprobs else [],
            stopped_by="refused" if reply.finish_reason in WITHHELD else "stop" if stopped else "length",
            context=context,
            reasoning=reasoning,
        )

    async def score(self, segments: Sequence[Segment], *, adapter: str | None = None) -> list[float]:
        """See `Context.score`. A single token is read as a label, because prefix caches speed that up but not prompt log-probabilities.

        Tokens that are asked for at the same time, such as a tree's actions at a node, are read by one request.
        """
        able, child = self._llm.capabilities, self.extend(segments)
        token_ids = child.token_ids[len(self._token_ids) :]
        if len(token_ids) == 1 and able.raw_label_reads:
            return [await self._branches(adapter).logprob(token_ids[0])]
        if able.text_scores is None:
            raise IncapableModelError(
                f"endpoint model '{self._llm.config.model}' gives no log-probabilities of given text, which these labels need."
            )
        reply = await self._llm.send(score_request(able.text_scores, self._model(adapter), child.token_ids), self._usage)
        return prompt_scores(able.text_scores, reply, child.token_ids)[-len(token_ids) :]

    async def _next_logprobs(self, tokens: Sequence[int], adapter: str | None) -> list[float]:
        """The log-probability of each token as the next one."""
        dialect = self._llm.capabilities.label_logprobs
        if dialect is None:
            raise IncapableModelError(
                f"endpoint model '{self._llm.config.model}' gives no label probabilities. Serve it with vLLM, or name it in `llm`."
            )
        requests = label_requests(dialect, self._model(adapter), self._prompt(), tokens)
        replies = await asyncio.gather(*(self._llm.send(request, self._usage) for request in requests))
        return label_logprobs(dialect, replies, tokens, self._llm.tokenizer)

    def _branches(self, adapter: str | None) -> Branches:
        async def send(request: CompletionRequest) -> CompletionReply:
            return await self._llm.send(request, self._usage)

        async def read(tokens: Sequence[int]) -> list[float]:
            return await self._next_logprobs(tokens, adapter)

        while_writing = (self._read_while_writing, self._logprobs_in) if self._begins_as_asked() else None
        return self._by_adapter.setdefault(adapter, Branches(Branching(send, read, while_writing)))

    def _begins_as_asked(self) -> bool:
        """Whether to let the model choose a next token: not if, at an earlier node, it began with a token that is not in the tree."""
        if not self._llm.capabilities.label_reads_while_writing:
            return False
        return not any(branches.wrote_another for above in self._above() for branches in above._by_adapter.values())

    def _above(self) -> "Iterator[CompletionsContext]":
        above = self._parent
        while above is not None:
            yield above
            above = above._parent

    def _read_while_writing(self, request: CompletionRequest, tokens: Sequence[int]) -> CompletionRequest:
        return replace(request, prompt=self._prompt(), values=request.values | label_values(tokens))

    def _logprobs_in(self, reply: CompletionReply, tokens: Sequence[int]) -> list[float]:
        return label_logprobs("logprob_token_ids", [reply], tokens, self._llm.tokenizer)

    def _model(self, adapter: str | None) -> str:
        return self._llm.config.adapters[adapter] if adapter else self._llm.config.model

    def _prompt(self) -> list[int] | str:
        if self._llm.capabilities.token_id_prompts:
            return self._token_ids
        if self._text is None:
            raise IncapableModelError(
                f"endpoint model '{self._llm.config.model}' accepts text only, and what a model wrote must not be re-encoded from text. "
                "Use it by chat (leave out `tokenizer`), serve it with vLLM, or name it in `llm`."
            )
        bos = self._llm.tokenizer.bos_token if self._llm.capabilities.bos_in_text else None
        return (bos or "") + without_special_tokens(self._text, self._llm.tokenizer)

    def _continued(self, new_ids: list[int], text: str | None) -> "CompletionsContext":
        return CompletionsContext(self._llm, self._token_ids + new_ids, text, self._usage, self) if new_ids or text != self._text else self


def without_special_tokens(text: str, tokenizer: Tokenizer) -> str:
    """The text with a space inside anything that a server's tokenizer would read as an added token."""
    for token in added_token_names(tokenizer):
        text = text.replace(token, f"{token[0]} {token[1:]}")
    return text
