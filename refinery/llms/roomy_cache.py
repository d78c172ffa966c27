"""A key-value cache with room for the tokens to come."""

import torch
from transformers.cache_utils import Cache, DynamicLayer


class RoomyLayer(DynamicLayer):
    """Keys and values in buffers that are longer than what they hold. DynamicLayer copies all of it with every token."""

    def __init__(self, room: int) -> None:
        super().__init__()
        self._room = room
        self._buffers: list[torch.Tensor] = []

    def update(
        self, key_states: torch.Tensor, value_states: torch.Tensor, *args: object, **kwargs: object
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Append (rows, heads, tokens, dim); returns all keys and all values."""
        if not self.is_initialized:
            self.lazy_initialization(key_states, value_states)
        start = self.get_seq_length()
        stop = start + key_states.shape[-2]
        if not self._buffers or self._buffers[0].shape[-2] < stop:
            self._buffers = [
                _longer(held, new, start, stop + self._room) for held, new in ((self.keys, key_states), (self.values, value_states))
            ]
        for buffer, new in zip(self._buffers, (key_states, value_states), strict=True):
            buffer[..., start:stop, :] = new
        self.keys, self.values = (buffer[..., :stop, :] for buffer in self._buffers)
        return self.keys, self.values

    def batch_select_indices(self, indices: torch.Tensor) -> None:
        """Only keep the rows `indices`."""
        self._buffers = [buffer[indices] for buffer in self._buffers]
        length = self.get_seq_length()
        self.keys, self.values = (buffer[..., :length, :] for buffer in self._buffers)


def roomy_cache(layers: int, room: int) -> Cache:
    """A cache of `layers` layers that takes `room` tokens more before it is copied."""
    return Cache(layers=[RoomyLayer(room) for _ in range(layers)])


def _longer(held: torch.Tensor, new: torch.Tensor, start: int, capacity: int) -> torch.Tensor:
    buffer = new.new_empty((*new.shape[:-2], capacity, new.shape[-1]))
    if start:
        buffer[..., :start, :] = held
    return buffer
