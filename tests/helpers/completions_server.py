"""A completions server on loopback over a transformers model, answering as vLLM documents it.

Token-id prompts, log-probabilities, label reads, adapters by name, and with `reloads` the routes of VLLM_SERVER_DEV_MODE.
It computes every answer by itself, one plain forward pass after the other, so that what goes through it can be compared with the engine.
`refused` parameters get status 400, `ignored` ones are overlooked, and together they make other servers of it.
"""

import asyncio
import threading
from collections.abc import Collection
from contextlib import nullcontext
from typing import Any, Self

import torch
from aiohttp import web
from safetensors.torch import load_file

BLOCK = 16  # tokens of a cached block


class CompletionsServer:
    """Serves `model` as `tiny`, and its PEFT adapters by their names. `requests` remembers every body that was sent."""

    def __init__(
        self,
        model: Any,
        tokenizer: Any,
        *,
        adapters: Collection[str] = (),
        refused: Collection[str] = (),
        ignored: Collection[str] = (),
        text_only: bool = False,
        any_model: bool = False,
        processed_logprobs: bool = False,
        max_length: int = 512,
        max_model_len: int | None = None,
        tells_cached: bool = True,
        reloads: bool = False,
    ) -> None:
        self.model, self.tokenizer, self.adapters = model.eval(), tokenizer, adapters
        self.refused, self.ignored = frozenset(refused), frozenset(ignored)
        self.text_only, self.any_model, self.processed_logprobs = text_only, any_model, processed_logprobs
        self.max_length, self.max_model_len, self.tells_cached = max_length, max_model_len, tells_cached
        self.reloads, self.reloaded = reloads, list[str]()
        self.busy = 0  # so many requests are turned away from now on
        self.requests: list[dict[str, Any]] = []
        self.seen: list[list[int]] = []
        self._loop = asyncio.new_event_loop()

    def __enter__(self) -> Self:
        ready = threading.Event()
        self._thread = threading.Thread(target=self._serve, args=(ready,), daemon=True)
        self._thread.start()
        assert ready.wait(10)
        return self

    def __exit__(self, *_: object) -> None:
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()

    def _serve(self, ready: threading.Event) -> None:
        asyncio.set_event_loop(self._loop)
        app = web.Application()
        app.router.add_post("/v1/completions", self._handle)
        app.router.add_get("/v1/models", self._models)
        if self.reloads:
            app.router.add_post("/collective_rpc", self._reload)
            app.router.add_post("/reset_prefix_cache", self._forget)
        runner = web.AppRunner(app)
        self._loop.run_until_complete(runner.setup())
        site = web.TCPSite(runner, "127.0.0.1", 0)
        self._loop.run_until_complete(site.start())
        self.base_url = f"http://127.0.0.1:{runner.addresses[0][1]}/v1"
        ready.set()
        self._loop.run_forever()
        self._loop.run_until_complete(runner.cleanup())

    async def _models(self, request: web.Request) -> web.Response:
        said = {} if self.max_model_len is None else {"max_model_len": self.max_model_len}
        return web.json_response({"object": "list", "data": [{"id": "tiny", "object": "model"} | said]})

    async def _handle(self, request: web.Request) -> web.Response:
        body = await request.json()
        self.requests.append(body)
        if self.busy:
            self.busy -= 1
            return _error(503, "too busy")
        if not self.any_model and body["model"] not in ("tiny", *self.adapters):
            return _error(404, f"The model `{body['model']}` does not exist.")
        if unknown := self.refused & body.keys():
            return _error(400, f"Unrecognized request arguments supplied: {', '.join(sorted(unknown))}")
        if self.text_only and not isinstance(body["prompt"], str):
            return _error(400, "prompt must be a string.")
        if len(self._ids(body["prompt"])) + body["max_tokens"] > self.max_length:
            return _error(400, f"This model's maximum context length is {self.max_length} tokens.")
        known = {name: value for name, value in body.items() if name not in self.ignored}
        with torch.inference_mode(), self._adapter(body["model"]):
            return web.json_response(self._complete(known))

    async def _reload(self, request: web.Request) -> web.Response:
        body = await request.json()
        assert body["method"] == "reload_weights"
        folder = body["kwargs"]["weights_path"]
        weights = load_file(f"{folder}/model.safetensors")
        missing, unexpected = self.model.load_state_dict(weights, strict=False)
        if unexpected or set(missing) - self.model.all_tied_weights_keys.keys():
            return _error(500, f"missing {missing}, unexpected {unexpected}")
        self.reloaded.append(folder)
        return web.json_response({"results": [None]})

    async def _forget(self, request: web.Request) -> web.Response:
        self.seen.clear()
        return web.Response()

    def _adapter(self, name: str) -> Any:
        if not self.adapters:
            return nullcontext()
        if name not in self.adapters:
            return self.model.disable_adapter()
        self.model.set_adapter(name)
        return nullcontext()

    def _complete(self, body: dict[str, Any]) -> dict[str, Any]:
        ids = self._ids(body["prompt"])
        written, logprobs, tops = self._decode(ids, body)
        special = self.tokenizer.all_special_ids if body.get("skip_special_tokens", True) else ()
        text = self.tokenizer.decode([token for token in written if token not in special])
        choice: dict[str, Any] = {"index": 0, "text": text, "finish_reason": self._finish(written, body)}
        if body.get("logprobs") is not None:
            echoed = self._prompt_logprobs(ids) if body.get("echo") else []
            choice["logprobs"] = {"token_logprobs": echoed + logprobs, "top_logprobs": [None] * len(echoed) + tops}
        if body.get("prompt_logprobs") is not None:
            values = self._prompt_logprobs(ids)
            choice["prompt_logprobs"] = [
                None if value is None else {str(token): {"logprob": value}} for token, value in zip(ids, values, strict=True)
            ]
        if body.get("return_token_ids"):
            choice |= {"token_ids": written, "prompt_token_ids": ids}
        usage = {
            "prompt_tokens": len(ids),
            "completion_tokens": len(written),
            "prompt_tokens_details": {"cached_tokens": self._cached(ids)} if self.tells_cached else None,
        }
        return {"id": f"cmpl-{len(self.requests)}", "model": body["model"], "choices": [choice], "usage": usage}

    def _ids(self, prompt: list[int] | str) -> list[int]:
        return self.tokenizer(prompt)["input_ids"] if isinstance(prompt, str) else prompt

    def _decode(self, ids: list[int], body: dict[str, Any]) -> tuple[list[int], list[float], list[dict[str, float]]]:
        written: list[int] = []
        logprobs: list[float] = []
        tops: list[dict[str, float]] = []
        cache, fed = None, ids
        while len(written) < body["max_tokens"]:
            output = self.model(input_ids=torch.tensor([fed]), past_key_values=cache, use_cache=True)
            cache, raw = output.past_key_values, torch.log_softmax(output.logits[0, -1].float(), dim=-1)
            processed = self._processed(raw, body)
            token = _pick(processed, body.get("temperature", 1.0))
            shown = processed if self.processed_logprobs else raw
            written.append(token)
            logprobs.append(float(shown[token]))
            tops.append(self._top(shown, token, body))
            fed = [token]
            if token in self._stops(body):
                break
        return written, logprobs, tops

    def _processed(self, raw: torch.Tensor, body: dict[str, Any]) -> torch.Tensor:
        logits = raw.clone()
        for token, bias in body.get("logit_bias", {}).items():
            logits[int(token)] += bias
        if allowed := body.get("allowed_token_ids"):
            others = torch.ones_like(logits, dtype=torch.bool)
            others[allowed] = False
            logits[others] = -torch.inf
        return torch.log_softmax(logits, dim=-1)

    def _top(self, shown: torch.Tensor, token: int, body: dict[str, Any]) -> dict[str, float]:
        asked = body.get("logprob_token_ids") or shown.topk(body.get("logprobs") or 1).indices.tolist()
        by_id = body.get("return_tokens_as_token_ids")
        return {f"token_id:{i}" if by_id else self.tokenizer.decode([i]): float(shown[i]) for i in (token, *asked)}

    def _prompt_logprobs(self, ids: list[int]) -> list[float | None]:
        logprobs = torch.log_softmax(self.model(input_ids=torch.tensor([ids])).logits[0].float(), dim=-1)
        return [None, *logprobs[:-1].gather(-1, torch.tensor(ids[1:])[:, None])[:, 0].tolist()]

    def _stops(self, body: dict[str, Any]) -> set[int]:
        return {self.tokenizer.eos_token_id, *body.get("stop_token_ids", ())}

    def _finish(self, written: list[int], body: dict[str, Any]) -> str:
        return "stop" if written and written[-1] in self._stops(body) else "length"

    def _cached(self, ids: list[int]) -> int:
        """Whole blocks of the longest prefix that was seen before."""
        longest = max((_shared(ids, other) for other in self.seen), default=0)
        self.seen.append(ids)
        return longest // BLOCK * BLOCK


def _pick(logprobs: torch.Tensor, temperature: float) -> int:
    if temperature == 0:
        return int(logprobs.argmax())
    return int(torch.multinomial(torch.softmax(logprobs / temperature, dim=-1), 1))


def _shared(ids: list[int], other: list[int]) -> int:
    return next((at for at, (one, two) in enumerate(zip(ids, other, strict=False)) if one != two), min(len(ids), len(other)))


def _error(status: int, message: str) -> web.Response:
    return web.json_response({"error": {"message": message, "code": status}}, status=status)
