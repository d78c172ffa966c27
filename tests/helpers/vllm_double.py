"""A stand-in for the package vllm where it is not installed: its engine's interface as version 0.32 has it, over a transformers model.

It takes what vLLM takes and nothing else, and computes every answer by plain forward passes, as `CompletionsServer` does for HTTP.
"""

import sys
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from importlib.machinery import ModuleSpec
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
from helpers.completions_server import CompletionsServer

from refinery.llms.weights.checkpoint import load_checkpoint, load_with_adapters

CONTEXT = 2048


@dataclass(frozen=True)
class EngineArguments:
    """The arguments of an engine that are used here."""

    model: str
    revision: str | None
    tokenizer_revision: str | None
    dtype: str
    tensor_parallel_size: int
    gpu_memory_utilization: float
    max_model_len: int | None
    enable_prefix_caching: bool
    max_logprobs: int
    enforce_eager: bool
    generation_config: str
    seed: int = 0
    structured_outputs_config: Any = None
    enable_lora: bool = False
    max_loras: int = 1
    max_lora_rank: int = 16
    max_num_seqs: int = 256
    quantization: str | None = None
    speculative_config: dict[str, Any] | None = None


@dataclass(frozen=True)
class SamplingParams:
    """The parameters of a request that are used here."""

    max_tokens: int
    temperature: float
    output_kind: str
    seed: int | None = None
    top_p: float = 1.0
    detokenize: bool = True
    stop: list[str] | None = None
    stop_token_ids: list[int] = field(default_factory=list)
    skip_special_tokens: bool = True
    logprobs: int | None = None
    logprob_token_ids: list[int] | None = None
    prompt_logprobs: int | None = None
    structured_outputs: Any = None


@dataclass(frozen=True)
class LoRARequest:
    """An adapter by name, number and folder."""

    lora_name: str
    lora_int_id: int
    lora_path: str


class VLLMError(Exception):
    """Any of vLLM's errors."""


class VLLMClientError(VLLMError):
    """A request that is at fault."""


class EngineDeadError(Exception):
    """The engine has ended."""


class EngineGenerateError(Exception):
    """A request has failed."""


class Engine:
    """One engine with memory: its `arguments`, the `requests` that it was sent, its prefix cache's `hits`, and whether it was shut down.

    `fault` is raised instead of an answer, and `replies` are texts that are written instead, the last of them again and again.
    """

    fault: Exception | None = None
    replies: tuple[str, ...] = ()

    def __init__(self, arguments: EngineArguments) -> None:
        if arguments.gpu_memory_utilization < 0.1:
            raise ValueError("1 validation error for ModelConfig\n  Value error, too little memory [type=value_error, input_value=0.01]")
        self.arguments = arguments
        self.model_config = SimpleNamespace(
            max_model_len=arguments.max_model_len or CONTEXT, get_diff_sampling_param=lambda: {"top_p": 0.8} if self._own_defaults else {}
        )
        self.requests: list[tuple[list[int], SamplingParams, LoRARequest | None]] = []
        self.hits: list[int] = []
        self.loras: list[LoRARequest] = []
        self.is_shut = False
        self._server: CompletionsServer | None = None

    @property
    def _own_defaults(self) -> bool:
        return self.arguments.generation_config == "auto"

    async def add_lora(self, lora: LoRARequest) -> bool:
        """Load an adapter."""
        self.loras.append(lora)
        return True

    def shutdown(self) -> None:
        """Free the model."""
        self.is_shut = True

    async def generate(
        self, prompt: dict[str, Any], sampling_params: SamplingParams, request_id: str, *, lora_request: LoRARequest | None = None
    ) -> AsyncIterator[SimpleNamespace]:
        """The finished output of a request."""
        ids = prompt["prompt_token_ids"]
        self.requests.append((ids, sampling_params, lora_request))
        if self.fault:
            raise self.fault
        if len(ids) > self.model_config.max_model_len:
            raise VLLMClientError(f"The decoder prompt (length {len(ids)}) is longer than the maximum model length")
        if self.replies:
            yield _scripted(self.replies[min(len(self.requests), len(self.replies)) - 1], request_id, ids)
            return
        body = {name: value for name, value in vars(sampling_params).items() if value is not None}
        name = f"lora{lora_request.lora_int_id}" if lora_request else "base"
        server = self._server = self._server or self._loaded()
        with server._adapter(name):
            asked = {"prompt": ids, "model": name, "return_token_ids": True, "return_tokens_as_token_ids": True}
            output = _output(server._complete(body | asked), request_id, ids)
            self.hits.append(output.num_cached_tokens)
            yield output

    def _loaded(self) -> CompletionsServer:
        if not self.loras:
            return CompletionsServer(*load_checkpoint(self.arguments.model))
        adapters = {f"lora{lora.lora_int_id}": lora.lora_path for lora in self.loras}
        model, tokenizer = load_with_adapters(self.arguments.model, adapters)
        return CompletionsServer(model, tokenizer, adapters=adapters)


def _scripted(text: str, request_id: str, ids: list[int]) -> SimpleNamespace:
    """A reply of which each character is a token with probability 1."""
    logprobs = [{number: SimpleNamespace(logprob=0.0, decoded_token=character)} for number, character in enumerate(text)]
    written = SimpleNamespace(text=text, token_ids=list(range(len(text))), finish_reason="stop", logprobs=logprobs)
    return SimpleNamespace(request_id=request_id, prompt_token_ids=ids, outputs=[written], prompt_logprobs=None, num_cached_tokens=0)


def _output(completion: dict[str, Any], request_id: str, ids: list[int]) -> SimpleNamespace:
    choice = completion["choices"][0]
    tops = (choice.get("logprobs") or {}).get("top_logprobs")
    written = SimpleNamespace(
        text=choice["text"],
        token_ids=choice["token_ids"],
        finish_reason=choice["finish_reason"],
        logprobs=tops and [{int(name.partition(":")[2]): _logprob(value) for name, value in top.items()} for top in tops],
    )
    prompt_logprobs = choice.get("prompt_logprobs")
    return SimpleNamespace(
        request_id=request_id,
        prompt_token_ids=ids,
        outputs=[written],
        prompt_logprobs=prompt_logprobs
        and [entry and {int(token): SimpleNamespace(**value) for token, value in entry.items()} for entry in prompt_logprobs],
        num_cached_tokens=completion["usage"]["prompt_tokens_details"]["cached_tokens"],
    )


def _logprob(value: float) -> SimpleNamespace:
    return SimpleNamespace(logprob=value)


def install(monkeypatch: pytest.MonkeyPatch) -> list[Engine]:
    """Make `import vllm` find the double; gives the list of the engines that are started."""
    engines: list[Engine] = []

    def from_engine_args(arguments: EngineArguments) -> Engine:
        engines.append(Engine(arguments))
        return engines[-1]

    for name, values in {
        "vllm": {"AsyncEngineArgs": EngineArguments},
        "vllm.config": {"StructuredOutputsConfig": lambda **given: SimpleNamespace(**given)},
        "vllm.exceptions": {"VLLMError": VLLMError, "VLLMClientError": VLLMClientError},
        "vllm.lora": {},
        "vllm.lora.request": {"LoRARequest": LoRARequest},
        "vllm.platforms": {"current_platform": SimpleNamespace(is_cpu=lambda: False)},
        "vllm.sampling_params": {
            "SamplingParams": SamplingParams,
            "RequestOutputKind": SimpleNamespace(FINAL_ONLY="final"),
            "StructuredOutputsParams": lambda json: SimpleNamespace(json=json),
        },
        "vllm.v1": {},
        "vllm.v1.engine": {},
        "vllm.v1.engine.async_llm": {"AsyncLLM": SimpleNamespace(from_engine_args=from_engine_args)},
        "vllm.v1.engine.exceptions": {"EngineDeadError": EngineDeadError, "EngineGenerateError": EngineGenerateError},
    }.items():
        module = ModuleType(name)
        module.__spec__, module.__path__ = ModuleSpec(name, None, origin=__file__), []
        vars(module).update(values)
        monkeypatch.setitem(sys.modules, name, module)
    return engines
