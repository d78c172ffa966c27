"""Memory and time of encoding as many rows as RQ-RAG trains on, and of the trainer's dataset of them, in a process of its own.

    python -m benchmarks.train.encoding [--rows 42810]

Trajectories are of random words, as long as the paper's (`rows.py`), with the demo's tokenizer. `in_lists` is what the same rows would take
as lists of Python numbers, counted on a few hundred.
"""

import json
import random
import time
import tracemalloc
from argparse import ArgumentParser
from pathlib import Path
from typing import Any

import psutil

from benchmarks.train.rows import row_lengths
from refinery.contract.records import Passage, Step, Trajectory
from refinery.contract.segments import encode
from refinery.contract.tokenizer import Tokenizer
from refinery.llms.weights.checkpoint import load_tokenizer
from train.families.vocabulary import control_tokens_of, extend_tokenizer
from train.recipe import TrainRecipe
from train.rows.data import encode_rows, row_segments
from train.rows.packing import build_dataset

_BASE = str(Path(__file__).parents[2] / "refinery" / "demo" / "checkpoint")
_KEPT = 300  # rows kept as lists


def main() -> None:
    """Print the figures as JSON."""
    parser = ArgumentParser(prog="python -m benchmarks.train.encoding")
    parser.add_argument("--rows", type=int, default=42_810, help="RQ-RAG's number")
    print(json.dumps(measure(parser.parse_args().rows), indent=2))


def measure(count: int) -> dict[str, Any]:
    """MB that the process grew by at each stage, kB a row, and seconds of encoding."""
    values = {"task": "refinement", "base": _BASE, "data": ["random"], "output_dir": "random", "learning_rate": 1e-4, "packing": True}
    recipe = TrainRecipe.model_validate(values)
    tokenizer, _ = extend_tokenizer(load_tokenizer(_BASE), control_tokens_of(recipe))
    records = _records(count)
    in_lists = _size_in_lists(records[:_KEPT], recipe, tokenizer)
    began = time.perf_counter()
    (rows, _), encoded = _grown(lambda: encode_rows(records, recipe, tokenizer))
    seconds = time.perf_counter() - began
    dataset, packed = _grown(lambda: build_dataset(rows, bin_length=recipe.max_length))
    return {
        "rows": len(rows),
        "tokens": rows.starts[-1],
        "bins": len(dataset),
        "encoded_mb": round(encoded / 1e6),
        "dataset_mb": round(max(packed, 0) / 1e6),
        "kb_a_row": round((encoded + max(packed, 0)) / len(rows) / 1e3, 1),
        "kb_a_row_in_lists": round(in_lists / 1e3, 1),
        "encode_seconds": round(seconds, 1),
    }


def _grown(build: Any) -> tuple[Any, int]:
    """(what is built, bytes that this process holds more than before)."""
    process = psutil.Process()
    before = process.memory_info().rss
    built = build()
    return built, process.memory_info().rss - before


def _size_in_lists(records: list[Trajectory], recipe: TrainRecipe, tokenizer: Tokenizer) -> float:
    """Mean bytes of a row whose ids, labels and kinds are lists."""
    tracemalloc.start()
    kept = [encode(row_segments(record, recipe, tokenizer), tokenizer) for record in records]
    size = tracemalloc.get_traced_memory()[0] / len(kept)
    tracemalloc.stop()
    return size


def _records(count: int) -> list[Trajectory]:
    """Trajectories of one search, of about as many tokens as the paper's."""
    rng = random.Random(0)
    words = [line for line in Path(__file__).read_text(encoding="utf-8").split() if line.isalpha()]
    return [_record(str(number), length, words, rng) for number, length in enumerate(row_lengths(count, random.Random(0)))]


def _record(name: str, length: int, words: list[str], rng: random.Random) -> Trajectory:
    text = [" ".join(rng.choices(words, k=max(length // 8, 4))) for _ in range(3)]
    passages = [Passage(id=f"{name}-{i}", title=name, text=part) for i, part in enumerate(text)]
    search = Step(action="rewrite", text=f"who wrote {name}", passages=passages)
    return Trajectory(question_id=name, question=f"Who wrote {name}?", steps=[search, Step(action="answer", text="Maria")])


if __name__ == "__main__":
    main()
