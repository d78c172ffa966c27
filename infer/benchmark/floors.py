"""How many times as long the engine takes as its two floors (bare.py), for trees of RQ-RAG that it has decoded."""

from collections.abc import Iterable
from statistics import fmean
from typing import TYPE_CHECKING, Any

from infer.benchmark.bare import TreeSize, bare_seconds, decoding_seconds
from infer.decoders import rq_rag
from refinery.llms.engine.huggingface import HuggingFaceLLM

if TYPE_CHECKING:
    from transformers import PreTrainedModel

Text = tuple[int, ...]


class RecordingLLM(HuggingFaceLLM):
    """The engine, which keeps all that was written: the tokens before and those written, by the most that were allowed."""

    def __init__(self, *arguments: Any, **settings: Any) -> None:
        super().__init__(*arguments, **settings)
        self.written: dict[int, list[tuple[Text, Text]]] = {}

    async def submit(self, context: Any, adapter: Any, **wanted: Any) -> Any:
        """As the engine's."""
        found = await super().submit(context, adapter, **wanted)
        if limit := wanted.get("max_new_tokens"):
            self.written.setdefault(limit, []).append((tuple(context.token_ids), tuple(found.token_ids)))
        return found


def times_floors(model: "PreTrainedModel", llm: RecordingLLM, seconds: float, options: rq_rag.Options, *, questions: int) -> dict[str, Any]:
    """The ratios to the floors of `model`, which the engine has released, and the tokens that they are of."""
    queries, answers = (llm.written[limit] for limit in sorted(llm.written))  # answers may be longer
    texts = [before + new for before, new in (*queries, *answers)]
    tokens, written = distinct_tokens(texts), llm.counters.decode_tokens
    official, longest = options.fidelity == "official", max(map(len, texts))
    bare = bare_seconds(model, tokens=tokens, scored=tokens if official else written, length=longest)
    decoding = decoding_seconds(model, _size(queries, answers, options, questions), score_all=official)
    return {
        "times_bare_forward": round(seconds / bare, 2),
        "times_plain_decoding": round(seconds / decoding, 2),
        "distinct_tokens": tokens,
        "tokens_written": written,
    }


def _size(queries: list[tuple[Text, Text]], answers: list[tuple[Text, Text]], options: rq_rag.Options, questions: int) -> TreeSize:
    """The mean lengths of the texts. A context ends with the control token that begins what is written after it."""
    before = [len(context) - 1 for context, _ in answers]
    query, answer = (round(fmean(len(new) for _, new in texts)) for texts in (queries, answers))
    evidence = round((max(before) - min(before)) / options.max_depth) - query
    return TreeSize(questions, options.max_depth, len(options.actions), min(before), query, evidence, answer)


def distinct_tokens(texts: Iterable[Text]) -> int:
    """Tokens of all texts, where those of a common beginning count once."""
    count, before = 0, Text()
    for text in sorted(texts):
        same = next((i for i, (one, other) in enumerate(zip(before, text, strict=False)) if one != other), min(len(before), len(text)))
        count, before = count + len(text) - same, text
    return count
