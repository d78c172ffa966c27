"""Passages from the files people have: JSON Lines, Parquet, DPR's `psgs_w100.tsv`, a folder of such files, or a folder of documents.

JSON Lines and tables may be compressed with gzip. Every source is read lazily, so memory does not grow with its size.
"""

import csv
from collections.abc import Iterator
from itertools import islice
from pathlib import Path

from pydantic import ValidationError

from refinery.contract.records import Passage
from refinery.errors import RecordError
from refinery.passages.documents.read import document_bytes, document_files, document_name
from refinery.passages.documents.reader_process import read_document
from refinery.passages.layouts import Layout, layout_of
from refinery.passages.lines import byte_lines, format_of, line_text, opened, unpacked_bytes
from refinery.passages.settings import DEFAULT_SETTINGS, SplitSettings
from refinery.passages.split import split_document
from refinery.text import without_mark

_LONGEST_FIELD = 1 << 30  # csv refuses fields over 128 KiB by default
_SAMPLE = 1_000
_FORMATS = (".jsonl", ".parquet", ".tsv")


def iter_passages(path: Path, settings: SplitSettings = DEFAULT_SETTINGS) -> Iterator[Passage]:
    """The passages of a source, in its order. `settings` say how documents are cut; by default into at most 100 words.

    Raises RecordError for a line, row or document that cannot be read, naming it and the file, and for an unknown format.
    """
    if files := passage_files(path):
        return (_named(passage, file, path) for file in files for passage in iter_passages(file))
    if path.is_dir():
        return (passage for file in document_files(path) for passage in _of_document(file, path, settings))
    readers = {".jsonl": _of_json_lines, ".parquet": _of_parquet, ".tsv": _of_dpr}
    if (name := format_of(path)) not in readers:
        raise RecordError(
            f"{path}: '{name}' is not a format of passages. Give .jsonl, .parquet, DPR's .tsv, a folder of these, or a folder of documents."
        )
    return readers[name](path)


def passage_files(folder: Path) -> list[Path]:
    """The files of a folder that contains only passage files, such as Atlas' two for one dump; empty for any other source."""
    files = sorted(path for path in folder.iterdir() if not path.name.startswith(".")) if folder.is_dir() else []
    return files if all(path.is_file() and format_of(path) in _FORMATS for path in files) else []


def _named(passage: Passage, file: Path, folder: Path) -> Passage:
    """The passage with its file's name in its id, because each file of a dump may count its passages from 0."""
    return passage.model_copy(update={"id": f"{document_name(file, folder).partition('.')[0]}:{passage.id}"})


def estimate_count(path: Path) -> int:
    """The estimated number of passages in a source, from its size and its first thousand passages. Exact for Parquet."""
    if files := passage_files(path):
        return sum(map(estimate_count, files))
    if path.suffix == ".parquet":
        import pyarrow.parquet as pq

        return pq.ParquetFile(path).metadata.num_rows
    if path.is_dir():
        return _estimate_documents(path)
    sample = list(islice(iter_passages(path), _SAMPLE))
    if len(sample) < _SAMPLE:
        return len(sample)
    framing = len('{"id": "", "title": "", "text": ""}\n') if format_of(path) == ".jsonl" else 3
    mean_bytes = sum(len(f"{p.id}{p.title}{p.text}".encode()) + framing for p in sample) / len(sample)
    return round(source_bytes(path) / mean_bytes)


def source_bytes(path: Path) -> int:
    """The uncompressed bytes of a source's files; estimated for compressed ones."""
    files = passage_files(path) or (document_files(path) if path.is_dir() else [path])
    return sum(map(unpacked_bytes, files))


def _estimate_documents(folder: Path) -> int:
    """An estimate from the first documents, by the bytes of their files, because a PDF is much larger than its text."""
    num_passages, num_bytes = 0, 0
    for file in document_files(folder):
        num_passages += sum(1 for _ in _of_document(file, folder, DEFAULT_SETTINGS))
        num_bytes += file.stat().st_size
        if num_passages >= _SAMPLE:
            break
    return round(num_passages * source_bytes(folder) / max(num_bytes, 1))


def _of_json_lines(path: Path) -> Iterator[Passage]:
    layout: Layout | None = None
    for number, line in enumerate(byte_lines(path), 1):
        if row := (without_mark(line) if number == 1 else line).strip():
            layout = layout or layout_of(row)
            yield layout(row, f"{path}:{number}")


def _of_document(file: Path, folder: Path, settings: SplitSettings) -> Iterator[Passage]:
    return split_document(read_document(document_bytes(file), file), document_name(file, folder), settings)


def _of_dpr(path: Path) -> Iterator[Passage]:
    """DPR's columns: id, text, title, with a header and the text in quotes."""
    for number, line in enumerate(byte_lines(path), 1):  # one by one: in csv over the whole file, a stray quote would swallow many passages
        fields = _fields(line_text(line, path, number))
        if len(fields) != 3:
            raise RecordError(f"{path}:{number}: has {len(fields)} columns. Expected DPR's three: id, text, title.")
        if number > 1 or fields[0] != "id":
            yield Passage(id=fields[0], title=fields[2], text=fields[1])


def _fields(line: str) -> list[str]:
    """The columns of one tab-separated line with quotes. The csv module's field limit is global, so it is restored."""
    before = csv.field_size_limit(_LONGEST_FIELD)
    try:
        return next(csv.reader([line], delimiter="\t"), [])
    finally:
        csv.field_size_limit(before)


def _of_parquet(path: Path) -> Iterator[Passage]:
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        table = pq.ParquetFile(opened(path))
    except pa.ArrowInvalid as error:
        raise RecordError(f"{path}: not a Parquet file ({error}).") from None
    columns = [name for name in ("id", "title", "text") if name in table.schema_arrow.names]
    if not {"id", "text"} <= set(columns):
        raise RecordError(f"{path}: has columns {', '.join(table.schema_arrow.names)}. Expected id, text and, where there are any, title.")
    read = 0
    for batch in table.iter_batches(batch_size=_SAMPLE, columns=columns):
        try:
            rows = batch.to_pylist()
        except UnicodeDecodeError as error:
            raise RecordError(f"{path}: not UTF-8 in rows {read + 1} to {read + len(batch)} ({error.reason}).") from None
        for number, values in enumerate(rows, read + 1):
            yield _parquet_passage(values, f"{path}: row {number}")
        read += len(rows)


def _parquet_passage(values: dict[str, object], where: str) -> Passage:
    try:
        return Passage.model_validate(values | {"id": str(values["id"]), "title": values.get("title") or ""})
    except ValidationError as error:
        raise RecordError(f"{where}: {error.errors()[0]['msg']}. Expected a Passage row.") from None
