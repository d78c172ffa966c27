"""The interface of a reply store, the declaration in its file, and finding a store by name.

A store is one file with a function `open_store`. With `store_kind: my_lab.postgres`, a recipe can name one outside this project, which
receives the recipe's `store`:

    class PostgresStore(ReplyStore):
        ...

    def open_store(place: str) -> PostgresStore:
        return PostgresStore(place)
"""

import asyncio
import json
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from pydantic import Field

from refinery.errors import RecipeError
from refinery.runtime.files.fingerprint import store_key
from refinery.runtime.recipes import plugins
from refinery.runtime.recipes.plugins import PluginKind

# The keys of every recipe whose replies are stored.
STORE: Any = Field(default=None, description="where replies and searches are stored; by default effects.sqlite in output_dir")
STORE_KIND: Any = Field(default="sqlite", description="the name of a file in refinery/stores, an entry point, or your own module")
MAX_COST_USD: Any = Field(default=None, description="hard limit; the run stops before a request that could exceed it", gt=0)


class ReplyStore(Protocol):
    """Every paid reply and every search by its key, the spending of each job, and the batch jobs that are not collected yet.

    A value is JSON, and is durable when `put` returns: a rerun replays the store, which is a run's only checkpoint. Only one process may
    write at a time. Methods raise RunDirError, with a one-line remedy, for a store that cannot be used.
    """

    has_undigested: bool = False  # whether `get_undigested` may find anything

    def get(self, key: bytes) -> Any | None:
        """The value of a key, or None if there is none or it differs from the value that was put."""
        ...

    def get_undigested(self, key: bytes) -> Any | None:
        """The value of a key from an old version whose keys included the server's address; only old files have these."""
        return None

    async def put(self, key: bytes, value: Any) -> None:
        """Store a value, which replaces an earlier one."""
        ...

    def costs(self, job: str) -> dict[str, int | None] | None:
        """A job's spending by endpoint; empty for a new job, None if it is no longer known."""
        ...

    def put_costs(self, job: str, costs: dict[str, int | None]) -> asyncio.Future[None]:
        """Store a job's spending. The write has started when this returns, together with other puts of the same event loop turn."""
        ...

    def batches(self) -> dict[str, list[str]]:
        """Batch jobs that were sent but not collected: their ids, and the keys (hex) of their requests."""
        ...

    async def put_batch(self, batch_id: str, keys: list[str]) -> None:
        """Remember a batch job that was sent."""
        ...

    async def drop_batch(self, batch_id: str) -> None:
        """Forget a batch job once all of its replies are stored."""
        ...

    def close(self) -> None:
        """Close the store, so that another process can open it."""
        ...


def _may_be_there(place: str) -> bool:
    return True


@dataclass(frozen=True, slots=True)
class StorePlugin:
    """A store plugin, which its file may declare as `STORE`.

    `open_store(place)` opens the recipe's `store` and creates it if it does not exist; `exists(place)` says whether it exists, for readers
    that must not create one. `file_name` is the store's name in the run's folder if the recipe does not name one; if None, it must.
    `join(places, joined)` copies the stores of several shards to a new one; if None, a merged run has no store.
    """

    open_store: Callable[[str], ReplyStore]
    exists: Callable[[str], bool] = _may_be_there
    file_name: str | None = None
    join: Callable[[Sequence[str], str], None] | None = None


STORES = PluginKind("reply store", "refinery.stores", StorePlugin, "STORE", "open_store", ("place",), StorePlugin)


def effect_key(*parts: Any) -> bytes:
    """A key of 16 bytes, a hash of everything that can change the effect."""
    return store_key(json.dumps(parts, sort_keys=True).encode())


class _NamesStore(Protocol):
    """A recipe with the keys `store` and `store_kind`."""

    @property
    def store(self) -> str | None: ...
    @property
    def store_kind(self) -> str: ...
    @property
    def store_plugin(self) -> StorePlugin: ...
    def store_place(self, folder: Path) -> str: ...
    def at(self, name: str) -> AbstractContextManager[None]: ...
    def fault(self, name: str, message: str) -> RecipeError: ...


def join_stores(recipe: _NamesStore, runs: Sequence[Path], out: Path) -> None:
    """Join the replies that runs of one recipe keep in their folders, so that a merged run's prompts can be shown."""
    plugin, places = recipe.store_plugin, [recipe.store_place(run) for run in runs]
    if plugin.join and all(map(plugin.exists, places)):
        plugin.join(places, recipe.store_place(out))


class StoresReplies:
    """Mixin for a recipe with the keys `store` and `store_kind`: its store, and the store's location."""

    def store_place(self: _NamesStore, folder: Path) -> str:
        """The location of the replies of the run in `folder`. Raises RecipeError if the recipe must name it but does not."""
        own = self.store_plugin.file_name
        if self.store or own:
            return self.store or f"{folder}/{own}"
        raise self.fault("store", f"is missing, and store_kind '{self.store_kind}' needs it.")

    def open_store(self: _NamesStore, folder: Path) -> ReplyStore:
        """Open the store of the run in `folder`. Raises RunDirError if it cannot be used."""
        store = self.store_plugin.open_store(self.store_place(folder))
        return plugins.checked(store, ReplyStore, f"reply store '{self.store_kind}'")

    @property
    def store_plugin(self: _NamesStore) -> StorePlugin:
        """The store plugin that `store_kind` names. Raises PluginError."""
        with self.at("store_kind"):
            return plugins.find(STORES, self.store_kind)

    def job_of(self: _NamesStore, folder: Path) -> str:
        """The key of the spending of the run in `folder`. A store inside a run's folder holds only that run's, even if it is moved."""
        return str(folder.resolve()) if self.store else ""
