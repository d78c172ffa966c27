"""Work that the processes of a launch share, or wait for, before and between the collective calls of training.

The libraries' own calls give up after half an hour of waiting, which is shorter than some work of one process takes. So what can be
divided is divided, and what only the first process can do is waited for in a group of processes with a patience of its own.
"""

from collections.abc import Callable, Iterator, Sequence
from datetime import timedelta
from importlib import import_module
from typing import Any, TypeVar

from refinery.runtime.run.process_rank import num_processes, process_rank

T = TypeVar("T")
R = TypeVar("R")

_AT_ONCE = 256  # items of each process that are sent at once
_PATIENCE = timedelta(days=2)


def map_over_processes(function: Callable[[T], R], items: Sequence[T]) -> list[R]:
    """Collective: `function` of each item, in order, of which each process computes its part. Every process gets all results.

    What must not end one process alone, such as the error of one item, has to be part of the result.
    """
    return list(each_over_processes(function, items))


def each_over_processes(function: Callable[[T], R], items: Sequence[T]) -> Iterator[R]:
    """As `map_over_processes`, one result after the other, so that they need not all be held. Every process has to take all of them."""
    processes = num_processes()
    if processes == 1:
        yield from map(function, items)
        return
    import torch

    accelerate: Any = import_module("accelerate")  # it has no types
    accelerate.PartialState(cpu=not torch.cuda.is_available())
    gather, place = accelerate.utils.gather_object, process_rank()
    for start in range(0, len(items), processes * _AT_ONCE):
        part = items[start : start + processes * _AT_ONCE]
        results: list[list[R]] = gather([[function(item) for item in part[place::processes]]])
        yield from (results[number % processes][number // processes] for number in range(len(part)))


def in_first_process(action: Callable[[], Any]) -> None:
    """Collective: `action` in the first process, while the others wait for it, however long it takes. All raise its error."""
    import torch.distributed

    dist: Any = torch.distributed
    if not dist.is_initialized():
        return action()
    group = dist.new_group(backend="gloo", timeout=_PATIENCE)
    told: list[Exception | None] = [None]
    if dist.get_rank() == 0:
        try:
            action()
        except Exception as error:  # the others would wait for a process that has ended
            told = [error]
    dist.broadcast_object_list(told, src=0, group=group)
    dist.destroy_process_group(group)
    if told[0] is not None:
        raise told[0]
    return None
