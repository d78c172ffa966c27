"""An index of your own in Elasticsearch or OpenSearch, searched by the names of its fields. It is read and never written."""

from collections.abc import Mapping, Sequence
from typing import Any, Literal

from pydantic import Field

from refinery.contract.records import Passage, Question
from refinery.errors import RetrievalError
from refinery.retrievers.base import Hit, Retriever, RetrieverConfig, RetrieverPlugin
from refinery.retrievers.search.opensearch_client import ConnectionOptions, connect, fault_of, query_words, search_many
from refinery.retrievers.search.requests import divided, retried
from refinery.runtime.concurrency.batching import Batcher, in_thread
from refinery.runtime.files.fingerprint import text_fingerprint
from refinery.text import one_line

_REMEDY = "Check that the engine runs, its address, its key and the index."


class Options(ConnectionOptions):
    """Where the index is, which of its fields make a passage, and how a query is compared with them."""

    index: str = Field(description="an index, an alias or a pattern such as news-*", min_length=1)
    text_field: str = Field(description="the passage's text; a dot leads into an object, as in body.content", min_length=1)
    title_field: str | None = Field(default=None, description="the passage's title, if there is one")
    id_field: str | None = Field(default=None, description="the passage's id (default: the engine's own _id)")
    search_fields: list[str] = Field(default=[], description="fields that are searched, such as [title^2, body]; default: title and text")
    query_type: Literal["best_fields", "most_fields", "cross_fields", "phrase"] = Field(
        default="best_fields", description="the type of the multi_match query"
    )
    revision: str | None = Field(default=None, description="your name for the index as it is; needed to store searches between runs")


class ExistingIndex(Retriever):
    """Sends concurrent queries in few requests, several at once."""

    def __init__(self, options: Options) -> None:
        self._options, self._client = options, connect(options)
        self._where = f"{options.url}: index '{options.index}'"
        run = divided(in_thread(self._hits, threads=options.requests_at_once))
        self._find: Batcher[tuple[str, int], list[Hit]] = Batcher(
            run, max_batch=options.queries_per_request, at_once=options.requests_at_once
        )
        if options.revision:
            self.revision = text_fingerprint(["existing_index", options.model_dump_json()])

    def check(self) -> None:
        """Read one row. Raises RetrievalError without an answer, for an empty index, and for a row without the text's field."""
        [found] = self._ask([{"query": {"match_all": {}}, "size": 1}])
        if not found:
            raise RetrievalError(f"{self._where} has no rows. Name another.")
        self._hit(found[0])

    async def search(self, query: str, *, k: int, question: Question | None = None) -> list[Hit]:
        """The `k` best rows. Raises RetrievalError when the engine refuses the query, or does not answer."""
        return await self._find((query, k)) if query.strip() else []

    def _hits(self, searches: Sequence[tuple[str, int]]) -> list[list[Hit]]:
        return [[self._hit(row) for row in found] for found in self._ask([self._body(query, k) for query, k in searches])]

    def _ask(self, bodies: Sequence[dict[str, Any]]) -> list[list[dict[str, Any]]]:
        def send() -> list[list[dict[str, Any]]]:
            return search_many(self._client, self._options.index, bodies)

        return retried(send, tries=self._options.tries, where=self._where, fault_of=fault_of, remedy=_REMEDY)

    def _body(self, query: str, k: int) -> dict[str, Any]:
        given = [name for name in (self._options.title_field, self._options.text_field, self._options.id_field) if name]
        fields = self._options.search_fields or [name for name in given if name != self._options.id_field]
        # A query is analyzed as text; the engine's query syntax would read operators in it.
        compared = {"multi_match": {"query": query_words(query), "fields": fields, "type": self._options.query_type}}
        return {"query": compared, "size": k, "_source": given}

    def _hit(self, row: Mapping[str, Any]) -> Hit:
        source, options = row.get("_source", {}), self._options
        text, title = _value(source, options.text_field), options.title_field and _value(source, options.title_field)
        name = row["_id"] if options.id_field is None else _value(source, options.id_field)
        missing = options.text_field if text is None else options.id_field if name is None else None
        if missing is not None:
            remedy = f"Name one of its fields: {', '.join(sorted(source)) or 'it shows none'}."
            raise RetrievalError(f"{self._where}: row '{row['_id']}' has no field '{missing}'. {remedy}")
        return Hit(Passage(id=str(name), title=one_line(title or ""), text=text or ""), float(row["_score"]))


def _value(source: Any, name: str) -> str | None:
    """The text of a field, which may be in objects and have several values."""
    if isinstance(source, Mapping) and name not in source and "." in name:
        first, _, rest = name.partition(".")
        return _value(source.get(first), rest)
    value = source.get(name) if isinstance(source, Mapping) else None
    return None if value is None else " ".join(map(str, value)) if isinstance(value, list) else str(value)


def build(config: RetrieverConfig, options: Options) -> ExistingIndex:
    """A retriever over the index, after a look at one of its rows."""
    if config.passages or config.index:
        raise config.fault("passages" if config.passages else "index", "existing_index searches what is in the engine. Leave it out.")
    retriever = ExistingIndex(options)
    retriever.check()
    return retriever


RETRIEVER = RetrieverPlugin(build, Options)
