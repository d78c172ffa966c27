"""The rank of this process, from the environment that torchrun and accelerate set. Without a launcher there is only one process."""

import os


def process_rank() -> int:
    """The number of this process among all processes, from 0."""
    return int(os.environ.get("RANK", "0"))


def local_process_rank() -> int:
    """The number of this process among the processes on this machine, from 0."""
    return int(os.environ.get("LOCAL_RANK", "0"))


def num_processes() -> int:
    """The number of processes that the launcher has started in all."""
    return int(os.environ.get("WORLD_SIZE", "1"))


def is_main_process() -> bool:
    """Whether this is the process that owns the run directory, logs and reports."""
    return process_rank() == 0
