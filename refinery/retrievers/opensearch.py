"""BM25 by OpenSearch or Elasticsearch, in an index that Refinery loads. `existing_index` searches one that is there.

Words are those of Lucene's English analyzer, and k1 and b are pyserini's: the BM25 of the papers' baselines.
"""

from collections.abc import Iterable, Sequence
from typing import Any

from pydantic import Field

from refinery.contract.records import Passage
from refinery.passages.corpus import searched_text
from refinery.retrievers.search.engine import METADATA, Engine, EngineOptions, Loaded, engine_plugin
from refinery.retrievers.search.opensearch_client import ConnectionOptions, PartError, connect, fault_of, query_words, search_many
from refinery.retrievers.search.requests import Fault

_FIELD = "searched"


class Options(ConnectionOptions, EngineOptions):
    """Where the engine is, and the BM25 of the index."""

    collection: str = Field(default="passages", description="the alias of what is loaded", pattern=r"^[a-z0-9][a-z0-9_-]{0,199}$")
    k1: float = Field(default=0.9, description="pyserini's default, used by the papers' BM25 baselines", ge=0)
    b: float = Field(default=0.4, description="pyserini's", ge=0, le=1)
    shards: int = Field(default=1, description="more search faster, but each scores by its own word frequencies", ge=1)


class OpenSearch(Engine[Options]):
    """Sends concurrent queries in few requests, several at once."""

    name, kind, remedy, passages_per_request = "opensearch", "index", "Check that the engine runs, its address and its key.", 1_000

    def __init__(self, options: Options) -> None:
        super().__init__(options, options.url, at_once=options.requests_at_once)
        self._client = connect(options)

    def _found(self, searches: Sequence[tuple[str, int]]) -> list[list[tuple[Any, Any, float]]]:
        found = search_many(self._client, self._collection, [_search_body(query, k) for query, k in searches])
        return [[(hit.get("_id"), hit["_source"], hit["_score"]) for hit in hits] for hits in found]

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
            raise PartError(failed["status"], f"row {failed['_id']}: {failed['error'].get('reason', failed['error'])}")

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
        return fault_of(error)


def _search_body(query: str, k: int) -> dict[str, Any]:
    # `match` analyzes text; the engine's query syntax would read operators in it.
    order = [{"_score": "desc"}, {"position": "asc"}]
    return {
        "query": {"match": {_FIELD: query_words(query)}},
        "size": k,
        "sort": order,
        "track_scores": True,
        "_source": ["id", "title", "text"],
    }


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
