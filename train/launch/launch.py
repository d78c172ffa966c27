"""What the launcher was asked for, and whether training runs that way.

`accelerate launch` accepts any typo inside `fsdp_config` and `deepspeed_config`, starts one process for a MULTI_CPU file, and on a CPU
turns FSDP into DDP or into independent copies that write the same directory: all without a word. Here each is one line, before a model
loads where it can be known then, otherwise when the trainer exists.
"""

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, fields
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from refinery.errors import RecipeError
from refinery.installed import install_extra
from refinery.runtime.recipe import unknown_key
from refinery.runtime.recipes.shipped_files import accelerate_file
from refinery.runtime.recipes.yaml_file import read_yaml
from refinery.runtime.run.process_rank import num_processes
from train.support import Sharding

# The nested parts of an accelerate file, by the heading under which `accelerate launch` lists the options that each fills.
_PARTS = {
    "deepspeed_config": "DeepSpeed Arguments",
    "fsdp_config": "FSDP Arguments",
    "parallelism_config": "ParallelismConfig Arguments",
    "mpirun_config": "MPI Arguments",
}
# FSDP 2 has no such settings; accelerate accepts them and ignores them.
_FSDP1_ONLY = {
    "fsdp_sharding_strategy",
    "fsdp_backward_prefetch",
    "fsdp_forward_prefetch",
    "fsdp_use_orig_params",
    "fsdp_sync_module_states",
}


@dataclass(frozen=True, slots=True)
class Launch:
    """How training is spread: processes in all, how the model is split over them, and the file that says so, if one does."""

    processes: int
    sharding: Sharding
    source: str = "the environment"
    offload_optimizer: bool = False
    traits: frozenset[str] = frozenset()  # what else a recipe may not go with: "recomputes", "context_parallel"


def read_accelerate_config(path: str | Path) -> dict[str, Any]:
    """An accelerate file, checked down to its nested keys. `path` may be the name of a file of accelerate_configs/.

    Raises RecipeError for an unknown key, for what the launcher would silently do otherwise, and as `accelerate_file`.
    """
    file = accelerate_file(path)
    values = read_yaml(file)
    known = known_keys()
    for part in ("", *_PARTS):
        for key in (values.get(part) or {}) if part else values:
            if key not in known[part]:
                raise RecipeError(f"{file}: {unknown_key(f'{part}.{key}'.strip('.'), known[part])}")
    _check_traps(file, values)
    return values


def _check_traps(file: Path, values: dict[str, Any]) -> None:
    """Settings that accelerate silently treats as something else."""
    kind, processes = values.get("distributed_type"), values.get("num_processes", 1)
    if kind == "MULTI_CPU" and processes > 1 and not values.get("mpirun_config"):
        raise RecipeError(
            f"{file}: distributed_type MULTI_CPU with num_processes {processes} starts ONE process: the launcher spreads CPUs through "
            "mpirun only. Use accelerate_configs/ddp_cpu.yaml, which says MULTI_GPU with use_cpu: true."
        )
    if kind == "FSDP" and values.get("use_cpu"):
        raise RecipeError(
            f"{file}: FSDP with use_cpu: true silently becomes DDP. FSDP needs GPUs; on CPUs use accelerate_configs/ddp_cpu.yaml."
        )
    if kind == "FSDP" and (values.get("fsdp_config") or {}).get("fsdp_version") != 2:
        raise RecipeError(f"{file}: fsdp_config.fsdp_version: is not 2, so accelerate would run the deprecated FSDP 1. Set it to 2.")
    if kind == "NO" and processes > 1:
        raise RecipeError(
            f"{file}: distributed_type NO with num_processes {processes} starts one process. Use accelerate_configs/ddp.yaml."
        )


def launch_of(values: dict[str, Any], *, source: str, processes: int | None = None) -> Launch:
    """The launch that an accelerate file asks for; `processes` is what the command line says instead of the file."""
    fsdp, deepspeed = values.get("fsdp_config") or {}, values.get("deepspeed_config") or {}
    kind = values.get("distributed_type", "NO")
    count = processes or int(values.get("num_processes", 1))
    shardings: dict[str, Sharding] = {"FSDP": "fsdp2", "NO": "none", "DEEPSPEED": _zero(deepspeed.get("zero_stage", 2))}
    traits = {
        "recomputes": fsdp.get("fsdp_activation_checkpointing"),
        "context_parallel": (values.get("parallelism_config") or {}).get("parallelism_config_cp_size", 1) > 1,
    }
    return Launch(
        processes=count,
        sharding=shardings.get(kind, "ddp" if count > 1 else "none"),
        source=source,
        offload_optimizer=deepspeed.get("offload_optimizer_device", "none") not in ("none", None) or bool(fsdp.get("fsdp_offload_params")),
        traits=frozenset(name for name, there in traits.items() if there),
    )


def _zero(stage: int) -> Sharding:
    stages: tuple[Sharding, ...] = ("ddp", "zero1", "zero2", "zero3")
    return stages[int(stage)]


@cache
def launch_from_env() -> Launch:
    """What this process's launcher was asked for: the accelerate file and options it was started with, else its environment.

    Raises RecipeError as `read_accelerate_config`, and when fewer processes were started than were asked for.
    """
    options = _launcher_options()
    if options is None:
        return _from_environment()
    if options.config_file is None:
        return _from_environment(options.num_processes)
    launch = launch_of(read_accelerate_config(options.config_file), source=options.config_file, processes=options.num_processes)
    started = num_processes()
    if started != launch.processes:
        raise RecipeError(
            f"{launch.source} asks for {launch.processes} processes and the launcher started {started}. See accelerate_configs/."
        )
    if launch.sharding == "fsdp2" and not _has_gpu():
        raise RecipeError(
            f"{launch.source}: FSDP needs GPUs and this machine has none: accelerate would silently run DDP or separate copies."
        )
    return launch


def prepare(launch: Launch) -> None:
    """Raise RecipeError when the launch needs a library that is missing; keep DeepSpeed from compiling its optional CPU kernel."""
    if not launch.sharding.startswith("zero"):
        return
    if find_spec("deepspeed") is None:
        raise RecipeError(
            f"{launch.source}: DeepSpeed is not installed. Install it ({install_extra('gpu')}), or use accelerate_configs/fsdp2.yaml."
        )
    if not _has_gpu():
        import deepspeed

        # It takes minutes of g++ on the first run, only to speed up all-reduce on one machine. Results are the same without it.
        deepspeed.ops.__compatible_ops__["deepspeed_shm_comm"] = False


@contextmanager
def without_zero3_init() -> Iterator[None]:
    """Within this context, this process loads models whole, for itself.

    Under ZeRO-3 transformers splits whatever is loaded over all processes, and so waits for ever where one loads alone.
    """
    from transformers.integrations import deepspeed

    launched = deepspeed._hf_deepspeed_config_weak_ref
    deepspeed.unset_hf_deepspeed_config()
    try:
        yield
    finally:
        deepspeed._hf_deepspeed_config_weak_ref = launched


def check_started(trainer: Any) -> None:
    """Raise RecipeError unless the trainer runs on the processes, and splits the model in the way, that were asked for."""
    launch, accelerator = launch_from_env(), trainer.accelerator
    if accelerator.num_processes != launch.processes:
        raise RecipeError(
            f"{launch.source} asks for {launch.processes} processes but training would run on {accelerator.num_processes}, each on a "
            "separate copy. See accelerate_configs/."
        )
    actual = _sharding_of(trainer)
    if actual != launch.sharding:
        raise RecipeError(f"{launch.source} asks for {launch.sharding} but training would run as {actual}. See accelerate_configs/.")


def _sharding_of(trainer: Any) -> Sharding:
    accelerator = trainer.accelerator
    if getattr(accelerator.unwrap_model(trainer.model), "is_distributed_loading_by_transformers", False):
        return "fsdp2"
    if trainer.is_deepspeed_enabled:
        return _zero(accelerator.state.deepspeed_plugin.zero_stage)
    if trainer.is_fsdp_enabled:
        return "fsdp2"
    return "ddp" if accelerator.num_processes > 1 else "none"


def _from_environment(processes: int | None = None) -> Launch:
    """What torchrun, or accelerate without a file, has set in the environment."""
    processes = processes or num_processes()
    if os.environ.get("ACCELERATE_USE_DEEPSPEED") == "true":
        return Launch(processes, _zero(int(os.environ.get("ACCELERATE_DEEPSPEED_ZERO_STAGE", "2"))))
    if os.environ.get("ACCELERATE_USE_FSDP") == "true":
        return Launch(processes, "fsdp2")
    return Launch(processes, "ddp" if processes > 1 else "none")


def _launcher_options() -> Any:
    """The options of the `accelerate launch` that started this process, by its own parser; None where another program did."""
    import psutil

    command = psutil.Process(os.getppid()).cmdline()
    start = _after_launch(command)
    if start is None:
        return None
    from accelerate.commands.launch import launch_command_parser

    return launch_command_parser().parse_known_args(command[start:])[0]


def _after_launch(command: Sequence[str]) -> int | None:
    """Where the options begin in `accelerate launch ...`, `accelerate-launch ...` or `python -m accelerate.commands.launch ...`."""
    for i, word in enumerate(command[:4]):
        name = Path(word).name
        if name == "accelerate-launch" or word == "accelerate.commands.launch" or word.endswith("accelerate/commands/launch.py"):
            return i + 1
        if name == "accelerate" and command[i + 1 : i + 2] == ["launch"]:
            return i + 2
    return None


@cache
def known_keys() -> dict[str, list[str]]:
    """The keys of an accelerate file by the section they belong to ("" for the top level), as the installed accelerate defines them."""
    from accelerate.commands.config.config_args import ClusterConfig
    from accelerate.commands.launch import launch_command_parser

    options = {group.title: [action.dest for action in group._group_actions] for group in launch_command_parser()._action_groups}
    parts = {part: [key for key in options[title] if key not in _FSDP1_ONLY] for part, title in _PARTS.items()}
    return {"": [field.name for field in fields(ClusterConfig)], **parts}


def _has_gpu() -> bool:
    import torch

    return torch.cuda.is_available()
