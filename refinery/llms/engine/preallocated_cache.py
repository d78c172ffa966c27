"""A key-value cache with preallocated space for future tokens."""

import torch
from transformers.cache_utils import Cache, DynamicLayer


class PreallocatedLayer(DynamicLayer):
    """Keys and values in buffers with spare capacity. DynamicLayer would copy all of them with every token."""

    def __init__(self, room: int) -> None:
        super().__init__()
        self._room = room
        self._buffers: list[torch.Tensor] = []

    def fill(self, keys: torch.Tensor, values: torch.Tensor, length: int) -> None:
        """Take over buffers (rows, heads, length + room, dim) whose first `length` tokens are filled."""
        self.lazy_initialization(keys, values)
        self._buffers = [keys, values]
        self.keys, self.values = (buffer[..., :length, :] for buffer in self._buffers)

    def states(self) -> tuple[torch.Tensor, torch.Tensor]:
        """The keys and values (rows, heads, tokens, dim) of a layer that holds some."""
        assert self.keys is not None
        assert self.values is not None
        return self.keys, self.values

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
        return self.states()


class PreallocatedCache(Cache):
    """A cache of `layers` empty layers, each of which takes `room` tokens."""

    def __init__(self, layers: int, room: int) -> None:
        self._layers = [PreallocatedLayer(room) for _ in range(layers)]
        super().__init__(layers=[*self._layers])

    def fill(self, layer: int, keys: torch.Tensor, values: torch.Tensor, length: int) -> None:
        """Let a layer take over buffers, as `PreallocatedLayer.fill` does."""
        self._layers[layer].fill(keys, values, length)

    def states(self) -> list[tuple[torch.Tensor, torch.Tensor]]:
        """Every layer's keys and values (rows, heads, tokens, dim). Raises AssertionError for an empty cache."""
        return [layer.states() for layer in self._layers]
