"""Which of a launcher's processes this one is, from the environment that torchrun and accelerate set; the only one where there is none."""

import os


def process_rank() -> int:
    """The number of this process among all processes, from 0."""
    return int(os.environ.get("RANK", "0"))


def local_process_rank() -> int:
    """The number of this process among those on this machine, from 0."""
    return int(os.environ.get("LOCAL_RANK", "0"))


def num_processes() -> int:
    """How many processes the launcher has started in all."""
    return int(os.environ.get("WORLD_SIZE", "1"))


def is_main_process() -> bool:
    """Whether this is the process that owns the run directory, logs and reports."""
    return process_rank() == 0
