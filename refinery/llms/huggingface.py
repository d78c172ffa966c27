"""The Hugging Face engine: thousands of contexts wait, one micro-batch serves them, adapters mix in it.

A request joins a queue; when no further request arrives (every live decoder waits for something), the queue is served as one
micro-batch. Prefix sharing and batching proper live in `kv.py`, loading in `checkpoint.py`.
"""

import asyncio
import math
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

from refinery.llms.base import Counters, Generation, Usage
from refinery.llms.kv import Adapter, KvModel, Node, Row
from refinery.segments import Segment, control_token_id, encode_segment, encode_text

_SETTLE_TURNS = 3


@dataclass(frozen=True, slots=True)
class _Request:
    """What a decoder waits for: `node` computed under `adapter`, then decoded from if `max_new_tokens` is positive."""

    node: Node
    adapter: Adapter
    future: asyncio.Future[Any]
    max_new_tokens: int = 0
    stop_ids: frozenset[int] = frozenset()
    temperature: float = 0.0


class HuggingFaceLLM:
    """An `LLM` over a transformers model, with named PEFT adapters mixed in one batch.

    `kv_token_budget` bounds rows x length of a batch: a small one is slower and gives the same answers.
    """

    def __init__(self, model: Any, tokenizer: Any, *, adapters: Sequence[str] = (), kv_token_budget: int = 65_536, seed: int = 0) -> None:
        self.tokenizer = tokenizer
        self._kv = KvModel(model, adapters=adapters, kv_token_budget=kv_token_budget, seed=seed)
        self._queue: list[_Request] = []
        self._server: asyncio.Task[None] | None = None
        # One thread of its own: torch keeps one OpenMP pool per calling thread.
        self._thread = ThreadPoolExecutor(max_workers=1)

    @property
    def counters(self) -> Counters:
        """Forward passes and tokens so far."""
        return self._kv.counters

    def context(self, prompt: str | Sequence[Segment], *, usage: Usage | None = None) -> "HuggingFaceContext":
        """A fresh context, BOS first where the tokenizer has one."""
        segments = [Segment(prompt, "prompt")] if isinstance(prompt, str) else prompt
        bos = [] if self.tokenizer.bos_token_id is None else [self.tokenizer.bos_token_id]
        return HuggingFaceContext(self, Node(bos + self.token_ids(segments), None, usage or Usage()))

    def token_ids(self, segments: Sequence[Segment]) -> list[int]:
        """Token ids of segments, without BOS."""
        return [token for segment in segments for token in encode_segment(segment, self.tokenizer)]

    async def submit(self, node: Node, adapter: Adapter, **decoding: Any) -> Any:
        """Wait until the node is computed, and decoded from if `max_new_tokens` is given."""
        loop = asyncio.get_running_loop()
        request = _Request(node, adapter, loop.create_future(), **decoding)
        self._queue.append(request)
        node.usage.calls += 1
        if self._server is None or self._server.done():
            self._server = loop.create_task(self._serve())
        return await request.future

    async def _serve(self) -> None:
        loop = asyncio.get_running_loop()
        while self._queue:
            await self._settled()
            batch, self._queue = self._queue, []
            try:
                results = await loop.run_in_executor(self._thread, self._process, batch)
            except Exception as error:
                for request in batch:
                    if not request.future.done():
                        request.future.set_exception(error)
                continue
            for request, result in zip(batch, results, strict=True):
                if not request.future.done():  # a decoder that gave up has cancelled its own
                    request.future.set_result(result)

    async def _settled(self) -> None:
        """Return once a few turns of the event loop have brought no further request."""
        seen = -1
        while seen != len(self._queue):
            seen = len(self._queue)
            for _ in range(_SETTLE_TURNS):
                await asyncio.sleep(0)

    def _process(self, batch: Sequence[_Request]) -> list[Any]:
        """Serve one micro-batch on the engine's thread: compute every prefix, then decode where asked."""
        self._kv.compute([(request.node, request.adapter) for request in batch])
        decoding = [request for request in batch if request.max_new_tokens]
        decoded = iter(
            self._kv.decode(
                [Row(request.node, request.adapter) for request in decoding],
                max_new_tokens=[request.max_new_tokens for request in decoding],
                stop_ids=[request.stop_ids for request in decoding],
                temperatures=[request.temperature for request in decoding],
            )
        )
        return [next(decoded) if request.max_new_tokens else None for request in batch]

    def read(self, of: Callable[[KvModel], Any]) -> Any:
        """Read from what is computed already."""
        return of(self._kv)


class HuggingFaceContext:
    """A prefix of the engine; immutable."""

    def __init__(self, llm: HuggingFaceLLM, node: Node) -> None:
        self._llm, self._node = llm, node

    @property
    def token_ids(self) -> list[int]:
        """Every token of the context, BOS included."""
        return [token for node in self._node.chain() for token in node.token_ids]

    def extend(self, segments: Sequence[Segment]) -> "HuggingFaceContext":
        """The context that continues this one; equal extensions share their work."""
        token_ids = self._llm.token_ids(segments)
        return HuggingFaceContext(self._llm, self._node.child(token_ids)) if token_ids else self

    async def generate(
        self, *, max_new_tokens: int, stop: Sequence[str] = (), temperature: float = 0.0, adapter: str | None = None
    ) -> Generation:
        """See `Context.generate`. Raises CheckpointError when a stop token is not in the tokenizer."""
        tokenizer = self._llm.tokenizer
        stop_ids = frozenset({tokenizer.eos_token_id, *(control_token_id(token, tokenizer) for token in stop)})
        decoded = await self._llm.submit(self._node, adapter, max_new_tokens=max_new_tokens, stop_ids=stop_ids, temperature=temperature)
        return Generation(
            text=tokenizer.decode(decoded.token_ids, skip_special_tokens=True).strip(),
            token_ids=decoded.token_ids,
            logprobs=decoded.logprobs,
            stopped_by="stop" if decoded.stopped else "length",
            context=HuggingFaceContext(self._llm, decoded.node),
        )

    async def choose(self, labels: Sequence[str], *, adapter: str | None = None) -> dict[str, float]:
        """See `Context.choose`. Reads the labels' first tokens where these differ, else scores the labels whole."""
        encoded = [encode_text(label, self._llm.tokenizer) for label in labels]
        if len({ids[0] for ids in encoded}) == len(labels):
            await self._llm.submit(self._node, adapter)
            logprobs = self._llm.read(lambda kv: kv.next_logprobs(self._node, adapter))
            scores = [float(logprobs[ids[0]]) for ids in encoded]
        else:
            scores = [sum(s) for s in await asyncio.gather(*(self.score([Segment(x, "label")], adapter=adapter) for x in labels))]
        weights = [math.exp(score - max(scores)) for score in scores]
        return {label: weight / sum(weights) for label, weight in zip(labels, weights, strict=True)}

    async def score(self, segments: Sequence[Segment], *, adapter: str | None = None) -> list[float]:
        """See `Context.score`. What is scored stays computed for a context that extends this one by the same segments."""
        child = self.extend(segments)
        await self._llm.submit(child._node, adapter)
        return self._llm.read(lambda kv: kv.token_logprobs(child._node, adapter))
