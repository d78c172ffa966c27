"""Code run in two CPU processes that see each other, forked from a server that has the libraries loaded already."""

import multiprocessing
from pathlib import Path

from helpers.free_port import free_port

LOADED = [
    "torch",
    "datasets",
    "peft",
    "trl",
    "train.run",
    "train.families.causal",
    "train.trainers.sparse_lm_head",
    "train.launch.callbacks",
]
IN_A_PROCESS = """
import os, sys
log = os.open({log!r}, os.O_WRONLY | os.O_CREAT)
os.dup2(log, 1), os.dup2(log, 2)
os.environ.update({environment!r})
{code}
"""


def in_two_processes(code: str, folder: Path, environment: dict[str, str]) -> None:
    """Run `code` in two processes that see each other, as the launcher would start them."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload([*LOADED, *(["deepspeed"] if "ACCELERATE_USE_DEEPSPEED" in environment else [])])
    shared = {"WORLD_SIZE": "2", "LOCAL_WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free_port())} | environment
    started = []
    for rank in ("0", "1"):
        of_rank = shared | {"RANK": rank, "LOCAL_RANK": rank}
        text = IN_A_PROCESS.format(log=str(folder / f"rank_{rank}.log"), environment=of_rank, code=code)
        started.append(context.Process(target=exec, args=(text, {})))
        started[-1].start()
    for process in started:
        process.join(600)
        process.kill()
    assert [process.exitcode for process in started] == [0, 0], (folder / "rank_0.log").read_text()[-3000:]
