"""Run `python -m benchmarks.train [--json]`; run.py explains each figure."""

import sys

from benchmarks.command import measure_alone
from benchmarks.train.run import measure

if __name__ == "__main__":
    sys.exit(measure_alone("train", "Compare packed rows with padded ones and with TRL.", measure))
