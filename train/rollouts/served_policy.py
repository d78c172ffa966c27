"""The model in training on vLLM servers, which sample from it: before they do, they read its weights again, from a folder.

A folder serves any number of servers, whole or split over GPUs, and no group of processes has to span training and serving.
"""

import json
import os
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import torch
from accelerate import PartialState
from safetensors.torch import save_file

from refinery.contract.segments import Segment
from refinery.contract.tokenizer import Tokenizer
from refinery.errors import LLMError
from refinery.llms.base import Need
from refinery.llms.served.completions.capabilities import Capabilities, probe
from refinery.llms.served.completions.llm import CompletionsLLM
from refinery.llms.served.endpoint import ServedModelConfig
from refinery.llms.served.protocols.base import protocol_of
from refinery.llms.served.transport.http import HttpSession
from refinery.llms.served.wire.lenient_json import one_line
from refinery.llms.served.wire.responses import Response, RetryableFault
from refinery.llms.weights.merged_weights import merged_weights
from refinery.runtime.concurrency.background_loop import run_in_background
from train.rollout_settings import PolicyServer
from train.settings import TrainSettings

if TYPE_CHECKING:
    from peft import PeftModel
    from transformers import PreTrainedModel

_NEEDS: frozenset[Need] = frozenset(("token_ids", "control_tokens", "stop_token_ids", "logprobs", "scores"))
# What vLLM would take from the model's own generation_config.json, and what of it changes the probabilities that are trained.
_NO_FILTERS: dict[str, Any] = {"top_k": -1, "min_p": 0.0, "repetition_penalty": 1.0}
_BEGUN, _REST = "The capital of France", " is Paris. Who wrote the novel, and in which year was its author born?"
# Half-precision kernels differ by hundredths; another model, or the weights of another run, by whole units.
_SAME_WEIGHTS = 0.2


class ServedPolicy:
    """The recipe's `rollouts.server`, which answers for the model in training."""

    def __init__(self, server: PolicyServer, recipe: TrainSettings) -> None:
        self._server, self._dtype, self._max_length = server, getattr(torch, recipe.dtype), recipe.max_length
        self._folder = (server.weights or recipe.output_dir / "checkpoints" / "policy").absolute()
        self._config = ServedModelConfig(
            **server.model_dump(exclude={"weights"}), max_tokens=recipe.max_length, top_p=1.0, extra_body=_NO_FILTERS
        )
        self._able: Capabilities | None = None

    def llm(self, model: "PreTrainedModel | PeftModel", tokenizer: Tokenizer) -> CompletionsLLM:
        """The servers as an LLM, with the weights that the model has now. Collective: the first process sends them.

        Raises LLMError when a server does not take them, or afterwards gives other log-probabilities than the model.
        """
        with PartialState().main_process_first():
            if PartialState().is_main_process:
                self._write(model)
                run_in_background(self._tell())
        if self._able is None:
            able = run_in_background(probe(self._config, tokenizer))
            self._able = replace(able, context_limit=min(self._max_length, able.context_limit or self._max_length))
        llm = CompletionsLLM(self._config, tokenizer, self._able)
        llm.require("grpo", _NEEDS)
        self._compare(llm, model, tokenizer)
        return llm

    def _write(self, model: "PreTrainedModel | PeftModel") -> None:
        self._folder.mkdir(parents=True, exist_ok=True)
        partial = self._folder / "model.partial"
        save_file(merged_weights(model, self._dtype), partial, metadata={"format": "pt"})
        os.replace(partial, self._folder / "model.safetensors")

    async def _tell(self) -> None:
        """Let every server read the weights and forget what it has computed with others."""
        http = HttpSession()
        try:
            for base_url in self._config.base_urls:
                address = protocol_of(self._config).address(self._config, base_url)
                root = address.base.removesuffix("/v1")
                for route, body in (
                    ("collective_rpc", {"method": "reload_weights", "kwargs": {"weights_path": str(self._folder)}}),
                    ("reset_prefix_cache", {}),
                ):
                    await self._post(http, f"{root}/{route}", body, address.headers)
        finally:
            await http.close()

    async def _post(self, http: HttpSession, url: str, body: dict[str, Any], headers: dict[str, str]) -> None:
        seconds = self._server.timeout_seconds
        try:
            response = await http.post(url, json.dumps(body).encode(), {"Content-Type": "application/json", **headers}, seconds=seconds)
        except RetryableFault as fault:
            raise LLMError(f"{url}: {fault.message}. Is the vLLM server of rollouts.server up?") from None
        if response.status >= 300:
            raise LLMError(f"{url}: {self._refusal(response)}")

    def _refusal(self, response: Response) -> str:
        if response.status == 404:
            return "the server has no such route. Start vLLM with VLLM_SERVER_DEV_MODE=1."
        said = one_line(response.content)
        return f"the server cannot read the weights in {self._folder} (status {response.status}: {said}). Does it see this folder?"

    def _compare(self, llm: CompletionsLLM, model: "PreTrainedModel | PeftModel", tokenizer: Tokenizer) -> None:
        """Raise LLMError unless servers and model read a sentence alike."""
        begun = llm.context([Segment(_BEGUN, "prompt")])
        rest = [Segment(_REST, "prompt")]
        told = run_in_background(begun.score(rest))
        found = _logprobs(model, begun.extend(rest).token_ids)[-len(told) :]
        difference = (torch.tensor(told) - found).abs().mean().item()
        if difference > _SAME_WEIGHTS:
            raise LLMError(
                f"{self._config.base_url}: model '{self._config.model}' gives other log-probabilities than the model in training (by"
                f" {difference:.2f} on average). Serve the base of this recipe."
            )


def _logprobs(model: "PreTrainedModel | PeftModel", token_ids: list[int]) -> torch.Tensor:
    """Of every token but the first, (tokens - 1,), on the CPU."""
    ids = torch.tensor([token_ids], device=next(model.parameters()).device)
    training = model.training
    model.eval()
    with torch.no_grad():
        logits = model(input_ids=ids).logits[0, :-1].float()
    model.train(training)
    return torch.log_softmax(logits, -1).gather(-1, ids[0, 1:, None])[:, 0].cpu()
