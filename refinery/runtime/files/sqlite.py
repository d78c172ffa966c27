"""Open the project's SQLite files: the store of a teacher's replies and the cache of searches."""

import sqlite3
from pathlib import Path
from typing import Any

_LOCKED_SECONDS = 30


def open_database(path: Path, **options: Any) -> sqlite3.Connection:
    """The file in WAL mode, created if it does not exist. `options` are passed to `sqlite3.connect`.

    Committed rows survive kill -9. A power failure may lose the last commits, which are then requested again. Raises sqlite3.Error and
    OSError.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    database = sqlite3.connect(path, timeout=_LOCKED_SECONDS, **options)
    database.execute("PRAGMA journal_mode=WAL")
    database.execute("PRAGMA synchronous=NORMAL")
    return database
