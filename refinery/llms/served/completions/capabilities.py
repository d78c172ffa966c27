"""The capabilities of a completions server, found by probing it once before the first question.

Parameters differ between servers and change between versions, and a server may refuse, ignore or misread one that it does not know. So a
capability counts only when a reply proves it.
"""

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any, get_args

from refinery.contract.segments import encode_text
from refinery.contract.tokenizer import Tokenizer
from refinery.errors import LLMError
from refinery.llms.base import Need
from refinery.llms.served.completions.api import (
    FORCED,
    CompletionReply,
    CompletionRequest,
    LabelReads,
    TextScores,
    label_logprobs,
    label_requests,
    label_values,
    prompt_scores,
    score_request,
    whole,
)
from refinery.llms.served.completions.context_limit import served_context_limit
from refinery.llms.served.endpoint import RefusedRequest, ServedModelConfig, UnusableEndpoint
from refinery.llms.served.transport.client import EndpointClient

_WORDS: dict[Need, str] = {
    "token_ids": "token-id prompts and replies",
    "control_tokens": "control tokens in replies",
    "stop_token_ids": "stop token ids",
    "logprobs": "log-probabilities",
    "label_logprobs": "label reads",
    "token_scores": "log-probabilities of a given token",
    "scores": "log-probabilities of given text",
}
_PROBE_TEXT = "Question: In which city was the director of the film born?\nAnswer: In the city of Lyon.\n" * 4
_PROBE_TOKENS = 4
# This many copies of the probe exceed a block of a prefix cache, which stores whole blocks: 16 tokens on vLLM, 128 on its CPU build.
_PROBES_CACHED = 3
# The tolerance for two readings of one log-probability, because half-precision kernels are not exactly repeatable.
_SAME_LOGPROB = 0.05


@dataclass(frozen=True, slots=True)
class Capabilities:
    """The proven capabilities. `label_logprobs` and `text_scores` name the dialect that works. `raw_label_reads`: not normalized.

    `label_reads_while_writing`: the request that reads labels may also write. `cached_tokens`: hits in a prefix cache are reported.
    `bos_in_text`: a prompt sent as text must contain BOS, since the server does not add it. `context_limit`: the most tokens of prompt
    and reply together, None if the server does not say. `chat_labels`: a label is read from a chat reply.
    """

    token_id_prompts: bool = False
    bos_in_text: bool = False
    token_ids_returned: bool = False
    control_tokens: bool = False
    stop_token_ids: bool = False
    logprobs: bool = False
    label_logprobs: LabelReads | None = None
    raw_label_reads: bool = False
    label_reads_while_writing: bool = False
    text_scores: TextScores | None = None
    cached_tokens: bool = False
    adapters: tuple[str, ...] = ()
    context_limit: int | None = None
    chat_labels: bool = False

    def lacking(self, needs: Iterable[Need]) -> list[str]:
        """Descriptions of the capabilities that are needed but missing."""
        there: dict[Need, bool] = {
            "token_ids": self.token_id_prompts and self.token_ids_returned,
            "control_tokens": self.control_tokens,
            "stop_token_ids": self.stop_token_ids,
            "logprobs": self.logprobs,
            "label_logprobs": self.label_logprobs is not None or self.chat_labels,
            "token_scores": self.text_scores is not None or self.raw_label_reads,
            "scores": self.text_scores is not None,
        }
        return [_WORDS[need] for need in there if need in set(needs) and not there[need]]


NO_CAPABILITIES = Capabilities()


async def probe(config: ServedModelConfig, tokenizer: Tokenizer) -> Capabilities:
    """Probe every address of the endpoint with about fifteen tiny requests each.

    Raises UnusableEndpoint when an address does not answer, LLMError when one lacks an adapter or the addresses differ.
    """
    found: dict[str, Capabilities] = {}
    for base_url in config.base_urls:
        endpoint = EndpointClient(config.model_copy(update={"base_url": base_url, "max_tries": 2}))
        try:
            found[str(base_url)] = await _Probe(config, endpoint, tokenizer).run()
        finally:
            await endpoint.close()
    first, *others = found.items()
    for address, capabilities in others:
        if capabilities != first[1]:
            raise LLMError(f"endpoints {first[0]} and {address} differ in their capabilities. Serve the model in the same way on both.")
    return replace(first[1], context_limit=await served_context_limit(config))


class _Probe:
    """The requests that probe one address."""

    def __init__(self, config: ServedModelConfig, endpoint: EndpointClient, tokenizer: Tokenizer) -> None:
        self.config, self.endpoint, self.tokenizer = config, endpoint, tokenizer
        bos = [] if tokenizer.bos_token_id is None else [tokenizer.bos_token_id]
        self.ids = bos + encode_text(_PROBE_TEXT, tokenizer)
        self.prompt: list[int] | str = self.ids

    async def run(self) -> Capabilities:
        # Every server accepts this request. If it fails, there is no server, or no such model.
        as_text = await self.endpoint.reply(CompletionRequest(self.config.model, _PROBE_TEXT, 1, 0.0, {}))
        takes_ids = await self._reads_whole(self.ids)
        with_bos = f"{self.tokenizer.bos_token or ''}{_PROBE_TEXT}"
        bos_in_text = not takes_ids and as_text.num_prompt_tokens < len(self.ids) and await self._reads_whole(with_bos)
        if not takes_ids:
            self.prompt = with_bos if bos_in_text else _PROBE_TEXT
        written = await self._try(_PROBE_TOKENS, return_token_ids=True)
        token_ids = (written and written.token_ids) or []
        logprobs = await self._logprobs()
        label_logprobs, raw = await self._label_reads(token_ids, logprobs)
        return Capabilities(
            token_id_prompts=takes_ids,
            bos_in_text=bos_in_text,
            token_ids_returned=bool(token_ids),
            control_tokens=await self._keeps_control_tokens(),
            stop_token_ids=bool(token_ids) and await self._stops_at(token_ids[0]),
            logprobs=bool(logprobs),
            label_logprobs=label_logprobs,
            raw_label_reads=raw,
            label_reads_while_writing=label_logprobs == "logprob_token_ids"
            and raw
            and await self._reads_while_writing(token_ids, logprobs),
            text_scores=await self._text_scores() if takes_ids else None,
            cached_tokens=await self._tells_cached(),
            adapters=await self._adapters(),
        )

    async def _reads_whole(self, prompt: list[int] | str) -> bool:
        """Whether a prompt reaches the model as exactly the probe's tokens."""
        reply = await self._send(CompletionRequest(self.config.model, prompt, 1, 0.0, {}))
        return reply is not None and reply.num_prompt_tokens == len(self.ids)

    async def _logprobs(self) -> list[float]:
        reply = await self._try(_PROBE_TOKENS, logprobs=1)
        try:
            return whole(reply.logprobs or [], reply.num_completion_tokens, reply) if reply else []
        except LLMError:
            return []

    async def _keeps_control_tokens(self) -> bool:
        """Whether a special token that the model is forced to write is in the reply."""
        token = self.tokenizer.all_special_ids[-1]
        for forced in ({"logit_bias": {str(token): FORCED}}, {"allowed_token_ids": [token]}):
            reply = await self._try(1, return_token_ids=True, skip_special_tokens=False, **forced)
            if reply and reply.token_ids == [token]:
                return True
        return False

    async def _stops_at(self, token: int) -> bool:
        """Whether a stop token ends the reply and is part of it, tested with the first token that the model writes."""
        reply = await self._try(_PROBE_TOKENS, return_token_ids=True, stop_token_ids=[token])
        return reply is not None and reply.token_ids == [token]

    async def _label_reads(self, written: list[int], logprobs: list[float]) -> tuple[LabelReads | None, bool]:
        """The first dialect that gives log-probabilities of two labels, and whether they are over the whole vocabulary."""
        likeliest = written[0] if written else self.ids[-1]
        other = next(token for token in self.ids if token != likeliest)
        for dialect in get_args(LabelReads):
            requests = label_requests(dialect, self.config.model, self.prompt, [likeliest, other])
            replies = [reply for request in requests if (reply := await self._send(request))]
            if len(replies) < len(requests):
                continue
            try:
                found = label_logprobs(dialect, replies, [likeliest, other], self.tokenizer)
            except LLMError:
                continue
            # Tokens forced one at a time have different values, unless each has probability 1 for lack of alternatives.
            if dialect != "allowed_token_ids" or found[0] != found[1]:
                return dialect, bool(written and logprobs) and abs(found[0] - logprobs[0]) < _SAME_LOGPROB
        return None, False

    async def _reads_while_writing(self, written: list[int], logprobs: list[float]) -> bool:
        """Whether reading labels leaves the text and its log-probabilities unchanged, and gives the labels at its first token."""
        labels = [written[0], next(token for token in self.ids if token != written[0])]
        reply = await self._try(_PROBE_TOKENS, return_token_ids=True, **label_values(labels))
        try:
            found = label_logprobs("logprob_token_ids", [reply], labels, self.tokenizer) if reply else []
            own = whole(reply.logprobs or [], len(written), reply) if reply else []
        except LLMError:
            return False
        same = bool(found and own) and all(abs(one - logprobs[0]) < _SAME_LOGPROB for one in (found[0], own[0]))
        return same and reply is not None and (reply.token_ids or [])[:1] == written[:1]

    async def _tells_cached(self) -> bool:
        """Whether tokens of a prompt that was just read are reported as cached."""
        prompt = self.prompt * _PROBES_CACHED
        replies = [await self._send(CompletionRequest(self.config.model, prompt, 1, 0.0, {})) for _ in range(2)]
        return any(reply is not None and reply.num_cached_tokens > 0 for reply in replies)

    async def _text_scores(self) -> TextScores | None:
        for dialect in get_args(TextScores):
            reply = await self._send(score_request(dialect, self.config.model, self.ids))
            try:
                if reply and prompt_scores(dialect, reply, self.ids):
                    return dialect
            except LLMError:
                continue
        return None

    async def _adapters(self) -> tuple[str, ...]:
        """The recipe's adapters, after a check that each is served under its name. Raises LLMError otherwise."""
        names = tuple(dict.fromkeys(self.config.adapters.values()))
        where = f"endpoint {self.endpoint.config.base_url} (model '{self.config.model}')"
        if names and await self._serves(f"{self.config.model}-absent"):
            raise LLMError(f"{where} accepts any model name, so it cannot serve adapters by name. Use vLLM with --enable-lora, or `llm`.")
        for name in names:
            if not await self._serves(name):
                raise LLMError(
                    f"{where} serves no adapter '{name}'. Load it under that name (vLLM: --enable-lora --lora-modules {name}=PATH)."
                )
        return names

    async def _try(self, max_tokens: int, **values: Any) -> CompletionReply | None:
        return await self._send(CompletionRequest(self.config.model, self.prompt, max_tokens, 0.0, values))

    async def _serves(self, model: str) -> bool:
        return await self._send(CompletionRequest(model, self.prompt, 1, 0.0, {})) is not None

    async def _send(self, request: CompletionRequest) -> CompletionReply | None:
        """The reply, or None if the server refuses the request. Raises UnusableEndpoint if it refuses the key or the account."""
        try:
            return await self.endpoint.reply(request)
        except RefusedRequest:
            return None
        except UnusableEndpoint as error:
            if error.status in (None, 404):  # it does not answer such a request, or has no such model
                return None
            raise
