"""Dense retrieval by Qdrant: passages and their vectors in a collection on a server, or in a folder by the client's local mode.

The vectors are those of `dense`, compared by inner product. A collection belongs to one corpus and one way to encode it, and names both in
its metadata; an alias, the name in the recipe, leads to the collection that was loaded last.
"""

import atexit
import logging
import os
from collections.abc import Iterable, Sequence
from functools import cache
from importlib import import_module
from itertools import islice
from pathlib import Path
from typing import Any, ClassVar

from pydantic import Field, ValidationError, model_validator

from refinery.contract.records import Passage, Question, Record
from refinery.errors import RetrievalError
from refinery.passages.corpus import read_written, searched_text
from refinery.retrievers.base import Hit, Indexing, Retriever, RetrieverConfig, RetrieverPlugin
from refinery.retrievers.index.loading import forget_progress, load_passages, store_name
from refinery.retrievers.index.manifest import open_index
from refinery.retrievers.search.encoder import EncoderConfig, load_encoder
from refinery.retrievers.search.requests import Fault, RequestOptions, divided, retried
from refinery.runtime.concurrency.batching import Batcher, in_thread
from refinery.runtime.files.fingerprint import text_fingerprint

_logger = logging.getLogger(__name__)
_MOST_QUERIES = 256  # encoded at once
_PASSAGES_PER_REQUEST, _SAMPLE = 256, 1_000
_METADATA = "refinery"
_REMEDY = "Check that Qdrant runs, its address and its key."


class Options(RequestOptions):
    """Where the collection is, its encoder, and how it is searched."""

    SEARCH_ONLY: ClassVar[frozenset[str]] = RequestOptions.SEARCH_ONLY | {"encoder", "url", "path", "api_key_env", "filter", "exact"}

    encoder: EncoderConfig
    url: str | None = Field(default=None, description="the server, such as http://127.0.0.1:6333", pattern=r"^https?://")
    path: Path | None = Field(
        default=None, description="instead of a server, a folder for the client's local mode: exact, for small corpora"
    )
    collection: str = Field(default="passages", description="the alias of what is loaded", pattern=r"^[A-Za-z0-9_-]{1,200}$")
    api_key_env: str = Field(default="QDRANT_API_KEY", description="environment variable that holds the server's key, if it needs one")
    filter: dict[str, Any] | None = Field(default=None, description="Qdrant's filter as JSON, over `id`, `title` and `text`")
    exact: bool = Field(default=False, description="compare every vector, instead of searching Qdrant's HNSW graph")

    @model_validator(mode="after")
    def _one_place(self) -> "Options":
        if (self.url is None) == (self.path is None):
            raise ValueError("name either `url` (a server) or `path` (a folder for the local mode)")
        return self

    @property
    def where(self) -> str:
        """The place of the collection, for messages."""
        return self.url or str(self.path)


class _Loaded(Record):
    """What a collection has beside its points."""

    corpus_hash: str
    num_passages: int
    encoder: dict[str, Any]


class Qdrant(Retriever):
    """Encodes concurrent queries in one batch, and sends them in few requests, several at once."""

    def __init__(self, options: Options, collection: str, loaded: _Loaded) -> None:
        self._options, self._collection = options, collection
        self._models, self._client = _models(options), _client(options)
        self._filter = _filter(options, self._models)
        self._encoder = load_encoder(options.encoder)
        at_once = options.requests_at_once if options.url else 1
        self._encode: Batcher[str, Any] = Batcher(in_thread(self._encoder.queries), max_batch=_MOST_QUERIES)
        self._find: Batcher[tuple[Any, int], list[Hit]] = Batcher(
            divided(in_thread(self._found, threads=at_once)), max_batch=options.queries_per_request, at_once=at_once
        )
        self.corpus_hash = loaded.corpus_hash
        searched = options.model_dump_json(include={"encoder", "filter", "exact"})
        self.revision = text_fingerprint(["qdrant", loaded.corpus_hash, collection, searched])

    async def search(self, query: str, *, k: int, question: Question | None = None) -> list[Hit]:
        """The `k` passages with the highest inner products among those that the filter keeps. Raises RetrievalError without an answer."""
        return await self._find((await self._encode(query), k))

    def search_all(self, searches: Sequence[tuple[str, int]]) -> list[list[Hit]]:
        """The hits of each (query, k) in the whole collection, without the filter."""
        if not searches:
            return []
        vectors = self._encoder.queries([query for query, _ in searches])
        return self._found([(vector, k) for vector, (_, k) in zip(vectors, searches, strict=True)], filtered=False)

    def _found(self, searches: Sequence[tuple[Any, int]], *, filtered: bool = True) -> list[list[Hit]]:
        # Local mode always compares every vector, and warns about parameters.
        params = self._models.SearchParams(exact=True) if self._options.exact and self._options.url else None
        kept = self._filter if filtered else None
        requests = [
            self._models.QueryRequest(query=vector.tolist(), limit=k, with_payload=True, params=params, filter=kept)
            for vector, k in searches
        ]
        replies = _asked(self._options, lambda: self._client.query_batch_points(self._collection, requests))
        return [[self._hit(point) for point in sorted(reply.points, key=lambda point: (-point.score, point.id))] for reply in replies]

    def _hit(self, point: Any) -> Hit:
        try:
            return Hit(Passage.model_validate(point.payload), float(point.score))
        except ValidationError:
            raise RetrievalError(
                f"{self._options.where}: point {point.id} of collection '{self._collection}' holds no passage. Load it again."
            ) from None


def build(config: RetrieverConfig, options: Options) -> Qdrant:
    """A retriever over the collection that the index was loaded into, or without an index over the one that the alias leads to."""
    if config.passages:
        raise config.fault(
            "passages", "qdrant searches what was loaded into it. Load it: refinery index PASSAGES --output DIR, and name `index`."
        )
    if config.index is None:
        return Qdrant(options, options.collection, _loaded(options, options.collection, options.encoder))
    _, manifest = open_index(config.index, "qdrant", options)
    collection = _collection(options, manifest.corpus_hash, EncoderConfig.model_validate(manifest.options["encoder"]))
    loaded = _loaded(options, collection, None)
    if (loaded.corpus_hash, loaded.num_passages) != (manifest.corpus_hash, manifest.num_passages):
        raise RetrievalError(
            f"{options.where}: collection '{collection}' holds {loaded.num_passages:,} passages of corpus {loaded.corpus_hash}, but "
            f"{config.index} is of {manifest.num_passages:,} of corpus {manifest.corpus_hash}. Load it again: refinery index."
        )
    return Qdrant(options, collection, loaded)


def build_index(passages: Sequence[Passage], folder: Path, options: Options) -> None:
    """Load `passages` into a collection of their own, continuing where an earlier call stopped, and let the alias lead to it."""
    models, client, encoder = _models(options), _client(options), load_encoder(options.encoder)
    written = read_written(folder)
    collection = _collection(options, written.corpus_hash, options.encoder)

    def send(start: int, batch: Sequence[Passage], vectors: Any) -> None:
        ids, payloads = list(range(start, start + len(batch))), [passage.model_dump() for passage in batch]
        points = models.Batch(ids=ids, vectors=vectors.tolist(), payloads=payloads)
        _asked(options, lambda: client.upsert(collection, points=points, wait=True))

    if not _asked(options, lambda: client.collection_exists(collection)):
        size = encoder.passages([searched_text(passages[0])]).shape[1]
        params = models.VectorParams(size=size, distance=models.Distance.DOT)
        _asked(options, lambda: client.create_collection(collection, vectors_config=params))
    load_passages(
        passages,
        folder,
        send,
        prepare=lambda batch: encoder.passages([searched_text(passage) for passage in batch]),
        most=_PASSAGES_PER_REQUEST,
        at_once=options.requests_at_once if options.url else 1,
    )
    loaded = _Loaded(corpus_hash=written.corpus_hash, num_passages=written.num_passages, encoder=_identity(options.encoder))
    _asked(options, lambda: client.update_collection(collection, metadata={_METADATA: loaded.model_dump()}))
    _point_alias(options, collection)
    forget_progress(folder)


def estimate_bytes(num_passages: int, sample: Iterable[Passage], options: Options) -> tuple[int, int]:
    """The (memory, disk) in bytes that `build_index` takes on this machine, without the encoder's own memory."""
    if options.url:
        return 1 << 28, 0
    first = list(islice(sample, _SAMPLE))
    dimensions = load_encoder(options.encoder).passages([searched_text(first[0])]).shape[1]
    stored = sum(len(passage.model_dump_json()) for passage in first) // len(first) + 8 * dimensions
    return num_passages * 4 * stored, num_passages * 2 * stored


RETRIEVER = RetrieverPlugin(build, Options, Indexing(build_index, estimate_bytes))


def _collection(options: Options, corpus_hash: str, encoder: EncoderConfig) -> str:
    return store_name(options.collection, corpus_hash, repr(sorted(_identity(encoder).items())))


def _identity(encoder: EncoderConfig) -> dict[str, Any]:
    """What of an encoder changes its vectors; dtype and device change them little."""
    return encoder.model_dump(include={"model", "base_url", "query_prompt", "passage_prompt", "max_length"})


def _loaded(options: Options, collection: str, encoder: EncoderConfig | None) -> _Loaded:
    """What the collection holds, after a check that it is all there, and made by this encoder if one is given."""
    client = _client(options)
    if not _asked(options, lambda: client.collection_exists(collection)):
        raise RetrievalError(f"{options.where}: has no collection '{collection}'. Load it: refinery index PASSAGES --retriever RECIPE.")
    info = _asked(options, lambda: client.get_collection(collection))
    try:
        loaded = _Loaded.model_validate((info.config.metadata or {}).get(_METADATA))
    except ValidationError:
        raise RetrievalError(
            f"{options.where}: collection '{collection}' was not loaded to its end by `refinery index`, so its corpus is unknown. "
            "Continue the load with --resume, or load it."
        ) from None
    count = _asked(options, lambda: client.count(collection, exact=True)).count
    if count != loaded.num_passages:
        raise RetrievalError(
            f"{options.where}: collection '{collection}' holds {count:,} points, but {loaded.num_passages:,} were loaded. Load it again."
        )
    if encoder and (now := _identity(encoder)) != loaded.encoder:
        key, before = next((key, loaded.encoder.get(key)) for key in now if now[key] != loaded.encoder.get(key))
        raise RetrievalError(
            f"{options.where}: collection '{collection}' was encoded with {key}={before!r}, but the recipe says {now[key]!r}."
        )
    return loaded


def _point_alias(options: Options, collection: str) -> None:
    models, client = _models(options), _client(options)
    earlier = [alias.collection_name for alias in client.get_aliases().aliases if alias.alias_name == options.collection]
    create = models.CreateAlias(collection_name=collection, alias_name=options.collection)
    delete = [models.DeleteAliasOperation(delete_alias=models.DeleteAlias(alias_name=options.collection))] if earlier else []
    operations = [*delete, models.CreateAliasOperation(create_alias=create)]
    _asked(options, lambda: client.update_collection_aliases(operations))
    for name in earlier:
        if name != collection:
            _logger.warning(
                "%s: '%s' no longer leads to %s. Delete that collection when no run searches it.", options.where, options.collection, name
            )


def _filter(options: Options, models: Any) -> Any:
    try:
        return models.Filter.model_validate(options.filter) if options.filter else None
    except ValidationError as error:
        fault = error.errors()[0]
        raise options.fault("filter", f"is no filter of Qdrant ({'.'.join(map(str, fault['loc']))}: {fault['msg']}).") from None


def _asked(options: Options, send: Any) -> Any:
    return retried(send, tries=options.tries, where=options.where, fault_of=_fault_of, remedy=_REMEDY, what="a request")


def _fault_of(error: Exception) -> Fault | None:
    exceptions: Any = import_module("qdrant_client.http.exceptions")
    reply: Any = error
    if isinstance(error, exceptions.UnexpectedResponse):
        return Fault(f"status {reply.status_code}: {reply.content.decode(errors='replace')}", reply.status_code)
    if isinstance(error, exceptions.ApiException):  # no connection, a time out, or a reply of something else
        return Fault(str(error) or type(error).__name__)
    if type(error).__name__ == "ResourceExhaustedResponse":
        return Fault(str(error), 429)
    return Fault(str(error), 400) if isinstance(error, ValueError) else None  # of the local mode


def _models(options: Options) -> Any:
    try:
        return import_module("qdrant_client.models")
    except ImportError:
        raise options.fault("collection", 'qdrant needs its extra. Install it: pip install "rag-refinery[qdrant]"') from None


def _client(options: Options) -> Any:
    if options.path:
        return _local_client(str(options.path.resolve()))
    qdrant = import_module("qdrant_client")
    seconds = max(1, round(options.timeout_seconds))
    return qdrant.QdrantClient(url=options.url, api_key=os.environ.get(options.api_key_env), timeout=seconds, check_compatibility=False)


@cache
def _local_client(path: str) -> Any:
    """The one client of a folder, which it locks."""
    try:
        client = import_module("qdrant_client").QdrantClient(path=path, force_disable_check_same_thread=True)
    except RuntimeError as error:
        raise RetrievalError(f"{path}: {str(error).splitlines()[0]}") from None
    atexit.register(client.close)  # its own finalizer runs when modules are gone
    return client
