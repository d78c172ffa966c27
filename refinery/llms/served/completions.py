"""An LLM behind a completions server (vLLM, SGLang, llama.cpp, OpenAI): contexts are token ids, nothing decoded is encoded again.

The tokenizer is loaded here, so control tokens and outside text are told apart as in training. What the server can do was proved by
`capabilities.py`; what it cannot do is refused when the decoder is checked, not in the middle of a run.
"""

import asyncio
import dataclasses
import logging
from collections.abc import Sequence
from typing import Any

from refinery.contract.chat_template import end_ids, has_template, next_turn, reply_text, user_turn
from refinery.contract.plain_text import added_token_names
from refinery.contract.segments import Segment, bos_ids, control_token_id, encode_segment, encode_text
from refinery.contract.tokenizer import Tokenizer
from refinery.errors import IncapableModelError
from refinery.llms.base import Counters, Generation, Need, Usage
from refinery.llms.served.capabilities import Capabilities
from refinery.llms.served.client import EndpointClient
from refinery.llms.served.completion_api import (
    CompletionReply,
    CompletionRequest,
    label_logprobs,
    label_requests,
    prompt_scores,
    score_request,
    whole,
)
from refinery.llms.served.endpoint import RefusedRequest, ServedModelConfig
from refinery.llms.softmax import label_softmax
from refinery.llms.thinking import read_written, split_thinking

logger = logging.getLogger(__name__)
_STOP_TEXTS = 4  # OpenAI takes no more


class CompletionsLLM:
    """An `LLM` over a completions endpoint. `counters` holds what was sent; tokens that the server had cached are not counted as prefill.

    The endpoint's `max_tokens` bounds every reply, and its `temperature` holds where the decoder asks for none.
    """

    def __init__(self, config: ServedModelConfig, tokenizer: Tokenizer, capabilities: Capabilities) -> None:
        self.config, self.capabilities = config, capabilities
        self.tokenizer = self.token_counter = tokenizer
        self.counters = Counters()
        self._endpoint = EndpointClient(config)

    def context(self, prompt: str | Sequence[Segment], *, usage: Usage | None = None) -> "CompletionsContext":
        """See `LLM.context`."""
        segments = user_turn(prompt, self.tokenizer) if isinstance(prompt, str) else prompt
        return CompletionsContext(self, bos_ids(segments, self.tokenizer), "", usage or Usage()).extend(segments)

    @property
    def context_limit(self) -> int | None:
        """Tokens of a prompt and its reply together, as the server says."""
        return self.capabilities.context_limit

    def require(self, decoder: str, needs: frozenset[Need]) -> None:
        """Raises IncapableModelError when the endpoint lacks what the decoder needs."""
        if lacking := self.capabilities.lacking(needs):
            raise IncapableModelError(
                f"endpoint {self.config.base_url} (model '{self.config.model}') gives no {', no '.join(lacking)}, which decoder '{decoder}'"
                " needs. Serve the model with vLLM, or name it by `llm` in the recipe, in place of `endpoint`."
            )

    def record(self) -> dict[str, Any]:
        """What the endpoint can do, for the run's record."""
        return dataclasses.asdict(self.capabilities)

    async def send(self, request: CompletionRequest, usage: Usage) -> CompletionReply:
        """The endpoint's reply, its cost counted. Raises RefusedRequest, or UnusableEndpoint when it does not answer."""
        usage.calls += 1
        self.counters.forwards += 1
        reply = await self._endpoint.reply(request)
        for counted in (usage, self.counters):
            counted.prefill_tokens += reply.num_prompt_tokens - reply.num_cached_tokens
            counted.decode_tokens += reply.num_completion_tokens
        return reply

    async def close(self) -> None:
        """Close the connections."""
        await self._endpoint.close()


class CompletionsContext:
    """A prefix of token ids; immutable. `text` is the prefix as it was given, or None once it holds what has no text of its own."""

    def __init__(self, llm: CompletionsLLM, token_ids: list[int], text: str | None, usage: Usage) -> None:
        self._llm, self._token_ids, self._text, self._usage = llm, token_ids, text, usage

    @property
    def token_ids(self) -> list[int]:
        """Every token of the context, BOS included."""
        return list(self._token_ids)

    def extend(self, segments: Sequence[Segment]) -> "CompletionsContext":
        """The context that continues this one."""
        new_ids = [token for segment in segments for token in encode_segment(segment, self._llm.tokenizer)]
        plain = self._text is not None and all(segment.kind != "control_token" and segment.token_ids is None for segment in segments)
        return self._continued(new_ids, "".join([self._text or "", *(segment.text for segment in segments)]) if plain else None)

    @property
    def ends_its_turns(self) -> bool:
        """See `Context.ends_its_turns`."""
        return has_template(self._llm.tokenizer)

    def ask_next(self, text: str) -> "CompletionsContext":
        """See `Context.ask_next`."""
        return self.extend(next_turn(text, self._llm.tokenizer, after=self.token_ids))

    async def generate(
        self,
        *,
        max_new_tokens: int,
        stop: Sequence[str] = (),
        stop_texts: Sequence[str] = (),
        temperature: float = 0.0,
        adapter: str | None = None,
    ) -> Generation:
        """See `Context.generate`. A prompt that the server does not take is a refused generation: empty, with a warning.

        Raises CheckpointError when a stop token is not in the tokenizer.
        """
        llm, config, tokenizer = self._llm, self._llm.config, self._llm.tokenizer
        stop_ids = sorted(end_ids(tokenizer).union(control_token_id(token, tokenizer) for token in stop))
        request = CompletionRequest(
            self._model(adapter),
            self._prompt(),
            min(max_new_tokens, config.max_tokens),
            temperature or config.temperature,
            self._generation_values(stop_ids, stop_texts),
        )
        try:
            reply = await llm.send(request, self._usage)
        except RefusedRequest as error:
            if error.reason != "refused":  # the server had no time for it, and may have later
                raise
            logger.warning("endpoint model '%s' withheld a reply: %s", config.model, error)
            return Generation(text="", token_ids=[], logprobs=[], stopped_by="refused", context=self)
        return self._generation(reply, stop_ids, stop_texts)

    def _generation_values(self, stop_ids: list[int], stop_texts: Sequence[str]) -> dict[str, Any]:
        """Only what the server was seen to understand: some refuse a request for one unknown name."""
        able = self._llm.capabilities
        values: dict[str, Any] = {"stop": list(stop_texts[:_STOP_TEXTS])} if stop_texts else {}
        if able.token_ids_returned:
            # Servers that trim the token they stopped at are told not to, each by its own name for it.
            values |= {"return_token_ids": True, "skip_special_tokens": False, "include_stop_str_in_output": True, "no_stop_trim": True}
        if able.stop_token_ids:
            values["stop_token_ids"] = stop_ids
        if able.logprobs:
            values["logprobs"] = 1
        return values

    def _generation(self, reply: CompletionReply, stop_ids: list[int], stop_texts: Sequence[str]) -> Generation:
        if reply.token_ids is None:
            written: list[int] = []
            reasoning, text = split_thinking(reply.text.strip())
            stopped, context = reply.finish_reason != "length", self._continued([], None)
        else:
            written = reply.token_ids
            reasoning, text = read_written(written, self._llm.tokenizer)
            stopped = bool(written) and (written[-1] in stop_ids or any(stop in text for stop in stop_texts))
            context = self._continued(written, None)
        return Generation(
            text=text,
            token_ids=written,
            logprobs=whole(reply.logprobs or [], len(written), reply) if written and self._llm.capabilities.logprobs else [],
            stopped_by="stop" if stopped else "length",
            context=context,
            reasoning=reasoning,
        )

    async def label_probs(self, labels: Sequence[str], *, adapter: str | None = None) -> dict[str, float]:
        """See `Context.label_probs`. Reads the labels' first tokens where these differ, else scores the labels whole."""
        replies = [reply_text(label, self._llm.tokenizer) for label in labels]
        encoded = [encode_text(reply, self._llm.tokenizer) for reply in replies]
        if len({ids[0] for ids in encoded}) == len(labels):
            scores = await self._read([ids[0] for ids in encoded], adapter)
        else:
            scores = [sum(s) for s in await asyncio.gather(*(self.score([Segment(x, "label")], adapter=adapter) for x in replies))]
        return label_softmax(labels, scores)

    async def score(self, segments: Sequence[Segment], *, adapter: str | None = None) -> list[float]:
        """See `Context.score`. One token is read as a label, which a server's prefix cache serves; it does not serve prompt scores."""
        able, child = self._llm.capabilities, self.extend(segments)
        token_ids = child.token_ids[len(self._token_ids) :]
        if len(token_ids) == 1 and able.raw_label_reads:
            return await self._read(token_ids, adapter)
        if able.text_scores is None:
            raise IncapableModelError(
                f"endpoint model '{self._llm.config.model}' gives no log-probabilities of given text, which labels need here."
            )
        reply = await self._llm.send(score_request(able.text_scores, self._model(adapter), child.token_ids), self._usage)
        return prompt_scores(able.text_scores, reply, child.token_ids)[-len(token_ids) :]

    async def _read(self, tokens: list[int], adapter: str | None) -> list[float]:
        """Log-probabilities of tokens as what comes next."""
        dialect = self._llm.capabilities.label_logprobs
        if dialect is None:
            raise IncapableModelError(
                f"endpoint model '{self._llm.config.model}' gives no label reads. Serve it with vLLM, or name it by `llm`."
            )
        requests = label_requests(dialect, self._model(adapter), self._prompt(), tokens)
        replies = await asyncio.gather(*(self._llm.send(request, self._usage) for request in requests))
        return label_logprobs(dialect, replies, tokens, self._llm.tokenizer)

    def _model(self, adapter: str | None) -> str:
        return self._llm.config.adapters[adapter] if adapter else self._llm.config.model

    def _prompt(self) -> list[int] | str:
        if self._llm.capabilities.token_id_prompts:
            return self._token_ids
        if self._text is None:
            raise IncapableModelError(
                f"endpoint model '{self._llm.config.model}' takes text only, and what a model wrote is not put into text again. "
                "Ask it by chat (leave out `tokenizer`), serve it with vLLM, or name it by `llm`."
            )
        bos = self._llm.tokenizer.bos_token if self._llm.capabilities.bos_in_text else None
        return (bos or "") + without_special_tokens(self._text, self._llm.tokenizer)

    def _continued(self, new_ids: list[int], text: str | None) -> "CompletionsContext":
        return CompletionsContext(self._llm, self._token_ids + new_ids, text, self._usage) if new_ids or text != self._text else self


def without_special_tokens(text: str, tokenizer: Tokenizer) -> str:
    """The text with a space inside whatever a server's tokenizer would read as an added token."""
    for token in added_token_names(tokenizer):
        text = text.replace(token, f"{token[0]} {token[1:]}")
    return text
