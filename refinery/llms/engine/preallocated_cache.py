"""A key-value cache with preallocated space for future tokens."""

from collections.abc import Sequence

import torch
from transformers.cache_utils import Cache, DynamicLayer


class PreallocatedLayer(DynamicLayer):
    """Keys and values in buffers with spare capacity. DynamicLayer would copy all of them with every token."""

    def __init__(self, room: int) -> None:
        super().__init__()
        self._room = room
        self.buffers: list[torch.Tensor] = []
        self.slots: torch.Tensor | None = None

    def fill(self, keys: torch.Tensor, values: torch.Tensor, length: int) -> None:
        """Take over buffers (rows, heads, room, dim) whose first `length` tokens are filled."""
        self.lazy_initialization(keys, values)
        self.buffers = [keys, values]
        self.keys, self.values = (buffer[..., :length, :] for buffer in self.buffers)

    def update(
        self, key_states: torch.Tensor, value_states: torch.Tensor, *args: object, **kwargs: object
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Append (rows, heads, tokens, dim); returns all keys and all values. With `slots`, write there, and return whole buffers."""
        if self.slots is not None:
            for buffer, new in zip(self.buffers, (key_states, value_states), strict=True):
                buffer.index_copy_(2, self.slots, new)
            return self.buffers[0], self.buffers[1]
        if not self.buffers:  # the first tokens of an empty cache
            rows, heads, _, _ = key_states.shape
            shapes = [(heads, rows, self._room, new.shape[-1]) for new in (key_states, value_states)]
            keys, values = (key_states.new_empty(shape).transpose(0, 1) for shape in shapes)
            self.fill(keys, values, 0)
        start = self.get_seq_length()
        stop = start + key_states.shape[-2]
        for buffer, new in zip(self.buffers, (key_states, value_states), strict=True):
            buffer[..., start:stop, :] = new
        self.keys, self.values = (buffer[..., :stop, :] for buffer in self.buffers)
        return self.keys, self.values


class PreallocatedCache(Cache):
    """A cache of `layers` layers, each of which takes `room` tokens.

    `buffers` (rows, heads, room, dim) are keys and values of the layers in turn, with the first `length` tokens filled; `packed` are the
    tensors that they are views of.
    """

    def __init__(
        self, layers: int, room: int, buffers: Sequence[torch.Tensor] = (), *, length: int = 0, packed: Sequence[torch.Tensor] = ()
    ) -> None:
        filled = [PreallocatedLayer(room) for _ in range(layers)]
        for layer, keys, values in zip(filled, buffers[::2], buffers[1::2], strict=False):
            layer.fill(keys, values, length)
        self._layers, self.packed = filled, packed
        super().__init__(layers=[*filled])

    def write_at(self, slots: torch.Tensor) -> None:
        """Let every layer write its next tokens at `slots` (tokens,), whose values may change, instead of appending them."""
        for layer in self._layers:
            layer.slots = slots

    def buffers(self) -> list[torch.Tensor]:
        """Every layer's keys and values (rows, heads, room, dim), in turn. None before the first update of an empty cache."""
        return [buffer for layer in self._layers for buffer in layer.buffers]
