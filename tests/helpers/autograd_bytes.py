"""What a real forward pass keeps for its backward pass, which plans of memory are held against."""

from collections.abc import Callable
from typing import Any


def kept_by_autograd(model: Any, forward: Callable[[], Any]) -> int:
    """Bytes of the tensors, parameters aside, that autograd saves while `forward` runs the model."""
    import torch

    own = {parameter.untyped_storage().data_ptr() for parameter in model.parameters()}
    saved: dict[int, int] = {}
    alive = []  # a freed storage's address may be used again

    def keep(tensor: Any) -> Any:
        storage = tensor.untyped_storage()
        if storage.data_ptr() not in own and tensor.is_floating_point():
            saved[storage.data_ptr()] = storage.nbytes()
            alive.append(tensor)
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor):
        forward()
    return sum(saved.values())
