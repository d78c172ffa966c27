"""A key-value cache with room for the tokens to come."""

import torch
from transformers.cache_utils import Cache, DynamicLayer


class PreallocatedLayer(DynamicLayer):
    """Keys and values in buffers that are longer than what they hold. DynamicLayer copies all of it with every token."""

    def __init__(self, room: int) -> None:
        super().__init__()
        self._room = room
        self._buffers: list[torch.Tensor] = []

    def fill(self, keys: torch.Tensor, values: torch.Tensor, length: int) -> None:
        """Take over buffers (rows, heads, length + room, dim) whose first `length` tokens are filled."""
        self.lazy_initialization(keys, values)
        self._buffers = [keys, values]
        self.keys, self.values = (buffer[..., :length, :] for buffer in self._buffers)

    def update(
        self, key_states: torch.Tensor, value_states: torch.Tensor, *args: object, **kwargs: object
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Append (rows, heads, tokens, dim); returns all keys and all values."""
        if not self._buffers:  # the first tokens of an empty cache
            buffers = [new.new_empty((*new.shape[:-2], self._room, new.shape[-1])) for new in (key_states, value_states)]
            self.fill(buffers[0], buffers[1], 0)
        start = self.get_seq_length()
        stop = start + key_states.shape[-2]
        for buffer, new in zip(self._buffers, (key_states, value_states), strict=True):
            buffer[..., start:stop, :] = new
        self.keys, self.values = (buffer[..., :stop, :] for buffer in self._buffers)
        return self.keys, self.values


def preallocated_cache(layers: int, room: int) -> Cache:
    """A cache of `layers` empty layers, each of which takes `room` tokens."""
    return Cache(layers=[PreallocatedLayer(room) for _ in range(layers)])
