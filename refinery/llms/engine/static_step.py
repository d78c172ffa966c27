"""Decoding steps of fixed shapes: their inputs, keys and values lie in buffers that stay where they are, so a CUDA graph can replay them.

Launched from Python, a step of an 8B model took 34 to 52 ms on an H200, whose kernels take 12.6. A graph holds the launches of one shape,
so batches are padded to few shapes, by rows that nothing reads and keys that no row sees. On a CPU the same step is a plain call.
"""

import logging
from collections import OrderedDict
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

import torch

from refinery.llms.engine.kv_storage import KvArena
from refinery.llms.engine.out_of_memory import is_out_of_memory
from refinery.llms.engine.preallocated_cache import PreallocatedCache

if TYPE_CHECKING:
    from peft import PeftModel
    from transformers import PreTrainedModel

Mask = torch.Tensor | dict[str, torch.Tensor]
Outputs = tuple[torch.Tensor, torch.Tensor]  # last hidden states (rows, width, hidden), logits (rows, width, vocab)
Forward = Callable[[torch.Tensor, PreallocatedCache, Mask, torch.Tensor], Outputs]

logger = logging.getLogger(__name__)
_MOST_SHAPES = 48
_KEYS = 128  # the keys of a row are a multiple of it


@dataclass(frozen=True, slots=True)
class StepShape:
    """Rows with `width` branches each, and the keys of a row: its prefix, and a token of each branch for every step of the batch."""

    rows: int
    width: int
    keys: int

    @property
    def tokens(self) -> int:
        """Keys of all rows."""
        return self.rows * self.keys

    @classmethod
    def around(cls, *, rows: int, width: int, prefix: int, steps: int) -> "StepShape":
        """The smallest of the few shapes that hold a batch: powers of two, and for rows and keys also one and a half of them."""
        width = 1 << (width - 1).bit_length()
        return cls(_round_up(rows), width, _KEYS * _round_up(-(-(prefix + width * steps) // _KEYS)))


def _round_up(count: int) -> int:
    power = 1 << (count - 1).bit_length()
    return power * 3 // 4 if power > 2 and count <= power * 3 // 4 else power


def stays_in_place(model: "PreTrainedModel | PeftModel") -> bool:
    """Whether every weight is whole between passes: ZeRO-3 and FSDP gather theirs in each."""
    return not any(hasattr(weight, "ds_id") or hasattr(weight, "device_mesh") for weight in model.parameters())


@dataclass(slots=True)
class _Step:
    """A shape's inputs, and on a GPU the captured graph with the places of its results."""

    ids: torch.Tensor  # (rows, width)
    positions: torch.Tensor  # (rows, width)
    slots: torch.Tensor  # (width,): which keys of a row the step's tokens become
    mask: Mask
    graph: "torch.cuda.CUDAGraph | None" = None
    outputs: Outputs | None = None

    def fill(self, ids: torch.Tensor, positions: torch.Tensor, mask: Mask, first: int) -> None:
        self.ids.copy_(ids)
        self.positions.copy_(positions)
        torch.arange(first, first + len(self.slots), out=self.slots)
        for kind, one in _by_kind(mask).items():
            _by_kind(self.mask)[kind].copy_(one)


class StaticSteps:
    """The steps of one model by shape. They share one space for the keys and values of a batch, of at most `most` tokens."""

    def __init__(self, arena: KvArena, *, most: int) -> None:
        self._arena, self.most = arena, most
        self._steps: OrderedDict[StepShape, _Step] = OrderedDict()  # the most recently used last
        self._space: list[torch.Tensor] = []
        self._tokens = 0  # in the space
        self._capturable = True

    def shape(self, *, rows: int, width: int, prefix: int, steps: int) -> StepShape | None:
        """The shape for a batch; None if it has to run in its own, because it is too large or a pass would not capture."""
        if not self._capturable or not self._arena.numbers_per_token or torch.is_autocast_enabled():
            return None  # autocast keeps copies of weights that a graph must not read once they are gone
        shape = StepShape.around(rows=rows, width=width, prefix=prefix, steps=steps)
        return shape if shape.tokens <= self.most else None

    def tokens(self, *, rows: int, width: int, prefix: int, steps: int) -> int:
        """Keys of all rows of a batch, padded if steps are."""
        if not self.most or not self._capturable:
            return rows * (prefix + width * steps)
        return StepShape.around(rows=rows, width=width, prefix=prefix, steps=steps).tokens

    def space(self, shape: StepShape) -> list[torch.Tensor]:
        """Where the keys and values of a batch lie. A larger space is in another place, so that the steps so far are void."""
        if shape.tokens > self._tokens:
            grown = min(max(2 * self._tokens, shape.tokens), self.most)
            self.clear()
            self._tokens = grown
            self._space = self._arena.space(self._tokens)
        return self._space

    def clear(self) -> None:
        """Give all memory back."""
        self._steps.clear()
        self._space, self._tokens = [], 0

    def run(
        self,
        forward: Forward,
        ids: torch.Tensor,
        cache: PreallocatedCache,
        mask: Mask,
        positions: torch.Tensor,
        *,
        shape: StepShape,
        first: int,
    ) -> Outputs:
        """The results for tokens (rows, width), which become a row's keys from `first` on. The next run may overwrite the logits."""
        step = self._steps.pop(shape, None) or _new_step(ids, mask)
        self._steps[shape] = step
        if len(self._steps) > _MOST_SHAPES:
            self._steps.popitem(last=False)
        step.fill(ids, positions, mask, first)
        cache.write_at(step.slots)
        compute = partial(forward, step.ids, cache, step.mask, step.positions)
        if step.graph is None and ids.is_cuda and self._capturable:
            self._capture(step, compute)
        if step.graph is None or step.outputs is None:
            return compute()
        step.graph.replay()
        hidden, logits = step.outputs
        return hidden.clone(), logits

    def _capture(self, step: _Step, compute: Callable[[], Outputs]) -> None:
        """Computing a step again writes the same keys and values to the same places, so that trying and capturing change nothing."""
        stream, graph = torch.cuda.Stream(), torch.cuda.CUDAGraph()
        stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(stream):
            compute()  # libraries choose kernels and allocate, which they must not do during the capture
        torch.cuda.current_stream().wait_stream(stream)
        pool = next((other.graph.pool() for other in self._steps.values() if other.graph is not None), None)
        try:
            # Other threads may use the device meanwhile, such as a retriever's.
            with torch.cuda.graph(graph, pool=pool, capture_error_mode="thread_local"):
                step.outputs = compute()
        except RuntimeError as error:
            if is_out_of_memory(error):
                raise
            self._capturable = False
            logger.warning("decoding goes on without CUDA graphs, since a step cannot be captured: %s", str(error).splitlines()[0])
        else:
            step.graph = graph


def _new_step(ids: torch.Tensor, mask: Mask) -> _Step:
    empty = {kind: torch.empty_like(one) for kind, one in _by_kind(mask).items()}
    return _Step(torch.empty_like(ids), torch.empty_like(ids), torch.empty_like(ids[0]), empty.get("", empty))


def _by_kind(mask: Mask) -> Mapping[str, torch.Tensor]:
    return {"": mask} if isinstance(mask, torch.Tensor) else mask
