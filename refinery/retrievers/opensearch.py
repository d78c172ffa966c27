"""BM25 by OpenSearch or Elasticsearch, over opensearch-py: the requests used here are those that both document.

Words are those of Lucene's English analyzer, and k1 and b are pyserini's: the BM25 of the papers' baselines.
"""

import os
from collections.abc import Iterable, Sequence
from importlib import import_module
from typing import Any, ClassVar

from pydantic import Field

from refinery.contract.records import Passage
from refinery.passages.corpus import searched_text
from refinery.retrievers.search.engine import METADATA, Engine, EngineOptions, Loaded, engine_plugin
from refinery.retrievers.search.requests import Fault

_MOST_WORDS = 1_024  # of a query, Lucene's maxClauseCount
_FIELD = "searched"


class Options(EngineOptions):
    """Where the engine is, and the BM25 of the index."""

    SEARCH_ONLY: ClassVar[frozenset[str]] = EngineOptions.SEARCH_ONLY | {"url", "user_env", "password_env", "api_key_env"}

    url: str = Field(default="http://127.0.0.1:9200", pattern=r"^https?://")
    collection: str = Field(default="passages", description="the alias of what is loaded", pattern=r"^[a-z0-9][a-z0-9_-]{0,199}$")
    user_env: str = Field(default="OPENSEARCH_USER", description="environment variable that holds the user, if the engine has users")
    password_env: str = Field(default="OPENSEARCH_PASSWORD", description="environment variable that holds the user's password")
    api_key_env: str = Field(default="OPENSEARCH_API_KEY", description="environment variable that holds a key, used instead of a user")
    k1: float = Field(default=0.9, description="pyserini's default, used by the papers' BM25 baselines", ge=0)
    b: float = Field(default=0.4, description="pyserini's", ge=0, le=1)
    shards: int = Field(default=1, description="more search faster, but each scores by its own word frequencies", ge=1)


class OpenSearch(Engine[Options]):
    """Sends concurrent queries in few requests, several at once."""

    name, kind, remedy, passages_per_request = "opensearch", "index", "Check that the engine runs, its address and its key.", 1_000

    def __init__(self, options: Options) -> None:
        super().__init__(options, options.url, at_once=options.requests_at_once)
        user, key = os.environ.get(options.user_env), os.environ.get(options.api_key_env)
        self._client = self._import("opensearchpy").OpenSearch(
            options.url,
            http_auth=(user, os.environ.get(options.password_env, "")) if user and not key else None,
            headers={"Authorization": f"ApiKey {key}"} if key else None,
            timeout=options.timeout_seconds,
            max_retries=0,
            pool_maxsize=options.requests_at_once,
        )

    def _found(self, searches: Sequence[tuple[str, int]]) -> list[list[tuple[Any, Any, float]]]:
        body = [line for query, k in searches for line in ({}, _search_body(query, k))]
        replies = self._client.msearch(body=body, index=self._collection)["responses"]
        for reply in replies:
            if "error" in reply:
                raise _PartError(reply.get("status", 400), str(reply["error"].get("reason", reply["error"])))
            if (failed := reply.get("_shards", {}).get("failed", 0)) or reply.get("timed_out"):
                raise _PartError(503, f"{failed} shards failed" if failed else "the search timed out before it was complete")
        return [[(hit.get("_id"), hit["_source"], hit["_score"]) for hit in reply["hits"]["hits"]] for reply in replies]

    def _built_with(self, options: dict[str, Any]) -> str:
        return f"{options['k1']} {options['b']} {options['shards']}"

    def _create(self, collection: str, prepared: Any) -> None:
        if not self._client.indices.exists(index=collection):
            self._client.indices.create(index=collection, body=_index_body(self._options))

    def _send(self, collection: str, start: int, batch: Sequence[Passage], prepared: Any) -> None:
        rows: list[dict[str, Any]] = []
        for position, passage in enumerate(batch, start):
            row = {**passage.model_dump(), "position": position, _FIELD: searched_text(passage)}
            rows += [{"index": {"_id": str(position)}}, row]
        reply = self._client.bulk(body=rows, index=collection)
        if reply["errors"]:  # the whole reply has status 200 all the same
            failed = next(row["index"] for row in reply["items"] if "error" in row["index"])
            raise _PartError(failed["status"], f"row {failed['_id']}: {failed['error'].get('reason', failed['error'])}")

    def _publish(self, collection: str, loaded: Loaded) -> Sequence[str]:
        indices, alias = self._client.indices, self._options.collection
        indices.refresh(index=collection)
        indices.put_mapping(index=collection, body={"_meta": {METADATA: loaded.model_dump()}})
        before = list(indices.get_alias(name=alias)) if indices.exists_alias(name=alias) else []
        removed = [{"remove": {"index": index, "alias": alias}} for index in before if index != collection]
        indices.update_aliases(body={"actions": [{"add": {"index": collection, "alias": alias}}, *removed]})
        return before

    def _described(self, collection: str) -> tuple[Any, int] | None:
        if not self._client.indices.exists(index=collection):
            return None
        found, *others = self._client.indices.get_mapping(index=collection).values()
        metadata = None if others else found["mappings"].get("_meta", {}).get(METADATA)
        return metadata, self._client.count(index=collection)["count"]

    def _fault_of(self, error: Exception) -> Fault | None:
        exceptions: Any = import_module("opensearchpy.exceptions")
        reply: Any = error
        if isinstance(error, _PartError):
            status, reason = error.args
            return Fault(f"status {status}: {reason}", status)
        if isinstance(error, exceptions.ConnectionError):  # a time out too
            return Fault(str(reply.error))
        return (
            Fault(f"status {reply.status_code}: {reply.error}", reply.status_code) if isinstance(error, exceptions.TransportError) else None
        )


class _PartError(Exception):
    """The status and the reason of a part of a request that failed."""


def _search_body(query: str, k: int) -> dict[str, Any]:
    # `match` analyzes text; the engine's query syntax would read operators in it.
    words = " ".join(query.split()[:_MOST_WORDS])
    order = [{"_score": "desc"}, {"position": "asc"}]
    return {"query": {"match": {_FIELD: words}}, "size": k, "sort": order, "track_scores": True, "_source": ["id", "title", "text"]}


def _index_body(options: Options) -> dict[str, Any]:
    """Lucene's English analyzer, with pyserini's BM25. Only the words of title and text together are indexed."""
    filters = ["possessive", "lowercase", "stop_words", "porter_stem"]
    analysis = {
        "filter": {
            "possessive": {"type": "stemmer", "language": "possessive_english"},
            "stop_words": {"type": "stop", "stopwords": "_english_"},
        },
        "analyzer": {METADATA: {"type": "custom", "tokenizer": "standard", "filter": filters}},
    }
    similarity = {METADATA: {"type": "BM25", "k1": options.k1, "b": options.b}}
    stored = {name: {"type": "keyword", "index": False, "doc_values": False} for name in ("id", "title", "text")}
    searched = {"type": "text", "analyzer": METADATA, "similarity": METADATA, "index_options": "freqs"}
    return {
        "settings": {"number_of_shards": options.shards, "analysis": analysis, "similarity": similarity},
        "mappings": {
            "dynamic": "strict",
            "_source": {"excludes": [_FIELD]},
            "properties": {**stored, "position": {"type": "long"}, _FIELD: searched},
        },
    }


def estimate_bytes(num_passages: int, sample: Iterable[Passage], options: Options) -> tuple[int, int]:
    """The (memory, disk) in bytes that a load takes on this machine."""
    return 1 << 28, 0


RETRIEVER = engine_plugin(OpenSearch, Options, estimate_bytes)
