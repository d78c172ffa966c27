"""vLLM's asynchronous engine in this process. It runs on the process's background loop, so that every event loop can await it.

Loading takes minutes, so it is first checked that vLLM is installed, and that it can serve the checkpoint as it is.
"""

import atexit
import dataclasses
import os
import signal
import sys
import threading
import weakref
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from importlib import import_module
from importlib.util import find_spec
from typing import Any
from uuid import uuid4

from refinery.contract.tokenizer import Tokenizer
from refinery.errors import CheckpointError, LLMError
from refinery.installed import install_extra
from refinery.llms.served.endpoint import RefusedRequest, UnusableEndpoint
from refinery.llms.vllm.keys import VllmKeys
from refinery.llms.weights.checkpoint import check_template, load_tokenizer, read_adapter_config
from refinery.llms.weights.families import checkpoint_family
from refinery.llms.weights.hub_files import read_small_json, small_files, split_revision
from refinery.runtime.concurrency.background_loop import await_in_background
from refinery.runtime.concurrency.single_flight import SingleFlight
from refinery.runtime.run.process_rank import num_processes

# What vLLM does unless it is told otherwise: log on standard output, which is for results, and report its use to its makers.
_ENVIRONMENT = {"VLLM_LOGGING_LEVEL": "WARNING", "VLLM_LOGGING_STREAM": "ext://sys.stderr", "VLLM_NO_USAGE_STATS": "1"}
_LORA_RANKS = (8, 16, 32, 64, 128, 256, 320, 512)  # those that vLLM has kernels for


class VllmEngine:
    """A loaded model with its adapters.

    `context_limit` is the most tokens of a prompt and its reply together, `default_parameters` what the model's own file sets.
    """

    def __init__(self, engine: Any, model: str, loras: Mapping[str, Any]) -> None:
        self._loaded, self.model, self._loras = [engine], model, loras
        self._added, self._adding = set[str](), SingleFlight[str, bool]()
        self._free = weakref.finalize(self, _shut_down, self._loaded)
        atexit.register(self._free)  # now, so that it runs before multiprocessing kills the engine's processes
        self.context_limit: int = engine.model_config.max_model_len
        self.default_parameters: dict[str, Any] = engine.model_config.get_diff_sampling_param()

    async def write(
        self, token_ids: list[int], parameters: Mapping[str, Any], *, json_schema: dict[str, Any] | None = None, adapter: str | None = None
    ) -> Any:
        """The finished `vllm.RequestOutput` of a prompt, with the adapter of this path; `parameters` are `vllm.SamplingParams`'s.

        Raises RefusedRequest for a request that vLLM does not accept, UnusableEndpoint when its engine has ended.
        """
        return await await_in_background(self._write(token_ids, parameters, json_schema, adapter))

    async def _write(self, token_ids: list[int], parameters: Mapping[str, Any], schema: dict[str, Any] | None, adapter: str | None) -> Any:
        sampling, exceptions = import_module("vllm.sampling_params"), import_module("vllm.v1.engine.exceptions")
        refusal = import_module("vllm.exceptions").VLLMClientError
        lora = await self._lora(adapter) if adapter else None
        try:
            structured = sampling.StructuredOutputsParams(json=schema) if schema is not None else None
            params = sampling.SamplingParams(**parameters, structured_outputs=structured, output_kind=sampling.RequestOutputKind.FINAL_ONLY)
            written = self._loaded[0].generate({"prompt_token_ids": token_ids}, params, f"refinery-{uuid4().hex}", lora_request=lora)
            return [output async for output in written][-1]
        except exceptions.EngineDeadError:
            said = "vLLM's engine has ended; its own messages are above. Resume the run with --resume."
            raise UnusableEndpoint(f"{self.model}: {said}") from None
        except exceptions.EngineGenerateError as error:
            raise RefusedRequest(f"{self.model}: vLLM failed: {error.__cause__ or error}", reason="no_reply") from None
        except (ValueError, refusal) as error:
            raise RefusedRequest(f"{self.model}: vLLM refuses the request: {error}") from None

    async def _lora(self, path: str) -> Any:
        """An adapter, which is loaded here before its first request: one that cannot be loaded in a request ends the engine."""
        lora = self._loras[path]
        if path not in self._added:
            try:
                await self._adding(path, lambda: self._loaded[0].add_lora(lora))
            except Exception as error:  # of no closer class
                raise CheckpointError(f"{path}: vLLM cannot load this adapter on {self.model} ({_reason(error)}).") from None
            self._added.add(path)
        return lora

    async def close(self) -> None:
        """Free the model. Without it, the model is freed with this object or when the process ends."""
        self._free()


def _shut_down(loaded: list[Any]) -> None:
    while loaded:
        loaded.pop().shutdown()


def check_vllm(keys: VllmKeys, key: str) -> None:
    """Raise RecipeError, about the recipe's `key` that asks for vLLM, if it is not installed or a launcher started several processes."""
    if getattr(find_spec("vllm"), "origin", None) is None:  # a mere folder of this name has none
        raise keys.fault(key, f"vLLM is not installed. Install it: {install_extra('vllm')}")
    if (processes := num_processes()) > 1:
        raise keys.fault(
            key, f"each of {processes} processes would load vLLM on the same GPUs. Start one, and set tensor_parallel, or run shards."
        )


def check_base(base: str) -> None:
    """Raise CheckpointError unless the checkpoint is a whole decoder."""
    if read_adapter_config(base) is not None:
        raise CheckpointError(
            f"{base}: is an adapter, and vLLM loads whole models. Merge it (refinery merge {base} --output DIR) and name that folder."
        )
    if (family := checkpoint_family(base)) != "causal":
        raise CheckpointError(f"{base}: is a {family} model, and vLLM is used for decoders only. Use `engine: transformers`.")


def adapters_tokenizer(base: str, adapters: Mapping[str, str], chat_template: str) -> Tokenizer:
    """The tokenizer of a base and its adapters by role. Raises CheckpointError for an adapter that vLLM cannot add to its base."""
    tokenizer = load_tokenizer(base, chat_template)
    for path in adapters.values():
        config = read_adapter_config(path)
        if config is None:
            raise CheckpointError(f"{path}: no adapter_config.json, so it is not an adapter. Name the output_dir of a LoRA run.")
        own = load_tokenizer(path, chat_template) if read_small_json(path, "tokenizer_config.json") else tokenizer
        reasons = {
            "trains token rows": config.get("trainable_token_indices") or len(own) > len(tokenizer),
            "is a DoRA adapter": config.get("use_dora"),
            "is an activated adapter": config.get("alora_invocation_tokens"),
        }
        if reason := next((reason for reason, applies in reasons.items() if applies), None):
            raise CheckpointError(
                f"{path}: {reason}, which vLLM does not add to a base. Merge it (refinery merge {path} --output DIR) and name that folder "
                "as the `base` of a model of its own."
            )
        tokenizer = own
    for path in adapters.values():
        check_template(path, tokenizer)  # the last adapter's tokenizer serves all of them
    return tokenizer


def start_engine(model: str, keys: VllmKeys, *, dtype: str = "auto", adapters: Sequence[str] = (), settings: dict[str, Any]) -> VllmEngine:
    """Load a model with adapters. `settings` are `vllm.AsyncEngineArgs`'s. Raises LLMError when vLLM cannot start."""
    for name, value in _ENVIRONMENT.items():
        os.environ.setdefault(name, value)
    vllm, async_llm = import_module("vllm"), import_module("vllm.v1.engine.async_llm").AsyncLLM
    lora_request, any_error = import_module("vllm.lora.request").LoRARequest, import_module("vllm.exceptions").VLLMError
    loras = {path: lora_request(path, number, os.path.abspath(small_files(path))) for number, path in enumerate(adapters, 1)}
    dtype = _stored_dtype(model) if dtype == "auto" else dtype
    try:
        arguments = _engine_arguments(vllm, model, _arguments(model, keys) | _lora_arguments(adapters) | {"dtype": dtype} | settings, keys)
        with ThreadPoolExecutor(1) as thread:  # where no event loop runs, which the engine would take for its own
            engine = thread.submit(async_llm.from_engine_args, arguments).result()
    except (OSError, RuntimeError, ValueError, any_error) as error:
        raise LLMError(f"{model}: vLLM cannot start ({_reason(error)}). Its own messages are above.") from error
    shut_down_on_sigterm()
    return VllmEngine(engine, model, loras)


def _engine_arguments(vllm: Any, model: str, ours: dict[str, Any], keys: VllmKeys) -> Any:
    """vLLM's arguments, with the recipe's own last. Raises LLMError for one that this vLLM does not have."""
    known = {field.name for field in dataclasses.fields(vllm.AsyncEngineArgs)}
    if unknown := sorted(keys.engine_args.keys() - known):
        raise LLMError(f"{model}: engine_args: the installed vLLM has no '{unknown[0]}'. Leave it out, or install another version.")
    return vllm.AsyncEngineArgs(**ours | keys.engine_args)


def shut_down_on_sigterm() -> None:
    """Let a SIGTERM end the process as an interrupt does, because vLLM's own processes outlive one that just dies, with the GPU's memory.

    Only the main thread can do this, and only where nothing else handles the signal.
    """
    if threading.current_thread() is threading.main_thread() and signal.getsignal(signal.SIGTERM) is signal.SIG_DFL:
        signal.signal(signal.SIGTERM, lambda number, _: sys.exit(128 + number))


def _arguments(model: str, keys: VllmKeys) -> dict[str, Any]:
    name, revision = split_revision(model)
    return {
        "model": name,
        "revision": revision,
        "tokenizer_revision": revision,
        "tensor_parallel_size": keys.tensor_parallel,
        "gpu_memory_utilization": keys.gpu_memory_utilization,
        "max_model_len": keys.max_model_len,
        "enable_prefix_caching": True,
        "max_logprobs": -1,  # a decoder may have more labels than the 20 that vLLM allows
        "enforce_eager": _on_cpu(),  # compiling takes longer there than it saves
    }


def _stored_dtype(model: str) -> str:
    """The dtype of the stored weights; vLLM's own `auto` would round float32 to half precision."""
    config = read_small_json(model, "config.json") or {}
    config = config.get("text_config") or config
    return "float32" if (config.get("dtype") or config.get("torch_dtype")) == "float32" else "auto"


def _lora_arguments(paths: Sequence[str]) -> dict[str, Any]:
    if not paths:
        return {}
    configs = [read_adapter_config(path) or {} for path in paths]
    rank = max(rank for config in configs for rank in (config["r"], *(config.get("rank_pattern") or {}).values()))
    # On CPU, a request without an adapter takes the last place's when others in its batch have one (vllm-project/vllm#48421), so that
    # place stays empty.
    places = len(paths) + _on_cpu()
    return {"enable_lora": True, "max_loras": places, "max_lora_rank": min(known for known in _LORA_RANKS if known >= rank)}


def _on_cpu() -> bool:
    return import_module("vllm.platforms").current_platform.is_cpu()


def _reason(error: Exception) -> str:
    """The last line of vLLM's message, which for a wrong argument begins with a heading."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip() and not line.strip().startswith("For further information")]
    return lines[-1].partition(" [type=")[0] if lines else type(error).__name__
