"""The completions engine over vLLM in this process: a completion request becomes vLLM's sampling parameters, and its output the reply.

Everything else is that of `served/completions.py`: contexts, a tree's requests, label reads and scores. There is nothing to probe,
because all that a completions server may lack is at hand here.
"""

from collections.abc import Mapping
from hashlib import sha256
from typing import Any, cast

from refinery.llms.served.completions.api import CompletionReply, CompletionRequest
from refinery.llms.served.completions.capabilities import Capabilities
from refinery.llms.served.completions.llm import CompletionsLLM
from refinery.llms.served.endpoint import RefusedRequest, ServedModelConfig
from refinery.llms.served.wire.responses import RetryableFault, finished
from refinery.llms.vllm.engine import VllmEngine, adapters_tokenizer, check_base, check_vllm, start_engine
from refinery.llms.vllm.keys import VllmKeys
from refinery.runtime.observe import telemetry

# Of a request's values, those that vLLM's engine has under the same name. The others shape JSON.
_PARAMETERS = ("stop", "stop_token_ids", "skip_special_tokens", "logprobs", "logprob_token_ids", "prompt_logprobs")


def vllm_llm(base: str, adapters: Mapping[str, str], keys: VllmKeys, *, dtype: str, chat_template: str, seed: int) -> CompletionsLLM:
    """The LLM over a checkpoint and its adapters by role.

    Raises RecipeError without vLLM, CheckpointError for a checkpoint that it cannot serve, LLMError when it does not start.
    """
    check_vllm(keys, "engine")
    check_base(base)
    tokenizer = adapters_tokenizer(base, adapters, chat_template)
    # Nothing of the model's own generation_config.json: decoders set what they need, and end replies where our engine does.
    settings = {"seed": seed, "generation_config": "vllm"}
    engine = start_engine(base, keys, dtype=dtype, adapters=list(dict.fromkeys(adapters.values())), settings=settings)
    config = ServedModelConfig(model=base, tokenizer=base, adapters=dict(adapters), max_tokens=engine.context_limit)
    return CompletionsLLM(config, tokenizer, _capabilities(engine, adapters), VllmCompletions(engine, seed))


def _capabilities(engine: VllmEngine, adapters: Mapping[str, str]) -> Capabilities:
    return Capabilities(
        token_id_prompts=True,
        token_ids_returned=True,
        control_tokens=True,
        stop_token_ids=True,
        logprobs=True,
        label_logprobs="logprob_token_ids",
        raw_label_reads=True,
        label_reads_while_writing=True,
        text_scores="prompt_logprobs",
        cached_tokens=True,
        adapters=tuple(adapters.values()),
        context_limit=engine.context_limit,
    )


class VllmCompletions:
    """Answers completion requests, as an endpoint's client does. `seed` draws the samples, another for each sample of each question."""

    def __init__(self, engine: VllmEngine, seed: int) -> None:
        self._engine, self._seed = engine, seed

    async def reply(self, request: CompletionRequest) -> CompletionReply:
        """The completion. Raises the errors of `VllmEngine.write`."""
        adapter = None if request.model == self._engine.model else request.model
        work = self._engine.write(cast("list[int]", request.prompt), parameters_of(request, self._seed), adapter=adapter)
        output = await telemetry.call("text_completion", telemetry.IN_PROCESS, self._engine.model, work, _tokens, adapter)
        try:
            return finished(completion_of(output, request))
        except RetryableFault as fault:
            raise RefusedRequest(f"{self._engine.model}: {fault.message}", reason="no_reply") from None

    async def close(self) -> None:
        """Free the model."""
        await self._engine.close()


def parameters_of(request: CompletionRequest, seed: int) -> dict[str, Any]:
    """A completion request's parameters in vLLM's engine."""
    values = {name: request.values[name] for name in _PARAMETERS if name in request.values}
    # A reply's text is decoded from its tokens by the one who asked.
    parameters = {"max_tokens": request.max_tokens, "temperature": request.temperature, "detokenize": "stop" in values, **values}
    # A sample's key names its question and number, so a sample does not depend on what else is in the batch.
    if bias := request.values.get("logit_bias"):
        parameters["logit_bias"] = {int(token): value for token, value in bias.items()}
    sampled = {"seed": int.from_bytes(sha256(b"%d:" % seed + request.key).digest()[:4])} if request.temperature else {}
    return parameters | sampled


def completion_of(output: Any, request: CompletionRequest) -> CompletionReply:
    """vLLM's output as the reply of a completions server that returns token ids and tells its prefix cache's hits."""
    written = output.outputs[0]
    logprobs = [{token: found.logprob for token, found in step.items()} for step in written.logprobs or ()]
    return CompletionReply(
        text=written.text,
        finish_reason=written.finish_reason or "stop",
        request_id=output.request_id,
        num_prompt_tokens=len(output.prompt_token_ids or ()),
        num_completion_tokens=len(written.token_ids),
        model=request.model,
        token_ids=list(written.token_ids),
        logprobs=[step[token] for token, step in zip(written.token_ids, logprobs, strict=True)] if logprobs else None,
        first_top_logprobs={f"token_id:{token}": value for token, value in logprobs[0].items()} if logprobs else None,
        prompt_logprobs=[step and {str(token): found.logprob for token, found in step.items()} for step in output.prompt_logprobs]
        if output.prompt_logprobs
        else None,
        num_cached_tokens=output.num_cached_tokens or 0,
    )


def _tokens(output: Any) -> tuple[int, int]:
    return len(output.prompt_token_ids or ()), len(output.outputs[0].token_ids)
