"""Keys, values and last hidden states of every stored token, in a few large tensors: a token's slot is its index in all of them.

A batch gathers the tokens of all its rows from one tensor by one `index_select`, and its results are stored by one copy, whatever
the number of layers, rows and nodes. Slot 0 is the padding in front of short rows: it must be finite, because it is masked by adding.
"""

import math
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch

from refinery.llms.engine.preallocated_cache import PreallocatedCache

# The first capacity in tokens, which then doubles: growing copies everything.
_FIRST = 4096
_PADDING = 0


@dataclass(slots=True)
class _Group:
    """The keys and values of one shape; most models have only one. `members` holds 2 x layer for keys and 2 x layer + 1 for values."""

    heads: int
    dim: int
    members: list[int]
    tensor: torch.Tensor  # (members x heads, slots, dim): once gathered, a head's part of a row is contiguous


class NodeState:
    """The slots of a node's own tokens as computed under one adapter. They are free again when it dies, on whichever thread."""

    __slots__ = ("_arena", "slots")

    def __init__(self, arena: "KvArena", slots: "np.ndarray") -> None:
        self._arena, self.slots = arena, slots

    def __del__(self) -> None:
        self._arena.freed.append(self.slots)

    def split(self, at: int) -> tuple["NodeState", "NodeState"]:
        """The states of the first `at` tokens and of the others. This state has no tokens afterwards."""
        slots, self.slots = self.slots, self.slots[:0]
        return NodeState(self._arena, slots[:at]), NodeState(self._arena, slots[at:])


class KvArena:
    """Storage for the states of at most `most` tokens. It grows when it has to, and shrinks only by `release`."""

    def __init__(self, most: int) -> None:
        self.most = most
        self.freed: deque[np.ndarray] = deque()
        self._groups: list[_Group] = []
        self._hidden: torch.Tensor | None = None  # (slots, hidden)
        self._capacity = 0  # slots, the padding's included
        self._free: list[int] = []

    @property
    def used(self) -> int:
        """Tokens stored now."""
        while self.freed:
            self._free += self.freed.popleft().tolist()
        return max(self._capacity - 1, 0) - len(self._free)

    @property
    def room(self) -> int:
        """Tokens that can still be stored."""
        return self.most - self.used

    @property
    def numbers_per_token(self) -> int:
        """Numbers of one token's keys and values; 0 before anything is stored."""
        return sum(len(group.members) * group.heads * group.dim for group in self._groups)

    def allocate(self, tokens: int) -> NodeState:
        """Slots for `tokens` tokens, for which there must be room. They keep their old content until something is stored."""
        if tokens > self._capacity - 1 - self.used:
            self._grow(self.used + tokens + 1)
        slots = self._free[len(self._free) - tokens :]
        del self._free[len(self._free) - tokens :]
        return NodeState(self, np.array(slots, dtype=np.int64))

    def release(self) -> None:
        """Give the memory back, once nothing is stored."""
        if not self.used:
            self._groups, self._hidden, self._capacity, self._free = [], None, 0, []

    def space(self, tokens: int) -> list[torch.Tensor]:
        """Memory for caches of at most `tokens` tokens, to `gather` into."""
        return [group.tensor.new_empty(len(group.members) * group.heads * tokens * group.dim) for group in self._groups]

    def gather(self, slots: "np.ndarray", *, length: int, layers: int, into: Sequence[torch.Tensor] = ()) -> PreallocatedCache:
        """A cache with a row for each row of `slots` (rows, tokens). Its first `length` positions are stored tokens or padding.

        It lies in new memory, or at the beginning of the space `into`.
        """
        if not self._groups:
            return PreallocatedCache(layers, slots.shape[1])
        assert self._hidden is not None
        index = torch.from_numpy(slots.reshape(-1)).to(self._hidden.device)
        buffers, packed = [self._hidden] * (2 * layers), []
        for number, group in enumerate(self._groups):
            shape = (len(group.members) * group.heads, slots.size, group.dim)
            out = into[number][: math.prod(shape)].view(shape) if into else None
            packed.append(torch.index_select(group.tensor, 1, index, out=out))
            found = packed[-1].view(len(group.members), group.heads, *slots.shape, group.dim).transpose(1, 2)
            for member, buffer in zip(group.members, found.unbind(), strict=True):
                buffers[member] = buffer
        return PreallocatedCache(layers, slots.shape[1], buffers, length=length, packed=packed)

    def store(self, states: Sequence[NodeState], cache: PreallocatedCache, tokens: "np.ndarray", hidden: torch.Tensor) -> None:
        """Store tokens of a batch: keys and values from `cache`, numbered row by row, and last hidden states (tokens, hidden)."""
        if not self._groups:
            self._begin(cache, hidden)
        assert self._hidden is not None
        slots = np.concatenate([state.slots for state in states])
        into, taken = (torch.from_numpy(numbers).to(hidden.device) for numbers in (slots, tokens))
        self._hidden.index_copy_(0, into, hidden)
        for group, packed in zip(self._groups, cache.packed or self._packed(cache), strict=True):
            group.tensor.index_copy_(1, into, packed.index_select(1, taken))

    def _packed(self, cache: PreallocatedCache) -> list[torch.Tensor]:
        """The first batch's buffers, which its layers created, in the form of `gather`'s: (members x heads, rows x room, dim)."""
        buffers = cache.buffers()
        return [torch.cat([buffers[i].transpose(0, 1).flatten(1, 2) for i in group.members]) for group in self._groups]

    def hidden(self, slots: "np.ndarray") -> torch.Tensor:
        """The last hidden states (tokens, hidden) of slots."""
        assert self._hidden is not None
        return self._hidden.index_select(0, torch.from_numpy(slots).to(self._hidden.device))

    def _begin(self, cache: PreallocatedCache, hidden: torch.Tensor) -> None:
        """Create the tensors, now that the shapes of keys and values are known."""
        buffers = cache.buffers()
        members: dict[tuple[int, int], list[int]] = {}
        for i, buffer in enumerate(buffers):
            members.setdefault((buffer.shape[1], buffer.shape[3]), []).append(i)
        tensors = [buffers[0].new_empty((len(group) * heads, self._capacity, dim)) for (heads, dim), group in members.items()]
        self._hidden = hidden.new_empty((self._capacity, hidden.shape[-1]))
        for tensor in tensors:
            tensor[:, _PADDING] = 0
        self._groups = [_Group(*shape, group, tensor) for (shape, group), tensor in zip(members.items(), tensors, strict=True)]

    def _grow(self, slots: int) -> None:
        before, capacity = self._capacity, min(max(2 * self._capacity, slots, _FIRST), self.most + 1)
        grown = [group.tensor.new_empty((len(group.members) * group.heads, capacity, group.dim)) for group in self._groups]
        for group, tensor in zip(self._groups, grown, strict=True):
            tensor[:, :before] = group.tensor
            group.tensor = tensor
        if self._hidden is not None:
            hidden = self._hidden.new_empty((capacity, self._hidden.shape[1]))
            hidden[:before] = self._hidden
            self._hidden = hidden
        self._free += range(capacity - 1, max(before, 1) - 1, -1)
        self._capacity = capacity
