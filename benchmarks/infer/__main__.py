"""Run `python -m benchmarks.infer [--json]`; run.py explains each figure."""

import sys

from benchmarks.command import measure_alone
from benchmarks.infer.run import measure

if __name__ == "__main__":
    sys.exit(measure_alone("infer", "Compare the engine with plain decoders.", measure))
