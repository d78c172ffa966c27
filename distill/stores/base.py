"""What a reply store keeps, what its file declares, and how it is found by its name.

A store is one file with a function `open_store`; `store_kind: my_lab.postgres` in a recipe finds it outside this project too, and gives
it the recipe's `store`:

    class PostgresStore(ReplyStore):
        ...

    def open_store(place: str) -> PostgresStore:
        return PostgresStore(place)
"""

import asyncio
import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

from refinery.runtime import plugins
from refinery.runtime.fingerprint import store_key
from refinery.runtime.plugins import PluginKind


class ReplyStore(Protocol):
    """Every paid reply and every search by its key, what each job has spent, and the batch jobs that are out.

    A value is JSON, and is durable when `put` returns: a rerun replays the store, which is a run's only checkpoint. One process at a time
    writes. Methods raise RunDirError, in one line with its remedy, for a store that cannot be used.
    """

    has_undigested: bool = False  # whether `get_undigested` may find something

    def get(self, key: bytes) -> Any | None:
        """The value of a key, or None where there is none or it is not what was put."""
        ...

    def get_undigested(self, key: bytes) -> Any | None:
        """The value of a key as versions kept it whose keys held the server's address; only old files have such."""
        return None

    async def put(self, key: bytes, value: Any) -> None:
        """Keep a value, which replaces an earlier one."""
        ...

    def costs(self, job: str) -> dict[str, int | None] | None:
        """What a job has spent by endpoint; empty for a new job, None where that is not known any more."""
        ...

    def put_costs(self, job: str, costs: dict[str, int | None]) -> asyncio.Future[None]:
        """Keep what a job has spent. Begun when this returns, and together with what is put in the same turn of the event loop."""
        ...

    def batches(self) -> dict[str, list[str]]:
        """Batch jobs that were sent and not collected: their ids, and the keys (hex) they hold."""
        ...

    async def put_batch(self, batch_id: str, keys: list[str]) -> None:
        """Remember a batch job that was sent."""
        ...

    async def drop_batch(self, batch_id: str) -> None:
        """Forget a batch job once all it brought is kept."""
        ...

    def close(self) -> None:
        """Let the next process in."""
        ...


def _may_be_there(place: str) -> bool:
    return True


@dataclass(frozen=True, slots=True)
class StorePlugin:
    """What a store's file may declare as `STORE`.

    `open_store(place)` opens the recipe's `store`, which it makes where it is not there; `exists(place)` says whether it is, for readers
    that must not make one. `file_name` is that of the store in the run's folder, where the recipe names none; None: it must name one.
    """

    open_store: Callable[[str], ReplyStore]
    exists: Callable[[str], bool] = _may_be_there
    file_name: str | None = None


STORES = PluginKind("reply store", "distill.stores", StorePlugin, "STORE", "open_store", ("place",), StorePlugin)


def effect_key(*parts: Any) -> bytes:
    """16 bytes that name an effect by everything that can change it."""
    return store_key(json.dumps(parts, sort_keys=True).encode())


def opened(plugin: StorePlugin, name: str, place: str) -> ReplyStore:
    """The store of a kind's `name`. Raises PluginError that names what it lacks, RunDirError when it cannot be used."""
    return plugins.checked(plugin.open_store(place), ReplyStore, f"reply store '{name}'")
