"""The effect store: every paid reply and every search, durable before a row uses it. A rerun replays it; it is the run's checkpoint.

sqlite in WAL mode with one writer thread: what arrives while one commit is written goes into the next together, so that durability
costs a row one commit's wait and the disk one commit for many rows.
"""

import asyncio
import contextlib
import fcntl
import hashlib
import json
import queue
import sqlite3
import threading
from pathlib import Path
from typing import Any

from pydantic_core import from_json

from refinery.errors import RunDirError

_MOST_PER_COMMIT = 1024
_Item = tuple[str, tuple[Any, ...], asyncio.Future[None]]


def effect_key(*parts: Any) -> bytes:
    """16 bytes that name an effect by everything that can change it."""
    return hashlib.blake2b(json.dumps(parts, sort_keys=True).encode(), digest_size=16).digest()


class EffectStore:
    """Values by key. One process at a time: another is refused.

    Raises RunDirError when the file is in use, is no store, or cannot be written (a full disk).
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._lock = path.with_name(path.name + ".lock").open("w")
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            raise RunDirError(f"{path}: another process is using this store. Wait for it, or choose another store.") from None
        try:
            self._reader = _open(path)
            self._reader.execute("CREATE TABLE IF NOT EXISTS effects (key BLOB PRIMARY KEY, value TEXT NOT NULL) WITHOUT ROWID")
            self._reader.execute("CREATE TABLE IF NOT EXISTS batches (id TEXT UNIQUE NOT NULL, keys TEXT NOT NULL)")
            self._reader.commit()
        except sqlite3.Error as error:
            raise self._unusable(error) from None
        self._queue: queue.SimpleQueue[_Item | None] = queue.SimpleQueue()
        self._num_unwritten = 0
        self._writer = threading.Thread(target=self._write, name="effect-store", daemon=True)
        self._writer.start()

    def get(self, key: bytes) -> Any | None:
        """The value of a key, or None."""
        # One transaction for many reads, because to begin one costs as much as two reads; and none beside writes, whose log it would keep.
        if not self._num_unwritten and not self._reader.in_transaction:
            self._reader.execute("BEGIN")
        row = self._reader.execute("SELECT value FROM effects WHERE key = ?", (key,)).fetchone()
        return from_json(row[0]) if row else None

    async def put(self, key: bytes, value: Any) -> None:
        """Keep a value; it is on disk when this returns."""
        await self._run("INSERT OR REPLACE INTO effects VALUES (?, ?)", (key, json.dumps(value)))

    def batches(self) -> dict[str, list[str]]:
        """Batch jobs that were sent and not collected: their ids, and the keys (hex) they hold."""
        return {row[0]: json.loads(row[1]) for row in self._reader.execute("SELECT id, keys FROM batches")}

    async def put_batch(self, batch_id: str, keys: list[str]) -> None:
        """Remember a batch job that was sent."""
        await self._run("INSERT OR REPLACE INTO batches VALUES (?, ?)", (batch_id, json.dumps(keys)))

    async def drop_batch(self, batch_id: str) -> None:
        """Forget a batch job once all it brought is kept."""
        await self._run("DELETE FROM batches WHERE id = ?", (batch_id,))

    def close(self) -> None:
        """Write what is queued and let the next process in."""
        self._queue.put(None)
        self._writer.join()
        self._reader.close()
        self._lock.close()

    async def _run(self, statement: str, values: tuple[Any, ...]) -> None:
        done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._num_unwritten += 1
        self._reader.commit()  # ends the transaction of the reads until now
        self._queue.put((statement, values, done))
        try:
            await done
        except sqlite3.Error as error:
            raise self._unusable(error) from None

    def _unusable(self, error: sqlite3.Error) -> RunDirError:
        return RunDirError(
            f"{self.path}: cannot be used as a store ({error}). Free some space, or choose another store; nothing paid is lost."
        )

    def _write(self) -> None:
        """The writer thread: take all that is queued, commit once, and tell the waiting rows."""
        database = _open(self.path)
        closing = False
        while not closing:
            items = [self._queue.get()]
            while len(items) < _MOST_PER_COMMIT and not self._queue.empty():
                items.append(self._queue.get())
            closing = items[-1] is None
            batch = [item for item in items if item is not None]
            failure = _commit(database, batch)
            if batch:
                with contextlib.suppress(RuntimeError):  # the loop has ended with its rows; the values are on disk
                    batch[0][2].get_loop().call_soon_threadsafe(self._tell, batch, failure)
        database.close()

    def _tell(self, batch: list[_Item], failure: sqlite3.Error | None) -> None:
        self._num_unwritten -= len(batch)
        for _, _, done in batch:
            if not done.done():
                done.set_result(None) if failure is None else done.set_exception(failure)


def _open(path: Path) -> sqlite3.Connection:
    database = sqlite3.connect(path, timeout=30)
    database.execute("PRAGMA mmap_size=1073741824")
    database.execute("PRAGMA journal_mode=WAL")
    database.execute("PRAGMA synchronous=NORMAL")  # survives kill -9; a power cut may lose the last commits, which are paid again
    return database


def _commit(database: sqlite3.Connection, batch: list[_Item]) -> sqlite3.Error | None:
    try:
        with database:
            for statement, values, _ in batch:
                database.execute(statement, values)
    except sqlite3.Error as error:
        return error
    return None
