"""Bring an index up to date: the new one is built beside it, with what did not change, and takes its place in one step."""

import ctypes
import os
import shutil
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from refinery.contract.records import Passage, write_records
from refinery.errors import RetrievalError, RunDirError
from refinery.indexes.build import PLAN_FILE, Build, Plan, finish_build, is_in_use, plan_build, write_build_corpus
from refinery.passages.corpus import WRITTEN_FILE, Corpus, Written
from refinery.retrievers.base import RetrieverConfig
from refinery.retrievers.index.manifest import MANIFEST_FILE, Manifest, check_name, check_options, read_manifest
from refinery.retrievers.search.build import build_retriever, load_retriever_config

_AT_FDCWD = -100
_RENAME_EXCHANGE = 2  # of renameat2(2)
_BEFORE = ".before"


@dataclass(frozen=True, slots=True)
class Update:
    """What `update_index` did. `num_reused` counts passages that were taken from the old index; it is None if nothing could be."""

    manifest: Manifest
    changed: bool
    num_reused: int | None = None


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
    build = plan_build(source, config or (_config_of(folder, previous) if previous else RetrieverConfig()), questions, added)
    if previous:
        _check_same(folder, previous, build.plan)
    work = folder.with_name(f"{folder.name}.update")
    written = _renewed_corpus(build, work)
    if previous and previous.corpus_hash == written.corpus_hash:
        shutil.rmtree(work)
        return Update(previous, changed=False)
    num_reused = _index_again(build, work, folder if previous else None)
    manifest = finish_build(build, work, written)
    _put_in_place(work, folder)
    return Update(manifest, changed=True, num_reused=num_reused)


def _previous(folder: Path) -> Manifest | None:
    """The manifest of the index to update, or None when there is none yet. Raises RunDirError for a folder of something else."""
    if not is_in_use(folder) or (folder / PLAN_FILE).exists():  # a plan: the first build was stopped
        return None
    if not (folder / MANIFEST_FILE).exists():
        raise RunDirError(f"{folder}: is not empty, and holds no index. Choose another --output.")
    return read_manifest(folder)


def _config_of(folder: Path, manifest: Manifest) -> RetrieverConfig:
    """The retriever and options that an index was built with."""
    return load_retriever_config(folder).model_copy(update={"index": None, "options": manifest.options})


def _check_same(folder: Path, previous: Manifest, plan: Plan) -> None:
    check_name(folder, previous, plan.name)
    check_options(folder, previous, plan.options)
    if previous.questions != plan.questions:
        raise RetrievalError(f"{folder}: was built --without other questions. Give the same ones, or build another index.")
    if bool(previous.added) != bool(plan.added):
        how = "with" if previous.added else "without"
        raise RetrievalError(f"{folder}: was built {how} --add. Update it {how} --add too, or build another index.")


def _renewed_corpus(build: Build, work: Path) -> Written:
    """The corpus, written into `work`. What an update that was stopped has built there stays only if its inputs were the same."""
    plan_file, marker = work / PLAN_FILE, work / WRITTEN_FILE
    stopped = [path.read_text(encoding="utf-8") for path in (plan_file, marker) if path.exists()]
    work.mkdir(parents=True, exist_ok=True)
    written = write_build_corpus(build, work)
    if stopped != [f"{build.plan.model_dump_json(exclude_none=True)}\n", f"{written.model_dump_json(exclude_none=True)}\n"]:
        for path in work.iterdir():
            if path.name not in Corpus.files:
                shutil.rmtree(path) if path.is_dir() else path.unlink()
        write_records(plan_file, [build.plan])
        write_records(marker, [written])
    return written


def _index_again(build: Build, work: Path, previous: Path | None) -> int | None:
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


def exchange(first: Path, second: Path) -> None:
    """Give each of two folders of one file system the other's name.

    Linux does this in one step. Elsewhere it takes three renames; a stop between them is repaired by `restore`.
    """
    if _exchanged_at_once(first, second):
        return
    third = first.with_name(first.name + _BEFORE)
    first.rename(third)
    second.rename(first)
    third.rename(second)


def restore(folder: Path) -> None:
    """Put a folder back in place that `exchange` had moved aside when it was stopped."""
    before = folder.with_name(folder.name + _BEFORE)
    if before.exists() and not folder.exists():
        before.rename(folder)


def _exchanged_at_once(first: Path, second: Path) -> bool:
    rename = getattr(ctypes.CDLL(None), "renameat2", None)
    return rename is not None and rename(_AT_FDCWD, os.fsencode(first), _AT_FDCWD, os.fsencode(second), _RENAME_EXCHANGE) == 0
