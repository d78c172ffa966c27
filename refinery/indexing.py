"""Build an index folder: first the corpus, then the retriever's index, then the manifest, which marks the folder as complete.

A stopped build can be continued. The memory and disk it needs are estimated before it starts. An update builds beside the index.
"""

import logging
import os
import shutil
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import chain, islice
from pathlib import Path
from typing import Any

from refinery.contract.records import Passage, Record, write_records
from refinery.errors import RetrievalError, RunDirError
from refinery.passages.corpus import WRITTEN_FILE, Corpus, Written, corpus_hash, read_written, write_corpus
from refinery.passages.decontaminate import contamination_check
from refinery.passages.sources import estimate_count, iter_passages, source_bytes
from refinery.retrievers.base import Indexing, RetrieverConfig, RetrieverPlugin
from refinery.retrievers.index.manifest import (
    MANIFEST_FILE,
    IndexedRetriever,
    Manifest,
    check_name,
    check_options,
    make_checks,
    read_manifest,
    sampled_checksum,
)
from refinery.retrievers.search.build import build_retriever, load_plugin, load_retriever_config, retriever_options
from refinery.runtime import plugins
from refinery.runtime.exchange import exchange, restore
from refinery.runtime.fingerprint import text_fingerprint

_logger = logging.getLogger(__name__)
_WORKING_FILES = _PLAN_FILE, _CORPUS_FILE = "plan.json", WRITTEN_FILE  # of an unfinished build
_SAMPLE = 1_000
_MIB = 1 << 20


class _Plan(Record):
    """The inputs of a build. They must be the same when it is continued."""

    source: str
    source_bytes: int
    name: str
    options: dict[str, Any]
    questions: str
    added: str = ""


@dataclass(frozen=True, slots=True)
class Update:
    """What `update_index` did. `num_reused` counts passages that were taken from the old index; it is None if nothing could be."""

    manifest: Manifest
    changed: bool
    num_reused: int | None = None


@dataclass(frozen=True, slots=True)
class Needs:
    """What a build takes, about: passages, and bytes of memory and of disk."""

    num_passages: int
    memory_bytes: int
    disk_bytes: int


def build_index(
    source: Path,
    folder: Path,
    config: RetrieverConfig,
    *,
    resume: bool = False,
    questions: Sequence[str] | None = None,
    added: Sequence[Passage] = (),
) -> Manifest:
    """Index the passages of `source` for the configured retriever, without those that contain one of `questions`, and then those `added`.

    Raises RecipeError for a retriever without an index, RunDirError for a folder in use, RecordError for passages that cannot be read,
    and RetrievalError when there is not enough disk or memory.
    """
    build = _build(source, config, questions, added)
    if finished := _open_folder(folder, build.plan, resume=resume):
        return finished
    written = _written_corpus(build, folder)
    build.indexing.build_index(Corpus(folder), folder, build.options)
    return _finish(build, folder, written)


def update_index(
    source: Path,
    folder: Path,
    config: RetrieverConfig | None = None,
    *,
    questions: Sequence[str] | None = None,
    added: Sequence[Passage] = (),
) -> Update:
    """Bring an index up to date with the passages of `source`, or build it if there is none.

    The new index is made in a folder beside it, which takes its place in one step; an update that was stopped is continued. Without
    `config`, the retriever is that of the index, or BM25. Raises RetrievalError for another retriever, options or questions than it was
    built with, and for an index that is damaged, besides the errors of `build_index`.
    """
    restore(folder)
    previous = _previous(folder)
    build = _build(source, config or (_config_of(folder, previous) if previous else RetrieverConfig()), questions, added)
    if previous:
        _check_same(folder, previous, build.plan)
    work = folder.with_name(f"{folder.name}.update")
    written = _renewed_corpus(build, work)
    if previous and previous.corpus_hash == written.corpus_hash:
        shutil.rmtree(work)
        return Update(previous, changed=False)
    num_reused = _index_again(build, work, folder if previous else None)
    manifest = _finish(build, work, written)
    _put_in_place(work, folder)
    return Update(manifest, changed=True, num_reused=num_reused)


@dataclass(frozen=True, slots=True)
class _Build:
    """What is built, and how."""

    source: Path
    config: RetrieverConfig
    plugin: RetrieverPlugin
    indexing: Indexing
    options: Any
    questions: Sequence[str]
    added: Sequence[Passage]
    plan: _Plan

    def passages(self) -> Iterator[Passage]:
        """What is indexed, in order."""
        return chain(iter_passages(self.source), self.added)


def _build(source: Path, config: RetrieverConfig, questions: Sequence[str] | None, added: Sequence[Passage]) -> _Build:
    plugin = load_plugin(config)
    if (indexing := plugin.indexing) is None:
        raise config.fault("name", f"{config.name} has no index. Build one for bm25 or dense, and name it in this retriever's options.")
    options = retriever_options(config)
    plan = _Plan(
        source=str(source),
        source_bytes=source_bytes(source),
        name=config.name,
        options=options.model_dump(mode="json"),
        questions=text_fingerprint(questions or []),
        added=corpus_hash(added) if added else "",
    )
    return _Build(source, config, plugin, indexing, options, questions or [], added, plan)


def _open_folder(folder: Path, plan: _Plan, *, resume: bool) -> Manifest | None:
    """Create the folder, or continue with an existing one. Returns the manifest if the index is complete."""
    plan_file = folder / _PLAN_FILE
    if folder.exists() and any(folder.iterdir()):
        if not resume:
            raise RunDirError(f"{folder}: is not empty. Choose another --output, or continue this one with --resume, or --update it.")
        if not plan_file.exists():
            return read_manifest(folder)
        if _Plan.model_validate_json(plan_file.read_text(encoding="utf-8")) != plan:
            raise RunDirError(f"{folder}: was started with other passages or options (see {_PLAN_FILE}). Choose another --output.")
        return None
    folder.mkdir(parents=True, exist_ok=True)
    write_records(plan_file, [plan])
    return None


def estimate_needs(source: Path, config: RetrieverConfig) -> Needs:
    """What `build_index` takes, from the source's size and its first passages. Raises RecipeError for a retriever without an index."""
    return _needs(_build(source, config, None, ()))


def _needs(build: _Build) -> Needs:
    total, sample = estimate_count(build.source) + len(build.added), list(islice(build.passages(), _SAMPLE))
    if not sample:
        return Needs(total, 0, 0)
    memory, disk = build.indexing.estimate_bytes(total, sample, build.options)
    return Needs(total, memory + 16 * total, disk + build.plan.source_bytes * 11 // 10)


def _check_room(build: _Build, folder: Path) -> int:
    """An estimate of the number of passages, after a check that their index fits this machine."""
    needs = _needs(build)
    memory, disk = needs.memory_bytes, needs.disk_bytes
    _logger.info(
        "%s: about %s passages, %d MiB of memory and %d MiB of disk",
        folder,
        f"{needs.num_passages:,}",
        memory // _MIB + 1,
        disk // _MIB + 1,
    )
    if disk > (free := shutil.disk_usage(folder).free):
        raise RetrievalError(
            f"{folder}: the index takes about {disk // _MIB:,} MiB, but {free // _MIB:,} MiB are free. Choose another disk."
        )
    if memory > (there := os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")):
        raise RetrievalError(
            f"{folder}: the index takes about {memory // _MIB:,} MiB of memory, but this machine has {there // _MIB:,}. "
            "Choose an index that takes less (bm25; for dense: faiss=Flat or an IVF,PQ)."
        )
    return needs.num_passages


def _written_corpus(build: _Build, folder: Path) -> Written:
    """The corpus in the folder, which is written unless an earlier build did so."""
    marker = folder / _CORPUS_FILE
    if not marker.exists():
        write_records(marker, [_write_corpus(build, folder)])
    return read_written(folder)


def _write_corpus(build: _Build, folder: Path) -> Written:
    total = _check_room(build, folder)
    return write_corpus(build.passages(), folder, total=total, drop=contamination_check(build.questions))


def _finish(build: _Build, folder: Path, written: Written) -> Manifest:
    """Write the manifest, open the index with it, and record what the index finds."""
    manifest = Manifest(
        **build.plan.model_dump(exclude={"source_bytes"}),
        files={str(path.relative_to(folder)): sampled_checksum(path) for path in _built_files(folder)},
        checks=[],
        **written.model_dump(),
    )
    write_records(folder / MANIFEST_FILE, [manifest])
    opened = build.config.model_copy(update={"passages": None, "index": folder})
    retriever = plugins.checked(build.plugin.build(opened, retriever_options(opened)), IndexedRetriever, f"retriever '{opened.name}'")
    manifest = manifest.model_copy(update={"checks": make_checks(Corpus(folder), retriever)})
    write_records(folder / MANIFEST_FILE, [manifest])
    for name in _WORKING_FILES:
        (folder / name).unlink()
    return manifest


def _built_files(folder: Path) -> list[Path]:
    """The files of the index. Hidden ones are an engine's locks."""
    found = (path for path in sorted(folder.rglob("*")) if path.is_file() and not path.name.startswith("."))
    return [path for path in found if path.name not in (*_WORKING_FILES, MANIFEST_FILE)]


def _previous(folder: Path) -> Manifest | None:
    """The manifest of the index to update, or None when there is none yet. Raises RunDirError for a folder of something else."""
    if not folder.exists() or not any(folder.iterdir()) or (folder / _PLAN_FILE).exists():  # a plan: the first build was stopped
        return None
    if not (folder / MANIFEST_FILE).exists():
        raise RunDirError(f"{folder}: is not empty, and holds no index. Choose another --output.")
    return read_manifest(folder)


def _config_of(folder: Path, manifest: Manifest) -> RetrieverConfig:
    """The retriever and options that an index was built with."""
    return load_retriever_config(folder).model_copy(update={"index": None, "options": manifest.options})


def _check_same(folder: Path, previous: Manifest, plan: _Plan) -> None:
    check_name(folder, previous, plan.name)
    check_options(folder, previous, plan.options)
    if previous.questions != plan.questions:
        raise RetrievalError(f"{folder}: was built --without other questions. Give the same ones, or build another index.")
    if bool(previous.added) != bool(plan.added):
        how = "with" if previous.added else "without"
        raise RetrievalError(f"{folder}: was built {how} --add. Update it {how} --add too, or build another index.")


def _renewed_corpus(build: _Build, work: Path) -> Written:
    """The corpus, written into `work`. What an update that was stopped has built there stays only if its inputs were the same."""
    plan_file, marker = work / _PLAN_FILE, work / _CORPUS_FILE
    stopped = [path.read_text(encoding="utf-8") for path in (plan_file, marker) if path.exists()]
    work.mkdir(parents=True, exist_ok=True)
    written = _write_corpus(build, work)
    if stopped != [f"{build.plan.model_dump_json(exclude_none=True)}\n", f"{written.model_dump_json(exclude_none=True)}\n"]:
        for path in work.iterdir():
            if path.name not in Corpus.files:
                shutil.rmtree(path) if path.is_dir() else path.unlink()
        write_records(plan_file, [build.plan])
        write_records(marker, [written])
    return written


def _index_again(build: _Build, work: Path, previous: Path | None) -> int | None:
    """Build the index in `work`, with what did not change from the one in `previous`. Returns how many passages that were."""
    if previous is None or build.indexing.reuse_index is None:
        build.indexing.build_index(Corpus(work), work, build.options)
        return None
    build_retriever(build.config.model_copy(update={"passages": None, "index": previous}))  # checks its files, and the encoder
    return build.indexing.reuse_index(Corpus(work), work, build.options, previous)


def _put_in_place(work: Path, folder: Path) -> None:
    if folder.exists():
        exchange(folder, work)
        shutil.rmtree(work)
    else:
        work.rename(folder)
