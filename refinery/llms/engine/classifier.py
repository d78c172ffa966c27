"""Encoder classifiers (BERT and similar) as an `LLM` that only gives label probabilities: one forward pass per judgment.

An encoder reads the question and the passage as a pair, without the prompt's instruction. If the pair is too long, the end of the
passage is cut first, and the cuts are counted.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NoReturn

from refinery.contract.plain_text import plain_text_tokenizer
from refinery.contract.segments import Segment
from refinery.contract.tokenizer import Tokenizer
from refinery.errors import IncapableModelError
from refinery.llms.base import Counters, Usage
from refinery.llms.weights.families import head_labels
from refinery.prompts.render import Prompt
from refinery.runtime.concurrency.batching import Batcher, chunks, in_thread
from refinery.runtime.observe import telemetry
from refinery.runtime.observe.telemetry import IN_PROCESS

if TYPE_CHECKING:
    from peft import PeftModel
    from transformers import PreTrainedModel


def encode_pair(question: str, passage: str, tokenizer: Tokenizer, *, max_length: int | None = None) -> dict[str, list[int]]:
    """Model inputs of a question and a passage ("" for none), as plain text. The passage is cut to `max_length`, then the question."""
    tokenizer = plain_text_tokenizer(tokenizer)
    texts = (question, passage) if passage else (question,)
    encoded = tokenizer(*texts, split_special_tokens=True, verbose=False)
    if max_length is None or len(encoded["input_ids"]) <= max_length:
        return dict(encoded)
    alone = len(tokenizer(question, "", split_special_tokens=True)["input_ids"])
    truncation = "only_second" if passage and alone < max_length else "longest_first"
    return dict(tokenizer(*texts, split_special_tokens=True, truncation=truncation, max_length=max_length))


@dataclass(frozen=True, slots=True)
class _Request:
    question: str
    passage: str


class ClassifierLLM:
    """An `LLM` over an encoder with a classification head. `shortened` counts the judgments whose input was cut."""

    context_limit = None  # it shortens its input itself

    def __init__(self, model: "PreTrainedModel | PeftModel", tokenizer: Tokenizer, *, kv_tokens: int = 65_536) -> None:
        self.tokenizer = self.token_counter = tokenizer
        self.counters = Counters()
        self.shortened = 0
        self.name = str(model.config._name_or_path)
        self.labels = head_labels(model)
        self._model, self._budget = model.eval(), kv_tokens
        self._device = next(model.parameters()).device
        self._batches = Batcher(in_thread(self._process))

    def context(self, prompt: str | Sequence[Segment], *, usage: Usage | None = None) -> "ClassifierContext":
        """See `LLM.context`. Raises IncapableModelError for a prompt other than a judge's, because an encoder reads its pair of texts."""
        if not isinstance(prompt, Prompt) or prompt.pair is None:
            self.refuse("read this prompt")
        return ClassifierContext(self, prompt.pair, usage or Usage())

    async def submit(self, request: _Request, usage: Usage) -> dict[str, float]:
        """Wait for the probability of each of the model's labels."""
        usage.calls += 1
        work = self._batches(request)
        probs, num_tokens = await telemetry.call("classification", IN_PROCESS, self.name, work, lambda result: (result[1], 0))
        usage.prefill_tokens += num_tokens
        return probs

    def _process(self, batch: Sequence[_Request]) -> list[Any]:
        """(label probabilities, tokens) of each request, or the error that prevented them."""
        from refinery.llms.engine.out_of_memory import in_halves

        rows = [self._encode(request) for request in batch]
        results: list[Any] = [None] * len(rows)
        for group in chunks([len(row["input_ids"]) for row in rows], self._budget):
            for i, result in zip(group, in_halves(self._judge, [rows[i] for i in group]), strict=True):
                results[i] = result
        return results

    def _judge(self, rows: Sequence[dict[str, list[int]]]) -> list[tuple[dict[str, float], int]]:
        import torch

        inputs = self.tokenizer.pad(list(rows), return_tensors="pt").to(self._device)
        with torch.no_grad():  # not inference_mode: the model may be one in training, and ZeRO-3 keeps what it gathers
            logits = self._model(**inputs).logits  # (rows, labels)
        self.counters.forwards += 1
        self.counters.batch_sizes.append(len(rows))
        lengths = [len(row["input_ids"]) for row in rows]
        self.counters.prefill_tokens += sum(lengths)
        probs = torch.softmax(logits.float(), dim=-1).tolist()
        return [(dict(zip(self.labels, of_row, strict=True)), length) for of_row, length in zip(probs, lengths, strict=True)]

    def _encode(self, request: _Request) -> dict[str, list[int]]:
        whole = encode_pair(request.question, request.passage, self.tokenizer)
        if len(whole["input_ids"]) <= self.tokenizer.model_max_length:
            return whole
        self.shortened += 1
        return encode_pair(request.question, request.passage, self.tokenizer, max_length=self.tokenizer.model_max_length)

    def refuse(self, what: str) -> NoReturn:
        """Raise IncapableModelError for something that an encoder cannot do."""
        raise IncapableModelError(
            f"{self.name}: is an encoder that distinguishes {' from '.join(self.labels)}; it cannot {what}. "
            "Give this role a causal or T5 checkpoint, or an endpoint."
        )


class ClassifierContext:
    """An immutable prompt of a judge."""

    def __init__(self, llm: ClassifierLLM, pair: tuple[str, str], usage: Usage) -> None:
        self._llm, self._pair, self._usage = llm, pair, usage

    @property
    def token_ids(self) -> list[int]:
        """The prompt's tokens as the encoder reads them."""
        return encode_pair(*self._pair, self._llm.tokenizer, max_length=self._llm.tokenizer.model_max_length)["input_ids"]

    def extend(self, segments: Sequence[Segment]) -> NoReturn:
        """Raises IncapableModelError, because an encoder reads only a judge's prompt."""
        self._llm.refuse("read on after a prompt")

    @property
    def ends_its_turns(self) -> bool:
        """See `Context.ends_its_turns`. An encoder writes no replies."""
        return True

    def ask_next(self, text: str) -> NoReturn:
        """Raises IncapableModelError, because an encoder has no turns."""
        self._llm.refuse("reply")

    async def label_probs(self, labels: Sequence[str], *, adapter: str | None = None) -> dict[str, float]:
        """See `Context.label_probs`.

        Raises IncapableModelError for labels that the encoder was not trained on.
        """
        assert adapter is None, "an encoder has no adapters by role"
        if unknown := [label.strip() for label in labels if label.strip() not in self._llm.labels]:
            self._llm.refuse(f"read {' or '.join(unknown)}")
        probs = await self._llm.submit(_Request(*self._pair), self._usage)
        total = sum(probs[label.strip()] for label in labels)
        return {label: probs[label.strip()] / total for label in labels}

    async def generate(self, **options: Any) -> NoReturn:
        """Raises IncapableModelError, because an encoder cannot write."""
        self._llm.refuse("write text")

    async def score(self, segments: Sequence[Segment], **options: Any) -> NoReturn:
        """Raises IncapableModelError, because an encoder has no probabilities of text."""
        self._llm.refuse("score text")
