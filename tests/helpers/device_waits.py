"""Counts what makes a processor wait for its accelerator, and the kernels that it launches, on a CPU, where neither costs anything."""

from collections import Counter
from contextlib import contextmanager
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode

# Operations whose result the processor must know: a number, or how many elements there are.
_WAITS = ("_local_scalar_dense", "nonzero", "masked_select", "is_nonzero", "equal", "unique")
# Those that only look at a tensor in another way, and launch nothing.
_VIEWS = (
    "view", "_unsafe_view", "t", "transpose", "permute", "slice", "select", "expand", "unsqueeze", "squeeze", "detach", "alias", "split",
    "unbind", "as_strided", "_reshape_alias", "diagonal", "lift_fresh", "unfold", "chunk",
)  # fmt: skip


class DeviceCounts(TorchDispatchMode):
    """While it is entered, in its thread: `waits` and `launches` by name of the operation."""

    def __init__(self) -> None:
        super().__init__()
        self.waits: Counter[str] = Counter()
        self.launches: Counter[str] = Counter()

    def __torch_dispatch__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        name = function._schema.name.removeprefix("aten::").rstrip("_")
        masked = name in ("index", "index_put", "_index_put_impl") and any(
            index is not None and index.dtype == torch.bool for index in args[1]
        )
        if masked or name in _WAITS:
            self.waits["mask" if masked else name] += 1
        elif name not in _VIEWS:
            self.launches[name] += 1
        return function(*args, **(kwargs or {}))


@contextmanager
def counting_device_work():
    """The `DeviceCounts` of what happens inside, in this thread. `tolist` and `numpy` do not pass through PyTorch's dispatcher."""
    counts = DeviceCounts()
    originals = {name: getattr(torch.Tensor, name) for name in ("tolist", "numpy")}

    def counted(name: str) -> Any:
        def call(tensor: torch.Tensor, *args: Any, **kwargs: Any) -> Any:
            counts.waits[name] += 1
            return originals[name](tensor, *args, **kwargs)

        return call

    for name in originals:
        setattr(torch.Tensor, name, counted(name))
    try:
        with counts:
            yield counts
    finally:
        for name, original in originals.items():
            setattr(torch.Tensor, name, original)
