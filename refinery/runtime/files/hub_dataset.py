"""A dataset on the Hugging Face hub, named where a file could be: `owner/name:split`.

`owner/name@revision:split?config=NAME` pins a branch, tag or commit and chooses one of several configurations. Other values after the
question mark are for the reader: the columns that hold its fields. The rows stay in the cache of the `datasets` library.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Any, cast
from urllib.parse import parse_qsl

from refinery.errors import RecordError
from refinery.runtime.files.fingerprint import file_fingerprint

_ADDRESS = re.compile(r"(?P<name>[^:?@]+)(@(?P<revision>[^:?]+))?(:(?P<split>[^?]+))?(\?(?P<query>.*))?")
_HUB_NAME = re.compile(r"[\w-][\w.-]*/[\w-][\w.-]*")
_COMMIT = re.compile(r"[0-9a-f]{40}")
_FILE_SUFFIXES = (".jsonl", ".json", ".tsv", ".csv", ".txt", ".parquet", ".gz")
# The hub's own conversion of a dataset whose repository has a loading script, which is never run.
_CONVERTED = "refs/convert/parquet"


@dataclass(frozen=True, slots=True)
class HubDataset:
    """One split of a dataset. `options` are the name=value pairs of its address, without `config`."""

    address: str
    name: str
    split: str
    revision: str | None = None
    config: str | None = None
    options: dict[str, str] = field(default_factory=dict[str, str], hash=False)

    def rows(self) -> Iterator[tuple[str, dict[str, Any]]]:
        """(where, values) of every row; missing fields are null. Raises RecordError if it cannot be loaded."""
        for number, values in enumerate(self._load(), 1):
            yield f"{self.address}: row {number}", values

    @property
    def columns(self) -> list[str]:
        """The names of its columns."""
        return list(self._load().column_names)

    @property
    def num_rows(self) -> int:
        """The number of rows."""
        return len(self._load())

    @property
    def commit(self) -> str | None:
        """The commit of the rows; None for a folder on this machine."""
        return _commit(self._load())

    def _load(self) -> Any:
        try:
            loaded = _loaded(self.name, self.revision, self.config, self.split)
        except (OSError, ValueError, RuntimeError) as error:
            reason = " ".join(str(error).split()).rstrip(".")
            raise RecordError(f"{self.address}: cannot be loaded from the hub ({reason[:400]}).") from None
        if self.revision and _COMMIT.fullmatch(self.revision) and (found := _commit(loaded)) != self.revision:
            raise RecordError(f"{self.address}: the hub cannot be reached, and its cache has only revision {found}. Load it online first.")
        return loaded


def parse_address(address: str, *, split: str | None = None) -> HubDataset | None:
    """The dataset of an address, or None for a text of another form. `split` is the default for an address without one."""
    found = _ADDRESS.fullmatch(address)
    if found is None or not (found["split"] or split):
        return None
    options = dict(parse_qsl(found["query"] or ""))
    config = options.pop("config", None)
    return HubDataset(address, found["name"], found["split"] or split or "", found["revision"], config, options)


def hub_dataset(path: Path, *, split: str | None = None) -> HubDataset | None:
    """The dataset that a recipe names instead of a file, or None if `path` is a file or could only be one."""
    dataset = parse_address(str(path), split=split)
    if dataset is None or not _HUB_NAME.fullmatch(dataset.name) or path.exists():
        return None
    has_split = dataset.address != dataset.name
    return dataset if has_split or not dataset.name.endswith(_FILE_SUFFIXES) else None


def with_split(path: Path, split: str = "train") -> Path:
    """The address of a dataset named instead of a file, with this split if it names none; any other path unchanged."""
    if hub_dataset(path) is not None or hub_dataset(path, split=split) is None:
        return path
    name, mark, options = str(path).partition("?")
    return Path(f"{name}:{split}{mark}{options}")


def source_fingerprint(path: Path) -> str | None:
    """The fingerprint of a file's bytes, or the commit of a dataset named instead of a file; None for a folder."""
    dataset = hub_dataset(path, split="train")
    return file_fingerprint(path) if path.is_file() else dataset and dataset.commit


def without_nulls(values: Any) -> Any:
    """Decoded values without the nulls that a table writes for missing fields."""
    if isinstance(values, dict):
        return {name: without_nulls(value) for name, value in cast("dict[str, Any]", values).items() if value is not None}
    return [without_nulls(value) for value in cast("list[Any]", values)] if isinstance(values, list) else values


def _commit(loaded: Any) -> str | None:
    """The commit of a loaded dataset, from its path in the cache, which has a folder for each commit."""
    found = Path(loaded.cache_files[0]["filename"]).parent.name if loaded.cache_files else ""
    return found if _COMMIT.fullmatch(found) else None


@cache
def _loaded(name: str, revision: str | None, config: str | None, split: str) -> Any:
    load_dataset: Any = import_module("datasets").load_dataset  # its type is an overload that refers to other libraries
    try:
        return load_dataset(name, config, split=split, revision=revision)
    except (RuntimeError, ValueError) as error:
        # The second error is about a copy in the cache, which `datasets` tries after the first.
        if not any(text in str(error) for text in ("scripts are no longer supported", "Couldn't find cache")):
            raise
    return load_dataset(name, data_dir=config, split=split, revision=_CONVERTED)
