"""How the project opens its SQLite files: the store of a teacher's replies and the cache of searches."""

import sqlite3
from pathlib import Path
from typing import Any

_LOCKED_SECONDS = 30


def open_database(path: Path, **options: Any) -> sqlite3.Connection:
    """The file, made where there is none, in WAL mode; `options` are those of `sqlite3.connect`.

    What is committed survives kill -9; a power cut may lose the last commits, which are then paid or searched for again. Raises
    sqlite3.Error and OSError.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    database = sqlite3.connect(path, timeout=_LOCKED_SECONDS, **options)
    database.execute("PRAGMA journal_mode=WAL")
    database.execute("PRAGMA synchronous=NORMAL")
    return database
