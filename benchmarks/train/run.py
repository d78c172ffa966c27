"""The measurements of `python -m benchmarks.train`: packed rows compared with padded ones and with TRL, and GPU utilization."""

import json
import os
import subprocess
import sys
from typing import Any


def measure(*, num_rows: int = 48, repeats: int = 3, hidden_size: int = 256, layers: int = 4) -> dict[str, Any]:
    """Ratios of supervised tokens per second on one thread of the CPU (benchmarks/train/arms.py), and `mfu` on a GPU, else null.

    About three minutes on an idle core. The comparison runs in a separate process with one thread and no GPU.
    """
    sizes = {"num_rows": num_rows, "repeats": repeats, "hidden_size": hidden_size, "layers": layers}
    done = subprocess.run(
        [sys.executable, "-m", "benchmarks.train.arms", json.dumps(sizes)],
        env=os.environ | {"CUDA_VISIBLE_DEVICES": "", "OMP_NUM_THREADS": "1"},
        stdout=subprocess.PIPE,
        text=True,
        check=True,
    )
    figures = {name: _rounded(value) for name, value in json.loads(done.stdout).items()}
    from benchmarks.train.mfu import measure_mfu

    return figures | measure_mfu()


def _rounded(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _rounded(part) for name, part in value.items()}
    return float(f"{value:.3g}") if isinstance(value, float) else value
