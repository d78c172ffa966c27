"""Passages from the files people have: JSON Lines, Parquet, DPR's `psgs_w100.tsv`, or a folder of text and Markdown files.

Every source is read lazily, so memory does not grow with its size.
"""

import csv
import re
from collections.abc import Iterator
from itertools import islice
from pathlib import Path

from pydantic import ValidationError

from refinery.contract.records import Passage, iter_records
from refinery.errors import RecordError
from refinery.passages.split import split_text
from refinery.text import not_utf8, without_mark

DOCUMENT_SUFFIXES = (".md", ".txt")
_LONGEST_FIELD = 1 << 30  # csv refuses fields over 128 KiB by default
_SAMPLE = 1_000


def iter_passages(path: Path, *, words_per_passage: int = 100) -> Iterator[Passage]:
    """The passages of a source, in its order. Documents are cut into passages of at most 100 words, as in DPR (Sec. 4.1).

    Raises RecordError for a line or row that cannot be read, naming it and the file, and for an unknown format.
    """
    if path.is_dir():
        return _of_documents(path, words_per_passage)
    readers = {".jsonl": _of_json_lines, ".parquet": _of_parquet, ".tsv": _of_dpr}
    if path.suffix not in readers:
        raise RecordError(
            f"{path}: '{path.suffix}' is not a format of passages. Give .jsonl, .parquet, DPR's .tsv, or a folder of .txt and .md files."
        )
    return readers[path.suffix](path)


def iter_documents(folder: Path) -> Iterator[tuple[Path, str, str]]:
    """(file, title, text) of every .txt and .md file under `folder`, sorted by name.

    The title is the first line if that is a heading, else the file's name. Raises RecordError when there is no text to read.
    """
    files = sorted(path for path in folder.rglob("*") if path.suffix.lower() in DOCUMENT_SUFFIXES and path.is_file())
    if not files:
        raise RecordError(f"{folder}: holds no text in files ending in {' or '.join(DOCUMENT_SUFFIXES)}. Name a folder of documents.")
    for file in files:
        text = _decoded(file)
        first, _, rest = text.lstrip().partition("\n")
        if file.suffix.lower() == ".md" and first.startswith("# "):
            yield file, first.lstrip("# ").strip(), rest
        else:
            yield file, re.sub(r"[_-]+", " ", file.stem), text


def estimate_count(path: Path) -> int:
    """An estimate of how many passages a source holds, from its size and its first thousand passages. Exact for Parquet."""
    if path.suffix == ".parquet":
        import pyarrow.parquet as pq

        return pq.ParquetFile(path).metadata.num_rows
    sample = list(islice(iter_passages(path), _SAMPLE))
    if len(sample) < _SAMPLE:
        return len(sample)
    framing = len('{"id": "", "title": "", "text": ""}\n') if path.suffix == ".jsonl" else 3
    mean_bytes = sum(len(f"{p.id}{p.title}{p.text}".encode()) + framing for p in sample) / len(sample)
    return round(source_bytes(path) / mean_bytes)


def source_bytes(path: Path) -> int:
    """The bytes of a source's files."""
    if path.is_dir():
        return sum(file.stat().st_size for file in path.rglob("*") if file.suffix.lower() in DOCUMENT_SUFFIXES)
    return path.stat().st_size


def _of_json_lines(path: Path) -> Iterator[Passage]:
    return iter_records(path, Passage)


def _of_documents(folder: Path, words_per_passage: int) -> Iterator[Passage]:
    for file, title, text in iter_documents(folder):
        for number, passage in enumerate(split_text(text, words_per_passage), 1):
            yield Passage(id=f"{file.relative_to(folder).as_posix()}:{number}", title=title, text=passage)


def _of_dpr(path: Path) -> Iterator[Passage]:
    """DPR's columns: id, text, title, with a header and the text in quotes."""
    with _opened(path).open("rb") as file:
        for number, line in enumerate(file, 1):  # line by line: in csv over the whole file, a stray quote would swallow many passages
            fields = _fields(_line_text(line, path, number))
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
        table = pq.ParquetFile(_opened(path))
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


def _opened(path: Path) -> Path:
    """The path, after a check that the file can be read."""
    try:
        path.open("rb").close()
    except OSError as error:
        raise RecordError(f"{path}: cannot be read ({error.strerror}). Check the path.") from None
    return path


def _decoded(file: Path) -> str:
    return "".join(_line_text(line, file, number) for number, line in enumerate(_opened(file).read_bytes().splitlines(keepends=True), 1))


def _line_text(line: bytes, path: Path, number: int) -> str:
    try:
        return (without_mark(line) if number == 1 else line).decode()
    except UnicodeDecodeError as error:
        raise RecordError(f"{path}:{number}: {not_utf8(line, error, of=' of the line')}") from None
