"""A reply store in one SQLite file.

Each value is stored with a digest of its key and itself, so a value that the disk has corrupted is a miss and never becomes a label.

SQLite runs in WAL mode, without a separate thread: everything from one turn of the event loop is committed together at its end. A commit
appends to the log and does not wait for the disk; a writer thread was not faster in `python -m benchmarks.distill`.
"""

import asyncio
import fcntl
import json
import logging
import sqlite3
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path
from typing import Any, TextIO

from pydantic_core import from_json

from refinery.errors import RunDirError
from refinery.runtime.files.fingerprint import checksum
from refinery.runtime.files.sqlite import open_database
from refinery.stores.base import ReplyStore, StorePlugin

_Item = tuple[str, tuple[Any, ...], asyncio.Future[None]]
_log = logging.getLogger(__name__)
_TABLES = (
    "CREATE TABLE IF NOT EXISTS effects (key BLOB PRIMARY KEY, value BLOB NOT NULL, digest BLOB NOT NULL) WITHOUT ROWID",
    "CREATE TABLE IF NOT EXISTS batches (id TEXT UNIQUE NOT NULL, keys TEXT NOT NULL)",
    "CREATE TABLE IF NOT EXISTS costs (job BLOB PRIMARY KEY, value BLOB NOT NULL, digest BLOB NOT NULL)",
)
_DAMAGED = ("SQLITE_CORRUPT", "SQLITE_NOTADB")


class SqliteStore(ReplyStore):
    """Values by key. Only one process can open it at a time.

    Raises RunDirError if the file is in use, is not a store, or cannot be written (a full disk).
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._lock, self._is_new = _locked(path), not path.exists()
        try:
            self._database = _open(path)
            # Replies of a version without digests, whose keys included the server; they are read if there is no newer reply.
            self.has_undigested = _set_aside_undigested(self._database)
            for table in _TABLES:
                self._database.execute(table)
            self._database.commit()
        except sqlite3.Error as error:
            self._lock.close()
            raise self._unusable(error) from None
        self._unwritten: list[_Item] = []
        self._num_damaged = 0

    def get(self, key: bytes) -> Any | None:
        """The value of a key, or None if there is none or it differs from the value that was put."""
        # One transaction covers many reads, because starting one costs as much as two reads. It ends before writes, whose log it would pin.
        if not self._unwritten and not self._database.in_transaction:
            self._database.execute("BEGIN")
        row = self._row("SELECT value, digest FROM effects WHERE key = ?", key)
        return self._intact(key, *row) if row else None

    def get_undigested(self, key: bytes) -> Any | None:
        """The value of a key as stored by versions without digests, or None."""
        row = self._row("SELECT value FROM undigested WHERE key = ?", key) if self.has_undigested else None
        try:
            return from_json(row[0]) if row else None
        except ValueError:
            self._num_damaged += 1
            return None

    def _row(self, statement: str, key: bytes) -> tuple[Any, ...] | None:
        try:
            return self._database.execute(statement, (key,)).fetchone()
        except sqlite3.Error as error:
            raise self._unusable(error) from None

    def _intact(self, key: bytes, value: Any, digest: Any) -> Any | None:
        if isinstance(value, bytes) and checksum(key + value) == digest:
            return from_json(value)
        self._num_damaged += 1
        return None

    async def put(self, key: bytes, value: Any) -> None:
        """Store a value; it is on disk when this returns."""
        text = json.dumps(value).encode()
        await self._run("INSERT OR REPLACE INTO effects VALUES (?, ?, ?)", (key, text, checksum(key + text)))

    def costs(self, job: str) -> dict[str, int | None] | None:
        """A job's spending by endpoint; None if unknown, because the record is damaged or the store predates cost records."""
        row = self._row("SELECT value, digest FROM costs WHERE job = ?", job.encode())
        if row is None:
            return None if self.has_undigested and not job else {}
        return self._intact(job.encode(), *row)

    def put_costs(self, job: str, costs: dict[str, int | None]) -> asyncio.Future[None]:
        """Store a job's spending, together with everything put in this turn of the event loop; awaiting it is optional."""
        text = json.dumps(costs).encode()
        return self._queue("INSERT OR REPLACE INTO costs VALUES (?, ?, ?)", (job.encode(), text, checksum(job.encode() + text)))

    def batches(self) -> dict[str, list[str]]:
        """Batch jobs that were sent but not collected: their ids, and the keys (hex) of their requests."""
        try:
            return {row[0].decode(): from_json(row[1]) for row in self._database.execute("SELECT id, keys FROM batches")}
        except sqlite3.Error as error:
            raise self._unusable(error) from None
        except ValueError as error:
            raise RunDirError(f"{self.path}: its list of batch jobs is damaged ({error}). Restore a copy of the file.") from None

    async def put_batch(self, batch_id: str, keys: list[str]) -> None:
        """Remember a batch job that was sent."""
        await self._run("INSERT OR REPLACE INTO batches VALUES (?, ?)", (batch_id, json.dumps(keys)))

    async def drop_batch(self, batch_id: str) -> None:
        """Forget a batch job once all of its replies are stored."""
        await self._run("DELETE FROM batches WHERE id = ?", (batch_id,))

    def take(self, other: Path) -> None:
        """Copy the values of another store that this process has open, without its jobs' spending."""
        try:
            self._database.execute("ATTACH ? AS other", (str(other),))
            with self._database:
                self._database.execute("INSERT OR IGNORE INTO effects SELECT * FROM other.effects")
            self._database.execute("DETACH other")
        except sqlite3.Error as error:
            raise self._unusable(error) from None

    def close(self) -> None:
        """Close the store, so that another process can open it. A new file is deleted again if nothing was paid or stored."""
        if self._num_damaged:
            _log.warning("%s: %d damaged values were left unread, and asked for again where needed", self.path, self._num_damaged)
        unused = self._is_new and self._is_empty()
        self._database.close()
        if unused:
            for suffix in ("", "-wal", "-shm", ".lock"):
                self.path.with_name(self.path.name + suffix).unlink(missing_ok=True)
        self._lock.close()

    def _is_empty(self) -> bool:
        try:
            if any(self._database.execute(f"SELECT 1 FROM {table} LIMIT 1").fetchone() for table in ("effects", "batches")):  # noqa: S608
                return False
            return not any(any(from_json(value).values()) for (value,) in self._database.execute("SELECT value FROM costs"))
        except (sqlite3.Error, ValueError):
            return False

    async def _run(self, statement: str, values: tuple[Any, ...]) -> None:
        await self._queue(statement, values)

    def _queue(self, statement: str, values: tuple[Any, ...]) -> asyncio.Future[None]:
        loop = asyncio.get_running_loop()
        done: asyncio.Future[None] = loop.create_future()
        self._unwritten.append((statement, values, done))
        if len(self._unwritten) == 1:
            loop.call_soon(self._commit)  # after everything else in this turn of the event loop
        return done

    def _commit(self) -> None:
        """Write everything from this turn of the event loop in one transaction, and wake the waiting rows."""
        items, self._unwritten, failure = self._unwritten, [], None
        try:
            self._database.commit()  # ends the transaction of the earlier reads
            with self._database:
                for statement, values, _ in items:
                    self._database.execute(statement, values)
        except sqlite3.Error as error:
            failure = self._unusable(error)
        for _, _, done in items:
            if done.done():
                continue
            if failure is None:
                done.set_result(None)
            else:
                done.set_exception(failure)
                done.exception()  # retrieved here, because it may never be awaited

    def _unusable(self, error: sqlite3.Error) -> RunDirError:
        remedy = "Free some space or choose another store. No paid reply is lost."
        if getattr(error, "sqlite_errorname", "") in _DAMAGED:
            remedy = f"The file is damaged: `sqlite3 {self.path} .recover | sqlite3 NEW` saves what can be read; name NEW as `store`."
        return RunDirError(f"{self.path}: cannot be used as a store ({error}). {remedy}")


def _locked(path: Path) -> TextIO:
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        lock = path.with_name(path.name + ".lock").open("w")
    except OSError as error:
        raise RunDirError(
            f"{path}: cannot be used as a store ({error.filename}: {error.strerror}). Choose another `store` or output_dir."
        ) from None
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        lock.close()
        raise RunDirError(f"{path}: another process is using this store. Wait for it, or choose another store.") from None
    return lock


def _open(path: Path) -> sqlite3.Connection:
    database = open_database(path)
    database.text_factory = bytes  # a flipped bit may have made a text value that is not valid UTF-8
    database.execute("PRAGMA mmap_size=1073741824")
    return database


def _set_aside_undigested(database: sqlite3.Connection) -> bool:
    """Rename the table of an earlier version if there is one, and say whether such a table exists."""
    tables = {name.decode(): sql for name, sql in database.execute("SELECT name, sql FROM sqlite_master WHERE type = 'table'")}
    if "effects" in tables and b"digest" not in tables["effects"]:
        database.execute("ALTER TABLE effects RENAME TO undigested")
        return True
    return "undigested" in tables


def _join(places: Sequence[str], joined: str) -> None:
    with closing(SqliteStore(Path(joined))) as store:
        for place in map(Path, places):
            with closing(SqliteStore(place)):
                store.take(place)


STORE = StorePlugin(
    lambda place: SqliteStore(Path(place)), exists=lambda place: Path(place).exists(), file_name="effects.sqlite", join=_join
)
