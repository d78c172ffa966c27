"""Build an index folder: first the corpus, then the retriever's index, then the manifest, which marks the folder as complete.

A stopped build can be continued. The memory and disk it needs are estimated before it starts.
"""

import logging
import os
import shutil
from collections.abc import Sequence
from itertools import islice
from pathlib import Path
from typing import Any

from refinery.contract.records import Record, write_records
from refinery.errors import RetrievalError, RunDirError
from refinery.passages.corpus import Corpus, Written, write_corpus
from refinery.passages.decontaminate import contamination_check
from refinery.passages.sources import estimate_count, iter_passages, source_bytes
from refinery.retrievers.base import RetrieverConfig, RetrieverPlugin
from refinery.retrievers.index.manifest import MANIFEST_FILE, IndexedRetriever, Manifest, make_checks, read_manifest, sampled_checksum
from refinery.retrievers.search.build import load_plugin, retriever_options
from refinery.runtime import plugins
from refinery.runtime.fingerprint import text_fingerprint

_logger = logging.getLogger(__name__)
_WORKING_FILES = _PLAN_FILE, _CORPUS_FILE = "plan.json", "corpus.json"  # of an unfinished build
_SAMPLE = 1_000
_MIB = 1 << 20


class _Plan(Record):
    """The inputs of a build. They must be the same when it is continued."""

    source: str
    source_bytes: int
    name: str
    options: dict[str, Any]
    questions: str


def build_index(
    source: Path, folder: Path, config: RetrieverConfig, *, resume: bool = False, questions: Sequence[str] | None = None
) -> Manifest:
    """Index the passages of `source` for the configured retriever, without those that contain one of `questions`.

    Raises RecipeError for a retriever without an index, RunDirError for a folder in use, RecordError for passages that cannot be read,
    and RetrievalError when there is not enough disk or memory.
    """
    plugin = load_plugin(config)
    if (indexing := plugin.indexing) is None:
        raise config.fault("name", f"{config.name} has no index. Build one for bm25 or dense, and name it in this retriever's options.")
    options = retriever_options(config)
    sample = list(islice(iter_passages(source), _SAMPLE))
    plan = _Plan(
        source=str(source),
        source_bytes=source_bytes(source),
        name=config.name,
        options=options.model_dump(),
        questions=text_fingerprint(questions or []),
    )
    if finished := _open_folder(folder, plan, resume=resume):
        return finished
    total = estimate_count(source)
    if sample:
        _check_room(folder, indexing.estimate_bytes(total, sample, options), source_bytes(source), total)
    written = _written_corpus(source, folder, total, questions or [])
    indexing.build_index(Corpus(folder), folder, options)
    return _finish(folder, plan, written, plugin, config)


def _open_folder(folder: Path, plan: _Plan, *, resume: bool) -> Manifest | None:
    """Create the folder, or continue with an existing one. Returns the manifest if the index is complete."""
    plan_file = folder / _PLAN_FILE
    if folder.exists() and any(folder.iterdir()):
        if not resume:
            raise RunDirError(f"{folder}: is not empty. Choose another --output, or continue this one with --resume.")
        if not plan_file.exists():
            return read_manifest(folder)
        if _Plan.model_validate_json(plan_file.read_text(encoding="utf-8")) != plan:
            raise RunDirError(f"{folder}: was started with other passages or options (see {_PLAN_FILE}). Choose another --output.")
        return None
    folder.mkdir(parents=True, exist_ok=True)
    write_records(plan_file, [plan])
    return None


def _check_room(folder: Path, needed: tuple[int, int], corpus_bytes: int, total: int) -> None:
    memory, disk = needed[0] + 16 * total, needed[1] + corpus_bytes * 11 // 10
    _logger.info("%s: about %s passages, %d MiB of memory and %d MiB of disk", folder, f"{total:,}", memory // _MIB + 1, disk // _MIB + 1)
    if disk > (free := shutil.disk_usage(folder).free):
        raise RetrievalError(
            f"{folder}: the index takes about {disk // _MIB:,} MiB, but {free // _MIB:,} MiB are free. Choose another disk."
        )
    if memory > (there := os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")):
        raise RetrievalError(
            f"{folder}: the index takes about {memory // _MIB:,} MiB of memory, but this machine has {there // _MIB:,}. "
            "Choose an index that takes less (bm25; for dense: faiss=Flat or an IVF,PQ)."
        )


def _written_corpus(source: Path, folder: Path, total: int, questions: Sequence[str]) -> Written:
    """The corpus in the folder, which is written unless an earlier build did so."""
    marker = folder / _CORPUS_FILE
    if not marker.exists():
        written = write_corpus(iter_passages(source), folder, total=total, drop=contamination_check(questions))
        write_records(marker, [written])
    return Written.model_validate_json(marker.read_text(encoding="utf-8"))


def _finish(folder: Path, plan: _Plan, written: Written, plugin: RetrieverPlugin, config: RetrieverConfig) -> Manifest:
    """Write the manifest, open the index with it, and record what the index finds."""
    manifest = Manifest(
        name=plan.name,
        options=plan.options,
        source=plan.source,
        files={path.name: sampled_checksum(path) for path in sorted(folder.iterdir()) if path.name not in (*_WORKING_FILES, MANIFEST_FILE)},
        checks=[],
        **written.model_dump(),
    )
    write_records(folder / MANIFEST_FILE, [manifest])
    opened = config.model_copy(update={"passages": None, "index": folder})
    retriever = plugins.checked(plugin.build(opened, retriever_options(opened)), IndexedRetriever, f"retriever '{config.name}'")
    manifest = manifest.model_copy(update={"checks": make_checks(Corpus(folder), retriever)})
    write_records(folder / MANIFEST_FILE, [manifest])
    for name in _WORKING_FILES:
        (folder / name).unlink()
    return manifest
