"""`python -m benchmarks.retrieval`: our BM25 beside bm25s, over the same passages and questions, in one run.

Every measurement is a separate process. The corpora are drawn from the passages of `recipes/real`, and the queries are its questions.
Per engine and size (10k, 1m):

- `index_us_per_passage`: CPU time of the build and all its processes, from a file of passages to a folder, without imports.
- `index_seconds`: its wall time.
- `queries_per_cpu_second`: queries over CPU time, when all questions are asked at once on one core, for 10 hits.
- `queries_per_second`: the best of a few rounds, on all cores.
- `two_core_speedup`: the best round on two cores over the best on one.
- `estimate_over_peak`: the build's own estimate of its memory, over the peak of its processes together.
- `recall`: the mean share of a question's supporting paragraphs with a passage among the 10 hits.
- `recall_equal`, over all sizes: whether recall is within one point of bm25s's.
"""

import sys
import tempfile
import time
from collections.abc import Sequence
from contextlib import suppress
from importlib.util import find_spec
from pathlib import Path
from statistics import fmean
from typing import Any

import psutil
from pydantic_core import from_json

from benchmarks.retrieval.drawn_corpus import draw_passages
from benchmarks.retrieval.engine import BM25S, Task
from refinery.contract.records import Passage, Question, write_records
from refinery.errors import RecordError, RetrievalError
from refinery.passages.sources import iter_passages
from refinery.questions.base import read_named_questions
from refinery.runtime.recipes.shipped_files import shipped

_DATA = "recipes/real/data"
_QUESTIONS = {"hotpotqa": "hotpotqa/*.json", "two_wiki": "two_wiki/*.json", "musique": "musique/*.jsonl"}
OURS = "refinery"
_RECIPES = {OURS: "bm25.yaml", BM25S: None}
_ROUNDS = 5
_POINT = 0.01
_SECONDS_BETWEEN_LOOKS = 0.02


def measure(sizes: Sequence[int]) -> dict[str, Any]:
    """Ours at the top, and bm25s under its name. Raises RecordError outside of a checkout, and without bm25s."""
    if not find_spec(BM25S):
        raise RecordError("python -m benchmarks.retrieval compares with bm25s, which is not installed. Install it: pip install bm25s")
    real, questions = _real_passages(), _real_questions()
    queries, gold = [question.text for question in questions], _gold_of(questions, real)
    figures: dict[str, dict[str, Any]] = {name: {} for name in _RECIPES}
    with tempfile.TemporaryDirectory() as folder:
        for size in sizes:
            source = Path(folder) / f"{size}.jsonl"
            write_records(source, draw_passages(real, size))
            measured = {name: _measured(recipe, source, size, queries, gold) for name, recipe in _RECIPES.items()}
            for name, values in measured.items():
                equal = abs(values["recall"] - measured[BM25S]["recall"]) <= _POINT
                figures[name] |= {f"{key}_{_named(size)}": value for key, value in values.items()}
                figures[name]["recall_equal"] = figures[name].get("recall_equal", True) and equal
    return {**figures.pop(OURS), **figures}


def _named(size: int) -> str:
    for unit, name in ((1_000_000, "m"), (1_000, "k")):
        if size % unit == 0:
            return f"{size // unit}{name}"
    return str(size)


def _measured(recipe: str | None, source: Path, size: int, queries: Sequence[str], gold: Sequence[list[set[str]]]) -> dict[str, Any]:
    """All lines of one engine."""
    with tempfile.TemporaryDirectory(dir=source.parent) as folder:
        task = Task(action="build", recipe=recipe, source=str(source), folder=f"{folder}/index", output=f"{folder}/measured.json")
        built, peak = _run(task)
        search = task.model_copy(update={"action": "search", "queries": list(queries), "rounds": _ROUNDS})
        (one, _), (two, _) = (_run(search.model_copy(update={"cores": cores})) for cores in (1, 2))
    return {
        "index_us_per_passage": round(built["processor_seconds"] / size * 1e6, 1),
        "index_seconds": round(built["seconds"], 2),
        "index_mb": round(built["disk_bytes"] / 1e6, 1),
        "peak_mb": round(peak / 1e6),
        "estimate_over_peak": round(built["estimated_bytes"] / peak, 2) if built["estimated_bytes"] else None,
        "queries_per_cpu_second": round(len(queries) / one["processor_seconds"]),
        "queries_per_second": round(len(queries) / two["seconds"]),
        "two_core_speedup": round(one["seconds"] / two["seconds"], 2),
        "recall": round(_recall(two["found"], gold), 4),
    }


def _run(task: Task) -> tuple[dict[str, Any], int]:
    """The figures measured by a process, and the peak memory of it and its children together."""
    process = psutil.Popen([sys.executable, "-m", "benchmarks.retrieval.engine", task.model_dump_json()])
    peak = 0
    while process.poll() is None:
        peak = max(peak, _resident_bytes(process))
        time.sleep(_SECONDS_BETWEEN_LOOKS)
    if process.returncode:
        raise RetrievalError(f"{task.recipe or BM25S}: its {task.action} ended with status {process.returncode}; its error is above.")
    return from_json(Path(task.output).read_bytes()), peak


def _resident_bytes(process: psutil.Process) -> int:
    found = 0
    with suppress(psutil.NoSuchProcess):
        for one in [process, *process.children(recursive=True)]:
            with suppress(psutil.NoSuchProcess):
                found += one.memory_info().rss
    return found


def _real_passages() -> list[Passage]:
    file = shipped(f"{_DATA}/passages.jsonl")
    if not file.exists():
        raise RecordError(f"{file}: is missing. `python -m benchmarks.retrieval` is run from a checkout, which has recipes/real/data.")
    return list(iter_passages(file))


def _real_questions() -> list[Question]:
    files = [(reader, file) for reader, pattern in _QUESTIONS.items() for file in sorted(shipped(_DATA).glob(pattern))]
    return read_named_questions([f"{reader}={file}" for reader, file in files])


def _gold_of(questions: Sequence[Question], real: Sequence[Passage]) -> list[list[set[str]]]:
    """For each question and supporting paragraph, the ids of the passages that were cut from it."""
    by_title: dict[str, list[Passage]] = {}
    for passage in real:
        by_title.setdefault(passage.title, []).append(passage)
    return [
        [
            {one.id for one in by_title.get(paragraph.title, []) if " ".join(one.text.split()) in " ".join(paragraph.text.split())}
            for paragraph in question.passages or []
            if paragraph.id in (question.supporting or [])
        ]
        for question in questions
    ]


def _recall(found: Sequence[Sequence[str]], gold: Sequence[list[set[str]]]) -> float:
    return fmean(fmean(not group.isdisjoint(ids) for group in groups) for ids, groups in zip(found, gold, strict=True) if groups)
