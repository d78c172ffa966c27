"""Start a module of this project as another process, with the code that this process runs."""

import os
import sys
from pathlib import Path

PROCESS_BYTES = 65 << 20  # memory of such a process before it has read anything


def module_command(name: str, *arguments: str) -> list[str]:
    """The command that runs module `name` with this Python, without letting files in the current folder shadow a library."""
    return [sys.executable, "-P", "-m", name, *arguments]


def module_environment() -> dict[str, str]:
    """This process's environment, with the folder of the running code first on the module path."""
    paths = [str(Path(__file__).parents[3]), *filter(None, [os.environ.get("PYTHONPATH")])]
    return {**os.environ, "PYTHONPATH": os.pathsep.join(paths)}


def usable_cores() -> int:
    """The number of cores that this process may use, which a container or a job may limit."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
