"""The effect store: every paid reply and every search, durable before a row uses it. A rerun replays it; it is the run's checkpoint.

sqlite in WAL mode, without a thread of its own: what one turn of the event loop brings is committed together at its end. A commit appends
to the log and waits for no disk; a writer thread gained nothing in `refinery bench distill`.
"""

import asyncio
import fcntl
import hashlib
import json
import sqlite3
from pathlib import Path
from typing import Any

from pydantic_core import from_json

from refinery.errors import RunDirError

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
            self._database = _open(path)
            self._database.execute("CREATE TABLE IF NOT EXISTS effects (key BLOB PRIMARY KEY, value TEXT NOT NULL) WITHOUT ROWID")
            self._database.execute("CREATE TABLE IF NOT EXISTS batches (id TEXT UNIQUE NOT NULL, keys TEXT NOT NULL)")
            self._database.commit()
        except sqlite3.Error as error:
            raise self._unusable(error) from None
        self._unwritten: list[_Item] = []

    def get(self, key: bytes) -> Any | None:
        """The value of a key, or None."""
        # One transaction for many reads, because to begin one costs as much as two reads; and none beside writes, whose log it would keep.
        if not self._unwritten and not self._database.in_transaction:
            self._database.execute("BEGIN")
        row = self._database.execute("SELECT value FROM effects WHERE key = ?", (key,)).fetchone()
        return from_json(row[0]) if row else None

    async def put(self, key: bytes, value: Any) -> None:
        """Keep a value; it is on disk when this returns."""
        await self._run("INSERT OR REPLACE INTO effects VALUES (?, ?)", (key, json.dumps(value)))

    def batches(self) -> dict[str, list[str]]:
        """Batch jobs that were sent and not collected: their ids, and the keys (hex) they hold."""
        return {row[0]: json.loads(row[1]) for row in self._database.execute("SELECT id, keys FROM batches")}

    async def put_batch(self, batch_id: str, keys: list[str]) -> None:
        """Remember a batch job that was sent."""
        await self._run("INSERT OR REPLACE INTO batches VALUES (?, ?)", (batch_id, json.dumps(keys)))

    async def drop_batch(self, batch_id: str) -> None:
        """Forget a batch job once all it brought is kept."""
        await self._run("DELETE FROM batches WHERE id = ?", (batch_id,))

    def close(self) -> None:
        """Let the next process in."""
        self._database.close()
        self._lock.close()

    async def _run(self, statement: str, values: tuple[Any, ...]) -> None:
        loop = asyncio.get_running_loop()
        done: asyncio.Future[None] = loop.create_future()
        self._unwritten.append((statement, values, done))
        if len(self._unwritten) == 1:
            loop.call_soon(self._commit)  # after all else that this turn of the loop brings
        try:
            await done
        except sqlite3.Error as error:
            raise self._unusable(error) from None

    def _commit(self) -> None:
        """Write all that this turn of the loop has brought in one transaction, and tell the waiting rows."""
        items, self._unwritten, failure = self._unwritten, [], None
        try:
            self._database.commit()  # ends the transaction of the reads until now
            with self._database:
                for statement, values, _ in items:
                    self._database.execute(statement, values)
        except sqlite3.Error as error:
            failure = error
        for _, _, done in items:
            if not done.done():
                done.set_result(None) if failure is None else done.set_exception(failure)

    def _unusable(self, error: sqlite3.Error) -> RunDirError:
        return RunDirError(
            f"{self.path}: cannot be used as a store ({error}). Free some space, or choose another store; nothing paid is lost."
        )


def _open(path: Path) -> sqlite3.Connection:
    database = sqlite3.connect(path, timeout=30)
    database.execute("PRAGMA mmap_size=1073741824")
    database.execute("PRAGMA journal_mode=WAL")
    database.execute("PRAGMA synchronous=NORMAL")  # survives kill -9; a power cut may lose the last commits, which are paid again
    return database
