"""Chats with vLLM in this process: messages go through the checkpoint's own template, a schema through vLLM's structured outputs.

A reply takes the form of a chat completion, which the protocol reads as it reads a server's.
"""

import asyncio
import json
from collections.abc import Awaitable, Callable
from importlib import import_module
from typing import Any, cast

from refinery.contract.chat_template import Message, Role, chat_segments, has_template
from refinery.contract.segments import bos_ids, encode_segment
from refinery.contract.tokenizer import Tokenizer
from refinery.errors import CheckpointError
from refinery.llms.served.endpoint import EndpointConfig, RefusedRequest, Reply
from refinery.llms.served.protocols.base import Chat
from refinery.llms.served.transport.chat_request import ChatRequest
from refinery.llms.served.wire.responses import RetryableFault
from refinery.llms.thinking import read_written
from refinery.llms.vllm.engine import check_base, check_vllm, start_engine
from refinery.llms.vllm.keys import VllmKeys
from refinery.llms.weights.checkpoint import load_tokenizer
from refinery.runtime.observe import telemetry

Persist = Callable[[ChatRequest, Reply], Awaitable[None]]
Admit = Callable[[ChatRequest, int], Awaitable[None]]


class VllmChats:
    """Answers chats, as an endpoint's client does; see there for `persist` and `admit`. Nothing is tried again."""

    retries = 0

    def __init__(self, config: EndpointConfig, keys: VllmKeys, persist: Persist, admit: Admit) -> None:
        """Load the model that `config` names. Raises RecipeError without vLLM, CheckpointError or LLMError if it cannot be loaded."""
        check_vllm(keys, "transport")
        check_base(config.model)
        self.config, self._persist, self._admit = config, persist, admit
        self.tokenizer = chat_tokenizer(config)
        self._engine = start_engine(
            config.model, keys, settings={"generation_config": "auto", "structured_outputs_config": _compact_json()}
        )
        self._places, self.in_flight = asyncio.Semaphore(config.calls_in_flight), 0

    async def reply(self, request: ChatRequest) -> Reply:
        """The reply, once it is stored. Raises the errors of `VllmEngine.write`."""
        async with self._places:
            self.in_flight += 1
            try:
                await self._admit(request, 0)
                reply = await self._answer(request)
                await self._persist(request, reply)
                return reply
            finally:
                self.in_flight -= 1

    async def _answer(self, request: ChatRequest) -> Reply:
        chat = request.chat(self.config)
        parameters = self._engine.default_parameters | parameters_of(chat, self.config)
        work = self._engine.write(chat_tokens(chat, self.tokenizer), parameters, json_schema=chat.json_schema)
        output = await telemetry.call("chat", telemetry.IN_PROCESS, self.config.model, work, _tokens)
        try:
            return request.parse(completion_json(output, self.config.model, self.tokenizer), self.config)
        except RetryableFault as fault:
            raise RefusedRequest(f"{self.config.model}: {fault.message}", reason="no_reply") from None

    async def close(self) -> None:
        """Free the model."""
        await self._engine.close()


def _compact_json() -> Any:
    """A schema's replies without white space and fields of the model's own, with which a small one can go on until its tokens run out."""
    config = import_module("vllm.config").StructuredOutputsConfig
    return config(backend="guidance", disable_any_whitespace=True, disable_additional_properties=True)


def chat_tokenizer(config: EndpointConfig) -> Tokenizer:
    """The model's tokenizer, whose template reasons as the recipe says, or by the template's own default. Raises CheckpointError."""
    tokenizer = load_tokenizer(config.model)
    if not has_template(tokenizer):
        raise CheckpointError(f"{config.model}: has no chat template, so it cannot be asked by chat. Name an instruct model.")
    thinking = config.enable_thinking
    values = {"enable_thinking": thinking, "thinking": thinking, "reasoning_effort": config.reasoning_effort}
    # What a template is not told must be undefined in it.
    given = {name: "not_told" if value is None else json.dumps(value) for name, value in values.items()}
    tokenizer.chat_template = "".join(f"{{% set {name} = {value} %}}" for name, value in given.items()) + tokenizer.get_chat_template()
    return tokenizer


def chat_tokens(chat: Chat, tokenizer: Tokenizer) -> list[int]:
    """The prompt of a chat, after which the model may reason. What a message says never becomes a special token."""
    messages = [Message(cast(Role, role), content) for role, content in chat.messages]
    segments = chat_segments(messages, tokenizer, reasons=True)
    return bos_ids(segments, tokenizer) + [token for segment in segments for token in encode_segment(segment, tokenizer)]


def parameters_of(chat: Chat, config: EndpointConfig) -> dict[str, Any]:
    """A chat's parameters in vLLM's engine; the model's own are left for those that are missing."""
    values = {
        "max_tokens": chat.max_tokens,
        "temperature": chat.temperature,
        "top_p": config.top_p,
        "seed": chat.seed,
        "stop": list(chat.stop) or None,
        "logprobs": 0 if chat.token_logprobs else None,  # those of the written tokens alone
    }
    return {name: value for name, value in values.items() if value is not None}


def completion_json(output: Any, model: str, tokenizer: Tokenizer) -> dict[str, Any]:
    """vLLM's output in the form of a chat completion. Its text has lost the tokens that tell what the model thinks from its reply."""
    written, (read, wrote) = output.outputs[0], _tokens(output)
    thought, reply = read_written(written.token_ids, tokenizer, prompt=output.prompt_token_ids or ())
    message = {"content": reply, "reasoning": thought} if thought else {"content": written.text}
    choice: dict[str, Any] = {"message": message, "finish_reason": written.finish_reason}
    if written.logprobs:
        found = [step[token] for token, step in zip(written.token_ids, written.logprobs, strict=True)]
        choice["logprobs"] = {"content": [{"token": one.decoded_token, "logprob": one.logprob} for one in found]}
    return {
        "id": output.request_id,
        "model": model,
        "choices": [choice],
        "usage": {"prompt_tokens": read, "completion_tokens": wrote, "cached_tokens": output.num_cached_tokens},
    }


def _tokens(output: Any) -> tuple[int, int]:
    return len(output.prompt_token_ids or ()), len(output.outputs[0].token_ids)
