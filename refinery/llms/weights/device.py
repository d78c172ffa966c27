"""The device that a process computes on, and whether it computes bfloat16 itself.

A processor without instructions for bfloat16 emulates it in software, many times slower than float32, without any other warning.
"""

import logging
from collections.abc import Mapping
from pathlib import Path

from refinery.runtime.run.process_rank import local_process_rank, num_processes

_log = logging.getLogger(__name__)
_CGROUPS = Path("/sys/fs/cgroup")
# Of version 2 and 1: the limit, what is used, and the name in memory.stat of files that the kernel keeps while nobody needs the memory.
_CGROUP_FILES = (
    ("memory.max", "memory.current", "inactive_file"),
    ("memory/memory.limit_in_bytes", "memory/memory.usage_in_bytes", "total_inactive_file"),
)


def own_device() -> str:
    """This process's accelerator: by its number on the machine where a launcher started several (`accelerate launch`)."""
    import torch

    accelerator = torch.accelerator.current_accelerator(check_available=True)
    if accelerator is None:
        return "cpu"
    return f"{accelerator.type}:{local_process_rank() % torch.accelerator.device_count()}"


def memory_here() -> tuple[int, int]:
    """This machine's GPUs, and the bytes of each; 0 and its own memory if it has none."""
    import psutil
    import torch

    count = torch.cuda.device_count()
    return (count, torch.cuda.get_device_properties(0).total_memory) if count else (0, psutil.virtual_memory().total)


def this_machine() -> str:
    """The memory of this machine's GPUs by their name, or else its own."""
    import torch

    count, size = memory_here()
    named = f"{count} x {torch.cuda.get_device_name(0)} with {{}}" if count else "no GPU, and {} of memory"
    return named.format(f"{size / 2**30:,.1f} GiB")


def free_memory(device: str) -> int:
    """Bytes that this process may take on a device now; of a machine's own memory, its part of what is available."""
    import psutil
    import torch

    module = torch.get_device_module(torch.device(device).type)
    if hasattr(module, "mem_get_info"):
        return module.mem_get_info(device)[0]
    free, left = psutil.virtual_memory().available, left_in_cgroup(_CGROUPS)
    return (free if left is None else min(free, left)) // num_processes()


def left_in_cgroup(folder: Path) -> int | None:
    """Bytes that a container's limit leaves, of cgroup v2 or v1 by the files that are in `folder`; None without a limit.

    Cached files count as free, because the kernel drops them first.
    """
    for limit, used, cached in _CGROUP_FILES:
        try:
            most, now = ((folder / name).read_text().strip() for name in (limit, used))
            stat = dict(line.split() for line in (folder / used).with_name("memory.stat").read_text().splitlines())
        except OSError:
            continue
        return None if most == "max" else max(0, int(most) - int(now) + int(stat.get(cached, 0)))
    return None


def computes_bfloat16(capabilities: Mapping[str, object] | None = None) -> bool:
    """Whether the processor has instructions for bfloat16 (AVX512-BF16, AMX, Arm's BF16); True where torch cannot tell.

    `capabilities` are torch's names for a processor's features; None uses those of this machine.
    """
    import torch

    if capabilities is None:
        capabilities = torch.cpu.get_capabilities() if hasattr(torch.cpu, "get_capabilities") else {}
    told = {name: bool(has) for name, has in capabilities.items() if "bf16" in name}
    return any(told.values()) or not told


def use_attention_of_any_shape() -> None:
    """Keep PyTorch, in this process, from using cuDNN's attention kernels, its choice for masked attention on recent GPUs.

    One is compiled for each new shape (about 60 ms on an H200, where a pass takes 27 ms), and shapes hardly repeat in our batches.
    """
    import torch

    torch.backends.cuda.enable_cudnn_sdp(False)


def inference_dtype(dtype: str, device: str) -> str:
    """A recipe's `dtype` on a device: `auto` is the type that the weights are stored in, or float32 if that is emulated in software."""
    return "float32" if dtype == "auto" and device == "cpu" and not computes_bfloat16() else dtype


def warn_of_slow_bfloat16(dtype: str, device: str, *, key: str) -> None:
    """Log one line if a model on this processor would be faster in float32; `key` is the recipe's key for the type."""
    if device == "cpu" and dtype == "bfloat16" and not computes_bfloat16():
        _log.warning(
            "this processor has no instructions for bfloat16 and computes it in software, many times slower than float32. Set %s: float32.",
            key,
        )
