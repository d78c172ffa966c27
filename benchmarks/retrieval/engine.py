"""One engine in a separate process: builds an index, or searches it, and records the time taken.

python -m benchmarks.retrieval.engine JSON
"""

import asyncio
import json
import os
import resource
import sys
import time
from collections.abc import Awaitable, Callable, Sequence
from importlib import import_module
from pathlib import Path
from typing import Any, Literal

from refinery.contract.records import Record
from refinery.indexes.build import build_index, estimate_needs
from refinery.passages.corpus import searched_text
from refinery.passages.sources import iter_passages
from refinery.retrievers.base import RetrieverConfig
from refinery.retrievers.search.build import build_retriever, load_retriever_config
from refinery.runtime.recipes.shipped_files import shipped

BM25S = "bm25s"
_STEMMER = "porter"
K = 10

Search = Callable[[Sequence[str]], Awaitable[list[list[str]]]]


class Task(Record):
    """A measurement. `recipe` is None for bm25s itself, which has none."""

    action: Literal["build", "search"]
    recipe: str | None
    source: str
    folder: str
    output: str
    queries: list[str] = []
    rounds: int = 1
    cores: int | None = None


def main(argv: Sequence[str]) -> None:
    """Measure one task, on its first cores."""
    task = Task.model_validate_json(argv[0])
    os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[: task.cores])
    measured = _build(task) if task.action == "build" else asyncio.run(_search(task))
    Path(task.output).write_text(json.dumps(measured), encoding="utf-8")


def _build(task: Task) -> dict[str, Any]:
    source, folder = Path(task.source), Path(task.folder)
    config = _config(task)
    needs = estimate_needs(source, config) if config else None
    started, used = time.perf_counter(), _processor_seconds()
    build_index(source, folder, config) if config else _build_bm25s(source, folder)
    seconds, used = time.perf_counter() - started, _processor_seconds() - used
    return {
        "seconds": seconds,
        "processor_seconds": used,
        "estimated_bytes": needs.memory_bytes if needs else None,
        "disk_bytes": sum(file.stat().st_size for file in folder.rglob("*") if file.is_file()),
    }


async def _search(task: Task) -> dict[str, Any]:
    search = _opened(task) if task.recipe else _opened_bm25s(task)
    found = await search(task.queries)
    seconds = []
    used = time.process_time()
    for _ in range(task.rounds):
        started = time.perf_counter()
        await search(task.queries)
        seconds.append(time.perf_counter() - started)
    used = time.process_time() - used
    return {"found": found, "seconds": min(seconds), "processor_seconds": used / task.rounds}


def _config(task: Task) -> RetrieverConfig | None:
    return load_retriever_config(shipped(f"recipes/retrieval/{task.recipe}")) if task.recipe else None


def _processor_seconds() -> float:
    """CPU seconds of this process and of those that it has waited for."""
    used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(of.ru_utime + of.ru_stime for of in used)


def _opened(task: Task) -> Search:
    config = _config(task)
    assert config
    retriever = build_retriever(config.model_copy(update={"index": Path(task.folder)})).retriever

    async def search(queries: Sequence[str]) -> list[list[str]]:
        hits = await asyncio.gather(*(retriever.search(query, k=K) for query in queries))
        return [[hit.passage.id for hit in of] for of in hits]

    return search


def _bm25s() -> Any:
    """The library without JAX. If JAX is installed, importing bm25s would reserve most of a GPU's memory."""
    sys.modules.setdefault("jax", None)  # pyright: ignore[reportArgumentType] - an import of a module that is None fails
    return import_module("bm25s")


def _build_bm25s(source: Path, folder: Path) -> None:
    """Build an index as in bm25s's README, with our parameters."""
    import Stemmer

    bm25s = _bm25s()

    ids, texts = [], []
    for passage in iter_passages(source):
        ids.append(passage.id)
        texts.append(searched_text(passage))
    words = bm25s.tokenize(texts, stopwords="en", stemmer=Stemmer.Stemmer(_STEMMER), show_progress=False)
    index = bm25s.BM25(k1=0.9, b=0.4)
    index.index(words, show_progress=False)
    index.save(folder, show_progress=False)
    (folder / "ids.json").write_text(json.dumps(ids), encoding="utf-8")


def _opened_bm25s(task: Task) -> Search:
    import Stemmer

    bm25s = _bm25s()
    folder, threads = Path(task.folder), len(os.sched_getaffinity(0))
    index, ids = bm25s.BM25.load(folder, mmap=True), json.loads((folder / "ids.json").read_bytes())
    stemmer = Stemmer.Stemmer(_STEMMER)

    async def search(queries: Sequence[str]) -> list[list[str]]:
        words = bm25s.tokenize(list(queries), stopwords="en", stemmer=stemmer, show_progress=False)
        found, scores = index.retrieve(words, k=K, show_progress=False, n_threads=threads if threads > 1 else 0)
        return [
            [ids[place] for place, score in zip(*row, strict=True) if score > 0]
            for row in zip(found.tolist(), scores.tolist(), strict=True)
        ]

    return search


if __name__ == "__main__":
    main(sys.argv[1:])
