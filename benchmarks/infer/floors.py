"""The ratios of the engine's time to its two lower bounds (bare.py), and the error of its log-probabilities, for trees of RQ-RAG that it
decoded."""

import copy
from collections.abc import Iterable, Mapping, Sequence
from statistics import fmean
from typing import TYPE_CHECKING, Any

from benchmarks.infer.bare import TreeSize, bare_seconds, decoding_seconds
from infer.decoders import rq_rag
from refinery.llms.engine.huggingface import HuggingFaceLLM

if TYPE_CHECKING:
    import torch
    from transformers import PreTrainedModel

Text = tuple[int, ...]
_TEXTS_COMPARED = 64
_QUESTIONS_AT_ONCE = 8  # for plain decoding, whose copies of prefixes would not fit otherwise


class RecordingLLM(HuggingFaceLLM):
    """The engine, recording every written text: the tokens before it and the written ones, by the maximum number allowed."""

    def __init__(self, *arguments: Any, **settings: Any) -> None:
        super().__init__(*arguments, **settings)
        self.written: dict[int, list[tuple[Text, Text]]] = {}
        self.logprobs: dict[Text, list[float]] = {}  # of the last tokens of a whole text

    async def submit(self, context: Any, adapter: Any, **wanted: Any) -> Any:
        """Like the engine's, with a record of the result."""
        found = await super().submit(context, adapter, **wanted)
        if limit := wanted.get("max_new_tokens"):
            before, new = tuple(context.token_ids), tuple(found.token_ids)
            self.written.setdefault(limit, []).append((before, new))
            self.logprobs[before + new] = found.logprobs
        return found


def times_floors(model: "PreTrainedModel", llm: RecordingLLM, seconds: float, options: rq_rag.Options, *, questions: int) -> dict[str, Any]:
    """The ratios to the lower bounds of `model`, which the engine has released, and the numbers of tokens that they cover."""
    queries, answers = (llm.written[limit] for limit in sorted(llm.written))  # answers may be longer
    texts = [before + new for before, new in (*queries, *answers)]
    tokens, written = distinct_tokens(texts), llm.counters.decode_tokens
    official, longest = options.fidelity == "official", max(map(len, texts))
    bare = bare_seconds(model, tokens=tokens, scored=tokens if official else written, length=longest)
    at_once = min(questions, _QUESTIONS_AT_ONCE)
    decoding = decoding_seconds(model, _size(queries, answers, options, at_once), score_all=official) * questions / at_once
    return {
        "times_bare_forward": round(seconds / bare, 2),
        "times_plain_decoding": round(seconds / decoding, 2),
        "distinct_tokens": tokens,
        "tokens_written": written,
    }


def off_float32(model: "PreTrainedModel", logprobs: Mapping[Text, Sequence[float]]) -> dict[str, float]:
    """Mean difference between the engine's log-probabilities of texts' last tokens and those of a float32 pass over the whole text; and
    the same for such a pass in the model's dtype, which is also inexact in 16 bits.
    """
    import torch

    exact = model if model.dtype == torch.float32 else copy.deepcopy(model).float()
    ours: list[float] = []
    plain: list[float] = []
    for text, found in list(logprobs.items())[:: -(-len(logprobs) // _TEXTS_COMPARED)]:
        ids = torch.tensor([text], device=model.device)
        with torch.no_grad():
            passes = [one(input_ids=ids, use_cache=False, logits_to_keep=len(found) + 1).logits[:, :-1] for one in (exact, model)]
        truth, whole = (_logprobs(logits, ids) for logits in passes)
        ours += (torch.tensor(found, device=model.device) - truth).abs().tolist()
        plain += (whole - truth).abs().tolist()
    return {"off_float32": fmean(ours), "full_pass_off_float32": fmean(plain)}


def _logprobs(logits: "torch.Tensor", ids: "torch.Tensor") -> "torch.Tensor":
    """The log-probabilities of the last tokens of `ids` (1, tokens), given their logits (1, some, vocab)."""
    return logits[0].float().log_softmax(-1).gather(1, ids[0, -logits.shape[1] :, None])[:, 0]


def _size(queries: list[tuple[Text, Text]], answers: list[tuple[Text, Text]], options: rq_rag.Options, questions: int) -> TreeSize:
    """The mean lengths of the texts. A context ends with the control token that begins the text written after it."""
    before = [len(context) - 1 for context, _ in answers]
    query, answer = (round(fmean(len(new) for _, new in texts)) for texts in (queries, answers))
    evidence = round((max(before) - min(before)) / options.max_depth) - query
    return TreeSize(questions, options.max_depth, len(options.actions), min(before), query, evidence, answer)


def distinct_tokens(texts: Iterable[Text]) -> int:
    """The number of tokens in all texts, with common beginnings counted once."""
    count, before = 0, Text()
    for text in sorted(texts):
        same = next((i for i, (one, other) in enumerate(zip(before, text, strict=False)) if one != other), min(len(before), len(text)))
        count, before = count + len(text) - same, text
    return count
