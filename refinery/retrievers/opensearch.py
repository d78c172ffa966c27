"""BM25 by OpenSearch or Elasticsearch, over opensearch-py: the requests used here are those that both document.

Words are those of Lucene's English analyzer, and k1 and b are pyserini's: the BM25 of the papers' baselines. An index of the engine belongs
to one corpus and one set of options, and names both in its mapping; an alias, the name in the recipe, leads to the one loaded last.
"""

import logging
import os
from collections.abc import Iterable, Sequence
from importlib import import_module
from typing import Any, ClassVar

from pydantic import Field, ValidationError

from refinery.contract.records import Passage, Question, Record
from refinery.errors import RetrievalError
from refinery.passages.corpus import read_written, searched_text
from refinery.retrievers.base import Hit, Indexing, Retriever, RetrieverConfig, RetrieverPlugin
from refinery.retrievers.index.loading import forget_progress, load_passages, store_name
from refinery.retrievers.index.manifest import open_index
from refinery.retrievers.search.requests import Fault, RequestOptions, divided, retried
from refinery.runtime.concurrency.batching import Batcher, in_thread
from refinery.runtime.files.fingerprint import text_fingerprint

_logger = logging.getLogger(__name__)
_PASSAGES_PER_REQUEST = 1_000
_MOST_WORDS = 1_024  # of a query, Lucene's maxClauseCount
_METADATA = "refinery"
_FIELD = "searched"
_REMEDY = "Check that the engine runs, its address and its key."


class Options(RequestOptions):
    """Where the engine is, and the BM25 of the index."""

    SEARCH_ONLY: ClassVar[frozenset[str]] = RequestOptions.SEARCH_ONLY | {"url", "user_env", "password_env", "api_key_env"}

    url: str = Field(default="http://127.0.0.1:9200", pattern=r"^https?://")
    collection: str = Field(default="passages", description="the alias of what is loaded", pattern=r"^[a-z0-9][a-z0-9_-]{0,199}$")
    user_env: str = Field(default="OPENSEARCH_USER", description="environment variable that holds the user, if the engine has users")
    password_env: str = Field(default="OPENSEARCH_PASSWORD", description="environment variable that holds the user's password")
    api_key_env: str = Field(default="OPENSEARCH_API_KEY", description="environment variable that holds a key, used instead of a user")
    k1: float = Field(default=0.9, description="pyserini's default, used by the papers' BM25 baselines", ge=0)
    b: float = Field(default=0.4, description="pyserini's", ge=0, le=1)
    shards: int = Field(default=1, description="more search faster, but each scores by its own word frequencies", ge=1)


class _Loaded(Record):
    """What an index of the engine has in its mapping."""

    corpus_hash: str
    num_passages: int


class OpenSearch(Retriever):
    """Sends concurrent queries in few requests, several at once."""

    def __init__(self, options: Options, collection: str, loaded: _Loaded) -> None:
        self._options, self._collection, self._client = options, collection, _client(options)
        at_once = options.requests_at_once
        run = divided(in_thread(self._found, threads=at_once))
        self._find: Batcher[tuple[str, int], list[Hit]] = Batcher(run, max_batch=options.queries_per_request, at_once=at_once)
        self.corpus_hash = loaded.corpus_hash
        self.revision = text_fingerprint(["opensearch", loaded.corpus_hash, collection])

    async def search(self, query: str, *, k: int, question: Question | None = None) -> list[Hit]:
        """The `k` best passages that contain any of the query's words. Raises RetrievalError when the engine does not answer."""
        return await self._find((query, k))

    def search_all(self, searches: Sequence[tuple[str, int]]) -> list[list[Hit]]:
        """The hits of each (query, k)."""
        return self._found(searches) if searches else []

    def _found(self, searches: Sequence[tuple[str, int]]) -> list[list[Hit]]:
        body = [line for query, k in searches for line in ({}, _search_body(query, k))]
        replies = _asked(self._options, lambda: self._replies(body))
        return [[self._hit(hit) for hit in reply["hits"]["hits"]] for reply in replies]

    def _replies(self, body: list[dict[str, Any]]) -> list[dict[str, Any]]:
        """Each search's reply. Raises _SearchError when the engine answers one of them with an error."""
        replies = self._client.msearch(body=body, index=self._collection)["responses"]
        for reply in replies:
            if "error" in reply:
                raise _SearchError(reply.get("status", 400), str(reply["error"].get("reason", reply["error"])))
            if (failed := reply.get("_shards", {}).get("failed", 0)) or reply.get("timed_out"):
                raise _SearchError(503, f"{failed} shards failed" if failed else "the search timed out before it was complete")
        return replies

    def _hit(self, hit: Any) -> Hit:
        try:
            return Hit(Passage.model_validate(hit["_source"]), float(hit["_score"]))
        except ValidationError:
            raise RetrievalError(
                f"{self._options.url}: row {hit.get('_id')} of '{self._collection}' holds no passage. Load it again."
            ) from None


class _SearchError(Exception):
    """The status and the reason of a part of a request that failed."""


def _search_body(query: str, k: int) -> dict[str, Any]:
    # `match` analyzes text; the engine's query syntax would read operators in it.
    words = " ".join(query.split()[:_MOST_WORDS])
    order = [{"_score": "desc"}, {"position": "asc"}]
    return {"query": {"match": {_FIELD: words}}, "size": k, "sort": order, "track_scores": True, "_source": ["id", "title", "text"]}


def build(config: RetrieverConfig, options: Options) -> OpenSearch:
    """A retriever over what the index was loaded into, or without an index over what the alias leads to."""
    if config.passages:
        raise config.fault("passages", "opensearch searches what was loaded into it. Load it by `refinery index`, and name `index`.")
    if config.index is None:
        return OpenSearch(options, options.collection, _loaded(options, options.collection))
    _, manifest = open_index(config.index, "opensearch", options)
    collection = _collection(options, manifest.corpus_hash)
    loaded = _loaded(options, collection)
    if (loaded.corpus_hash, loaded.num_passages) != (manifest.corpus_hash, manifest.num_passages):
        raise RetrievalError(
            f"{options.url}: '{collection}' holds {loaded.num_passages:,} passages of corpus {loaded.corpus_hash}, but "
            f"{config.index} is of {manifest.num_passages:,} of corpus {manifest.corpus_hash}. Load it again: refinery index."
        )
    return OpenSearch(options, collection, loaded)


def build_index(passages: Sequence[Passage], folder: Any, options: Options) -> None:
    """Load `passages` into an index of their own, continuing where an earlier call stopped, and let the alias lead to it."""
    client, written = _client(options), read_written(folder)
    collection = _collection(options, written.corpus_hash)

    def send(start: int, batch: Sequence[Passage], prepared: Any) -> None:
        rows = [row for position, passage in enumerate(batch, start) for row in _bulk_rows(position, passage)]
        _asked(options, lambda: _check_bulk(client.bulk(body=rows, index=collection)))

    if not _asked(options, lambda: client.indices.exists(index=collection)):
        _asked(options, lambda: client.indices.create(index=collection, body=_index_body(options)))
    load_passages(passages, folder, send, most=_PASSAGES_PER_REQUEST, at_once=options.requests_at_once)
    _asked(options, lambda: client.indices.refresh(index=collection))
    loaded = _Loaded(corpus_hash=written.corpus_hash, num_passages=written.num_passages)
    _asked(options, lambda: client.indices.put_mapping(index=collection, body={"_meta": {_METADATA: loaded.model_dump()}}))
    _point_alias(options, client, collection)
    forget_progress(folder)


def estimate_bytes(num_passages: int, sample: Iterable[Passage], options: Options) -> tuple[int, int]:
    """The (memory, disk) in bytes that `build_index` takes on this machine."""
    return 1 << 28, 0


RETRIEVER = RetrieverPlugin(build, Options, Indexing(build_index, estimate_bytes))


def _collection(options: Options, corpus_hash: str) -> str:
    return store_name(options.collection, corpus_hash, f"{options.k1} {options.b} {options.shards}")


def _index_body(options: Options) -> dict[str, Any]:
    """Lucene's English analyzer, with pyserini's BM25. Only the words of title and text together are indexed."""
    filters = ["possessive", "lowercase", "stop_words", "porter_stem"]
    analysis = {
        "filter": {
            "possessive": {"type": "stemmer", "language": "possessive_english"},
            "stop_words": {"type": "stop", "stopwords": "_english_"},
        },
        "analyzer": {_METADATA: {"type": "custom", "tokenizer": "standard", "filter": filters}},
    }
    similarity = {_METADATA: {"type": "BM25", "k1": options.k1, "b": options.b}}
    stored = {name: {"type": "keyword", "index": False, "doc_values": False} for name in ("id", "title", "text")}
    searched = {"type": "text", "analyzer": _METADATA, "similarity": _METADATA, "index_options": "freqs"}
    return {
        "settings": {"number_of_shards": options.shards, "analysis": analysis, "similarity": similarity},
        "mappings": {
            "dynamic": "strict",
            "_source": {"excludes": [_FIELD]},
            "properties": {**stored, "position": {"type": "long"}, _FIELD: searched},
        },
    }


def _bulk_rows(position: int, passage: Passage) -> tuple[dict[str, Any], dict[str, Any]]:
    return {"index": {"_id": str(position)}}, {**passage.model_dump(), "position": position, _FIELD: searched_text(passage)}


def _check_bulk(reply: dict[str, Any]) -> None:
    """Raise _SearchError for a row that the engine did not take: the whole reply has status 200 all the same."""
    if reply["errors"]:
        failed = next(row["index"] for row in reply["items"] if "error" in row["index"])
        raise _SearchError(failed["status"], f"row {failed['_id']}: {failed['error'].get('reason', failed['error'])}")


def _loaded(options: Options, collection: str) -> _Loaded:
    """What the engine's index holds, after a check that it is all there."""
    client = _client(options)
    if not _asked(options, lambda: client.indices.exists(index=collection)):
        raise RetrievalError(f"{options.url}: has no index '{collection}'. Load it: refinery index PASSAGES --retriever RECIPE.")
    mapping = _asked(options, lambda: client.indices.get_mapping(index=collection))
    try:
        (found,) = mapping.values()
        loaded = _Loaded.model_validate(found["mappings"].get("_meta", {}).get(_METADATA))
    except ValueError:
        raise RetrievalError(
            f"{options.url}: '{collection}' was not loaded to its end by `refinery index`, so its corpus is unknown. "
            "Continue the load with --resume, or load it."
        ) from None
    count = _asked(options, lambda: client.count(index=collection))["count"]
    if count != loaded.num_passages:
        raise RetrievalError(f"{options.url}: '{collection}' holds {count:,} rows, but {loaded.num_passages:,} were loaded. Load it again.")
    return loaded


def _point_alias(options: Options, client: Any, collection: str) -> None:
    name = options.collection
    exists = _asked(options, lambda: client.indices.exists_alias(name=name))
    earlier = [index for index in (_asked(options, lambda: client.indices.get_alias(name=name)) if exists else {}) if index != collection]
    actions = [{"add": {"index": collection, "alias": name}}, *({"remove": {"index": index, "alias": name}} for index in earlier)]
    _asked(options, lambda: client.indices.update_aliases(body={"actions": actions}))
    for index in earlier:
        _logger.warning("%s: '%s' no longer leads to %s. Delete that index when no run searches it.", options.url, name, index)


def _asked(options: Options, send: Any) -> Any:
    return retried(send, tries=options.tries, where=options.url, fault_of=_fault_of, remedy=_REMEDY, what="a request")


def _fault_of(error: Exception) -> Fault | None:
    if isinstance(error, _SearchError):
        status, reason = error.args
        return Fault(f"status {status}: {reason}", status)
    exceptions: Any = import_module("opensearchpy.exceptions")
    reply: Any = error
    if isinstance(error, exceptions.ConnectionError):  # a time out too
        return Fault(str(reply.error))
    return Fault(f"status {reply.status_code}: {reply.error}", reply.status_code) if isinstance(error, exceptions.TransportError) else None


def _client(options: Options) -> Any:
    try:
        opensearch = import_module("opensearchpy")
    except ImportError:
        raise options.fault("url", 'opensearch needs its extra. Install it: pip install "rag-refinery[opensearch]"') from None
    user, key = os.environ.get(options.user_env), os.environ.get(options.api_key_env)
    auth = (user, os.environ.get(options.password_env, "")) if user and not key else None
    return opensearch.OpenSearch(
        options.url,
        http_auth=auth,
        headers={"Authorization": f"ApiKey {key}"} if key else None,
        timeout=options.timeout_seconds,
        max_retries=0,
        pool_maxsize=options.requests_at_once,
    )
