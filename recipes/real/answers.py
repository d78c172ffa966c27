"""Several runs of `infer` in one process, one after the other; what is small of each finished one is copied to a folder of results.

    python recipes/real/answers.py --results runs/proof/results --until 1790000000 -- RECIPE KEY=VALUE ... -- RECIPE KEY=VALUE ...
    python recipes/real/answers.py --results runs/proof/results --expand runs/proof/expanded   # for `refinery compare`

The last two folders of a run's `output_dir` name its setting and its system. No run begins after `--until`, in seconds since 1970. A run
with questions that failed is finished if they are at most one in a hundred. The exit code is the worst of all runs.
"""

import argparse
import gzip
import itertools
import json
import os
import shutil
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from infer.__main__ import main as infer
from infer.recipe import InferRecipe
from refinery.hub.push import card
from refinery.runtime.recipe import load_recipe

_MOST_FAILED = 0.01
_NOT_BEGUN = 3


def main(argv: Sequence[str] | None = None) -> int:
    """Do the runs; returns the exit code."""
    own, *runs = _parts(sys.argv[1:] if argv is None else argv)
    parser = argparse.ArgumentParser(prog="python recipes/real/answers.py", description="Several runs of infer in one process.")
    parser.add_argument("--results", type=Path, required=True)
    parser.add_argument("--until", type=float, default=float("inf"))
    parser.add_argument("--expand", type=Path)
    arguments = parser.parse_args(own)
    if arguments.expand:
        expand(arguments.results, arguments.expand)
    worst = max((_answer(run, arguments.results, arguments.until) for run in runs), default=0)
    if "jax" in sys.modules:
        print("JAX was imported, which takes most of the GPU's memory: find out by what.", file=sys.stderr)
        return 1
    return worst


def _parts(words: Sequence[str]) -> list[list[str]]:
    """The words between one `--` and the next."""
    return [list(part) for is_mark, part in itertools.groupby(words, key=lambda word: word == "--") if not is_mark]


def _answer(run: Sequence[str], results: Path, until: float) -> int:
    """The exit code of one run. One that dies does not end the others."""
    folder, began = load_recipe(Path(run[0]), InferRecipe, run[1:]).output_dir, time.time()
    if began > until:
        print(f"{folder}: not begun, no time left", flush=True)
        return _NOT_BEGUN
    try:
        code = infer([*run, "--resume"])
    except (Exception, SystemExit) as error:
        print(f"{folder}: {type(error).__name__}: {error}", file=sys.stderr, flush=True)
        code = 1
    print(f"{folder}: exit code {code} after {time.time() - began:.0f} s", flush=True)
    return 0 if code in (0, 2) and keep(folder, results) else code or 1


def keep(folder: Path, results: Path) -> bool:
    """Copy what is small of a finished run, the metrics last, because they say that it is finished. False if too many questions failed."""
    if not (folder / "metrics.json").exists():  # exit code 2 is also that of an error
        return False
    metrics = json.loads((folder / "metrics.json").read_text(encoding="utf-8"))
    if metrics["failed"] > _MOST_FAILED * metrics["questions"]:
        return False
    kept = results / folder.parent.name / folder.name
    kept.mkdir(parents=True, exist_ok=True)
    (kept / "scores.jsonl.gz").write_bytes(gzip.compress((folder / "scores.jsonl").read_bytes(), mtime=0))
    (kept / "device.txt").write_text(device_name(), encoding="utf-8")
    for name in ("run.json", "metrics.json"):
        shutil.copyfile(folder / name, kept / name)
    return True


def device_name() -> str:
    """The accelerator of this machine, or its processor cores."""
    import torch

    return torch.cuda.get_device_name() if torch.cuda.is_available() else f"CPU, {os.cpu_count()} cores"


def keep_model(folder: Path, results: Path, *, repository: str | None) -> None:
    """Copy the scores of a finished training run, and with a name write the card that `refinery push` would publish under it."""
    kept = results / folder.name
    kept.mkdir(parents=True, exist_ok=True)
    if repository:
        (kept / "README.md").write_text(card(folder, repository), encoding="utf-8")
    shutil.copyfile(folder / "metrics.json", kept / "metrics.json")


def expand(results: Path, output: Path) -> None:
    """Write the kept runs as `refinery compare` reads them."""
    for scores in sorted(results.glob("*/*/scores.jsonl.gz")):
        folder = output / scores.parent.relative_to(results)
        shutil.copytree(scores.parent, folder, dirs_exist_ok=True)
        (folder / "scores.jsonl").write_bytes(gzip.decompress((folder / "scores.jsonl.gz").read_bytes()))


if __name__ == "__main__":
    sys.exit(main())
