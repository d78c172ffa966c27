"""Encoder-decoder checkpoints (T5, Flan-T5) as an `LLM`: the encoder reads the whole context, and the decoder writes the continuation.

An extended context is encoded anew, because every token of an encoder sees every other, so prefixes cannot be shared. A trajectory's
current step belongs to the decoder, beginning with the control token that opens it, as in training (train/families/seq2seq.py). It moves to
the encoder once other text follows.
"""

from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, cast

from refinery.contract.control_tokens import OPENING
from refinery.contract.segments import Segment, control_token_id, encode_segment
from refinery.contract.tokenizer import Tokenizer
from refinery.llms.base import Counters, Generation, GenerationOptions, TokenContext, Usage
from refinery.runtime.concurrency.batching import Batcher, chunks, in_thread
from refinery.runtime.observe import telemetry
from refinery.runtime.observe.telemetry import IN_PROCESS

if TYPE_CHECKING:
    from peft import PeftModel
    from transformers import PreTrainedModel


@dataclass(frozen=True, slots=True)
class _Request:
    """A decoder's request, for an encoder that reads `input_ids` and their end token.

    It asks either for up to `max_new_tokens` tokens after `decoder_ids`, or for the log-probabilities of the tokens `wanted[i]` after the
    first i decoder tokens.
    """

    input_ids: tuple[int, ...]
    adapter: str | None
    decoder_ids: tuple[int, ...] = ()
    wanted: tuple[tuple[int, ...], ...] = ()
    max_new_tokens: int = 0
    stop_ids: frozenset[int] = frozenset()
    temperature: float = 0.0

    def tokens(self, result: Any) -> tuple[int, int]:
        """The number of tokens that the encoder read, and the number that were written."""
        return len(self.input_ids), len(result[0]) if self.max_new_tokens else 0


class Seq2SeqLLM:
    """An `LLM` over a transformers encoder-decoder, with named PEFT adapters. `kv_tokens` is the maximum of a batch's rows x length."""

    context_limit = None  # T5's positions are relative

    def __init__(
        self,
        model: "PreTrainedModel | PeftModel",
        tokenizer: Tokenizer,
        *,
        adapters: Sequence[str] = (),
        kv_tokens: int = 65_536,
        seed: int = 0,
    ) -> None:
        import torch

        self.tokenizer = self.token_counter = tokenizer
        self.counters = Counters()
        self.name = str(model.config._name_or_path)
        self._model = model.eval()
        self._adapters, self._budget = tuple(adapters), kv_tokens
        self._device = next(model.parameters()).device
        self._generator = torch.Generator(device=self._device).manual_seed(seed)
        self._batches = Batcher(in_thread(self._process))

    def context(self, prompt: str | Sequence[Segment], *, usage: Usage | None = None) -> "Seq2SeqContext":
        """See `LLM.context`. T5 has no BOS."""
        segments = [Segment(prompt, "prompt")] if isinstance(prompt, str) else prompt
        return Seq2SeqContext(self, (), usage or Usage()).extend(segments)

    async def submit(self, request: _Request, usage: Usage) -> Any:
        """Wait for the request's result. The encoder's input tokens count as its prefill."""
        usage.calls += 1
        usage.prefill_tokens += len(request.input_ids)
        return await telemetry.call("text_completion", IN_PROCESS, self.name, self._batches(request), request.tokens, request.adapter)

    def _process(self, batch: Sequence[_Request]) -> list[Any]:
        import torch

        from refinery.llms.engine.out_of_memory import in_halves

        results: list[Any] = [None] * len(batch)
        with torch.no_grad():  # not inference_mode: the model may be one in training, and ZeRO-3 keeps what it gathers
            for adapter, *kind in dict.fromkeys(map(_kind, batch)):
                rows = [i for i, request in enumerate(batch) if _kind(request) == (adapter, *kind)]
                lengths = [len(batch[i].input_ids) + len(batch[i].decoder_ids) + batch[i].max_new_tokens for i in rows]
                with self._active(adapter):
                    for group in chunks(lengths, self._budget):
                        picked = [rows[position] for position in group]
                        served = in_halves(self._write if batch[rows[0]].max_new_tokens else self._read, [batch[i] for i in picked])
                        for i, result in zip(picked, served, strict=True):
                            results[i] = result
        return results

    def _active(self, adapter: str | None) -> AbstractContextManager[Any]:
        if not self._adapters:
            return nullcontext()
        if adapter is None:
            return cast("PeftModel", self._model).disable_adapter()
        self._model.set_adapter(adapter)
        return nullcontext()

    def _read(self, rows: Sequence[_Request]) -> list[list[list[float]]]:
        """Log-probabilities of each row's wanted tokens, position by position."""
        import torch

        start = self._model.config.decoder_start_token_id
        encoded, mask = self._encode(rows)
        width = max(len(row.decoder_ids) for row in rows)
        decoder_ids = [[start, *row.decoder_ids] + [start] * (width - len(row.decoder_ids)) for row in rows]
        self.counters.forwards += 1
        logits = self._model(
            encoder_outputs=encoded, attention_mask=mask, decoder_input_ids=torch.tensor(decoder_ids, device=self._device)
        ).logits  # (rows, width + 1, vocab)
        logprobs = torch.log_softmax(logits.float(), dim=-1)
        return [[logprobs[i, position, list(wanted)].tolist() for position, wanted in enumerate(row.wanted)] for i, row in enumerate(rows)]

    def _write(self, rows: Sequence[_Request]) -> list[tuple[list[int], list[float], bool]]:
        """Each row's new tokens, their raw log-probabilities, and whether the last one is a stop token."""
        import torch

        encoded, mask = self._encode(rows)
        token_ids: list[list[int]] = [[] for _ in rows]
        token_logprobs: list[list[float]] = [[] for _ in rows]
        stopped = [False] * len(rows)
        start = self._model.config.decoder_start_token_id
        last = torch.tensor([[start, *row.decoder_ids] for row in rows], device=self._device)  # all of one length
        cache: Any = None
        while live := [
            i for i, row in enumerate(rows) if not stopped[i] and len(token_ids[i]) < row.max_new_tokens
        ]:  # finished rows stay in the batch, and their further tokens are dropped
            self.counters.forwards += 1
            output = self._model(
                encoder_outputs=encoded, attention_mask=mask, decoder_input_ids=last, past_key_values=cache, use_cache=True
            )
            cache = output.past_key_values
            logprobs = torch.log_softmax(output.logits[:, -1].float(), dim=-1)  # (rows, vocab)
            last = self._pick(logprobs, rows)
            taken = logprobs.gather(-1, last)[:, 0].tolist()
            for i in live:
                token = int(last[i, 0])
                token_ids[i].append(token)
                token_logprobs[i].append(taken[i])
                stopped[i] = token in rows[i].stop_ids
        self.counters.decode_tokens += sum(map(len, token_ids))
        return list(zip(token_ids, token_logprobs, stopped, strict=True))

    def _pick(self, logprobs: Any, rows: Sequence[_Request]) -> Any:
        import torch

        tokens = logprobs.argmax(-1, keepdim=True)
        for i, row in enumerate(rows):
            if row.temperature > 0:
                tokens[i] = torch.multinomial(torch.softmax(logprobs[i] / row.temperature, dim=-1), 1, generator=self._generator)
        return tokens

    def _encode(self, rows: Sequence[_Request]) -> tuple[Any, Any]:
        """The encoder's output and the attention mask (rows, width)."""
        import torch

        width = max(len(row.input_ids) for row in rows) + 1
        ids = torch.full((len(rows), width), self.tokenizer.pad_token_id, device=self._device)
        mask = torch.zeros_like(ids)
        for i, row in enumerate(rows):
            length = len(row.input_ids) + 1
            ids[i, :length] = torch.tensor([*row.input_ids, self.tokenizer.eos_token_id], device=self._device)
            mask[i, :length] = 1
        self.counters.prefill_tokens += int(mask.sum())
        self.counters.batch_sizes.append(len(rows))
        return self._model.get_encoder()(input_ids=ids, attention_mask=mask), mask


def _kind(request: _Request) -> tuple[str | None, bool, int]:
    """The properties that requests of one batch share; those that write begin after the same number of tokens."""
    return request.adapter, bool(request.max_new_tokens), len(request.decoder_ids) if request.max_new_tokens else 0


class Seq2SeqContext(TokenContext[Seq2SeqLLM]):
    """The encoder's input, and the decoder's part of an unfinished step; immutable."""

    def __init__(self, llm: Seq2SeqLLM, encoder_ids: tuple[int, ...], usage: Usage, step_ids: tuple[int, ...] = ()) -> None:
        self._llm, self._encoder_ids, self._usage, self._step_ids = llm, encoder_ids, usage, step_ids

    @property
    def token_ids(self) -> list[int]:
        """See `Context.token_ids`; without the end token that is added to the encoder's input."""
        return [*self._encoder_ids, *self._step_ids]

    def extend(self, segments: Sequence[Segment]) -> "Seq2SeqContext":
        """See `Context.extend`."""
        context = self
        for segment in segments:
            token_ids = tuple(encode_segment(segment, self._llm.tokenizer))
            opens = segment.kind == "control_token" and segment.text in OPENING
            read = (*context.token_ids, *(() if opens else token_ids))
            context = Seq2SeqContext(self._llm, read, self._usage, token_ids if opens else ())
        return context

    @property
    def ends_its_turns(self) -> bool:
        """See `Context.ends_its_turns`."""
        return True

    def ask_next(self, text: str) -> "Seq2SeqContext":
        """See `Context.ask_next`."""
        return self.extend([Segment(f"\n{text}\n", "prompt")])

    async def _generate(self, options: GenerationOptions) -> Generation:
        """See `Context.generate`. T5 models are trained to end their replies, so stop texts are ignored.

        Raises CheckpointError when a stop token is not in the tokenizer.
        """
        tokenizer = self._llm.tokenizer
        stop_ids = frozenset({tokenizer.eos_token_id, *(control_token_id(token, tokenizer) for token in options.stop)})
        request = _Request(self._encoder_ids, options.adapter, self._step_ids, (), options.max_new_tokens, stop_ids, options.temperature)
        token_ids, logprobs, stopped = await self._llm.submit(request, self._usage)
        self._usage.decode_tokens += len(token_ids)
        return Generation(
            text=tokenizer.decode(token_ids, skip_special_tokens=True).strip(),
            token_ids=token_ids,
            logprobs=logprobs,
            stopped_by="stop" if stopped else "length",
            context=self._continued(token_ids),
        )

    def _reply_text(self, label: str) -> str:
        return label

    async def _next_logprobs(self, tokens: Sequence[int], adapter: str | None) -> Sequence[float]:
        return (await self._read((), (tuple(tokens),), adapter))[0]

    async def score(self, segments: Sequence[Segment], *, adapter: str | None = None) -> list[float]:
        """See `Context.score`: the decoder scores `segments` as its output."""
        ids = [token for segment in segments for token in encode_segment(segment, self._llm.tokenizer)]
        return [logprob for (logprob,) in await self._read(ids[:-1], [(token,) for token in ids], adapter)]

    async def _read(self, ids: Sequence[int], wanted: Sequence[tuple[int, ...]], adapter: str | None) -> list[list[float]]:
        """Log-probabilities of `wanted[i]` after the first i of `ids`, which continue the current step."""
        begun = len(self._step_ids)
        request = _Request(self._encoder_ids, adapter, (*self._step_ids, *ids), (((),) * begun) + tuple(wanted))
        return (await self._llm.submit(request, self._usage))[begun:]

    def _continued(self, token_ids: Sequence[int]) -> "Seq2SeqContext":
        """The context with the written tokens: more of the current step, or text for the encoder to read."""
        if self._step_ids:
            return Seq2SeqContext(self._llm, self._encoder_ids, self._usage, (*self._step_ids, *token_ids))
        return Seq2SeqContext(self._llm, (*self._encoder_ids, *token_ids), self._usage)
