"""Two lower bounds of the engine's time, from the model's own forward passes with nothing around them.

`bare_seconds` reads as many tokens as a tree has, in the way a prompt is read, many at a time: in sequences as long as a whole path, so
that a token attends to half of a path on average. That is less work than any decoder can do. A decoder must write token by token, with one
pass for each, which reads all keys and values before it; and most tokens of a tree are in its last level, after long prefixes.

`decoding_seconds` does exactly that work: a tree whose texts have equal lengths, level by level and for all questions at once.
"""

import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from torch import Tensor
    from transformers import PreTrainedModel

    from refinery.llms.engine.preallocated_cache import PreallocatedCache

_SEQUENCES = 8
_ROWS = 256


def bare_seconds(model: "PreTrainedModel", *, tokens: int, scored: int, length: int) -> float:
    """Seconds of forward passes over `tokens` tokens in sequences of `length`, with the log-probabilities of `scored` of them.

    Measured on a few sequences.
    """
    import torch

    now = _clock(model)
    kept = torch.arange(round(length * scored / tokens), device=model.device)
    ids = torch.randint(model.config.vocab_size, (1, length), device=model.device)
    with torch.no_grad():
        model(input_ids=ids[:, :16]).logits.sum().item()  # the first pass compiles and allocates
        started = now()
        for _ in range(_SEQUENCES):
            _score(model(input_ids=ids, logits_to_keep=kept).logits[0])
        return (now() - started) / _SEQUENCES * tokens / length


@dataclass(frozen=True, slots=True)
class TreeSize:
    """Trees of `depth` searches with `actions` kinds of search, and the tokens of their texts.

    A text begins with its control token, and its own last token is read with the evidence, if at all.
    """

    questions: int
    depth: int
    actions: int
    prompt: int
    query: int
    evidence: int
    answer: int


def decoding_seconds(model: "PreTrainedModel", size: TreeSize, *, score_all: bool) -> float:
    """Seconds that plain forward passes take to read and write trees; with `score_all`, also for the log-probabilities of read tokens.

    Every branch has a separate row, with a copy of its prefix: nothing is padded or shared within a batch.
    """
    import torch

    now = _clock(model)
    started = now()
    with torch.no_grad():
        cache = _Rows.empty(model, size.questions, room=size.prompt)
        cache.read(size.prompt, score_all=score_all)
        for level in range(size.depth + 1):
            if level == size.depth:
                cache.forked(1, room=size.answer).write(size.answer)
                break
            # An answer's branch is the first of its node. It is continued after those of the searches have ended.
            branches = cache.forked(1 + size.actions, room=size.query)
            branches.write(size.query)
            answers, searches = branches.split(size.actions)
            answers.forked(1, room=size.answer).write(max(0, size.answer - size.query))
            cache = searches.forked(1, room=size.evidence)
            cache.read(size.evidence, score_all=score_all)
    return now() - started


@dataclass(slots=True)
class _Rows:
    """Texts of equal lengths that are read and written together."""

    model: "PreTrainedModel"
    buffers: "list[Tensor]"  # keys and values of the layers in turn (rows, heads, room, dim)
    rows: int
    length: int
    room: int

    @classmethod
    def empty(cls, model: "PreTrainedModel", rows: int, *, room: int) -> "_Rows":
        config = model.config
        heads, dim = config.num_key_value_heads, getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads
        shape = (rows, heads, room, dim)
        weight = next(model.parameters())
        return cls(model, [weight.new_empty(shape) for _ in range(2 * config.num_hidden_layers)], rows, 0, room)

    def forked(self, times: int, *, room: int) -> "_Rows":
        """Each row `times` times, with room for more tokens."""
        forked = _Rows.empty(self.model, self.rows * times, room=self.length + room)
        for new, old in zip(forked.buffers, self.buffers, strict=True):
            new[:, :, : self.length] = old[:, :, : self.length].repeat_interleave(times, 0)
        forked.length = self.length
        return forked

    def split(self, searches: int) -> "tuple[_Rows, _Rows]":
        """The first of every `1 + searches` rows, and the others."""
        by_node = [buffer.unflatten(0, (-1, 1 + searches)) for buffer in self.buffers]
        answers = [buffer[:, 0] for buffer in by_node]
        others = [buffer[:, 1:].flatten(0, 1) for buffer in by_node]
        return replace(self, buffers=answers, rows=len(answers[0])), replace(self, buffers=others, rows=len(others[0]))

    def read(self, tokens: int, *, score_all: bool) -> None:
        """Read `tokens` tokens in every row, as many rows at a time as the engine would."""
        from refinery.llms.engine.tree_forward import tokens_of_a_pass

        at_once = max(1, tokens_of_a_pass(self.model.device) // tokens)
        for start in range(0, self.rows, at_once):
            part = [buffer[start : start + at_once] for buffer in self.buffers]
            ids = _ids(self.model, len(part[0]), tokens)
            logits = self.model(input_ids=ids, past_key_values=_cache(self, part), logits_to_keep=0 if score_all else 1).logits
            _score(logits.flatten(0, 1) if score_all else logits[:, -1])
        self.length += tokens

    def write(self, tokens: int) -> None:
        """Write `tokens` tokens in every row."""
        ids, cache = _ids(self.model, self.rows, 1), _cache(self, self.buffers)
        for _ in range(tokens):
            logits = self.model(input_ids=ids, past_key_values=cache).logits[:, -1]
            ids = logits.argmax(-1, keepdim=True)
            _score(logits)
        self.length += tokens


def _ids(model: "PreTrainedModel", rows: int, tokens: int) -> "Tensor":
    import torch

    return torch.randint(model.config.vocab_size, (rows, tokens), device=model.device)


def _cache(rows: _Rows, buffers: "list[Tensor]") -> "PreallocatedCache":
    from refinery.llms.engine.preallocated_cache import PreallocatedCache

    return PreallocatedCache(len(buffers) // 2, rows.room, buffers, length=rows.length)


def _score(logits: "Tensor") -> None:
    """A log-probability of each row (rows, vocab)."""
    for start in range(0, len(logits), _ROWS):
        rows = logits[start : start + _ROWS].float()
        (rows[:, 0] - rows.logsumexp(-1)).tolist()


def _clock(model: "PreTrainedModel") -> Callable[[], float]:
    """Seconds: process time on a CPU, where nothing waits, and wall-clock time elsewhere."""
    return time.process_time if model.device.type == "cpu" else time.perf_counter
