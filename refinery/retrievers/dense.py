"""Dense retrieval: passages and queries as vectors of one encoder, compared by inner product (faiss).

Contriever-MS-MARCO, RA-ISF's retriever, is a bare encoder, so its outputs are mean-pooled. Models that define a pooling keep it.
"""

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, ClassVar

from pydantic import Field

from refinery.contract.records import Passage, Question
from refinery.installed import install_extra
from refinery.passages.corpus import Corpus, batches, corpus_hash, searched_text
from refinery.retrievers.base import Hit, Indexing, IndexOptions, Retriever, RetrieverConfig, RetrieverPlugin, corpus_in_memory
from refinery.retrievers.index.manifest import open_index
from refinery.retrievers.search.encoder import EncoderConfig, load_encoder
from refinery.runtime.concurrency.batching import Batcher, in_thread
from refinery.runtime.files.fingerprint import text_fingerprint

_MOST_QUERIES = 256  # encoded and searched at once
_BATCHES_AT_ONCE = 32  # of an encoder, which sorts the texts in them by length; 2,048 texts by default


class Options(IndexOptions):
    """The encoder and the index of its vectors."""

    SEARCH_ONLY: ClassVar[frozenset[str]] = frozenset({"search_parameters", "encoder"})

    encoder: EncoderConfig = Field(description="the model that turns passages and queries into vectors")
    faiss: str = Field(
        default="Flat",
        description="Flat (exact), SQfp16 or SQ8 (half or a quarter of it), HNSW32, or cells on disk: IVF4096 with Flat, SQ8 or PQ64",
        pattern=r"^(Flat|SQ8|SQfp16|HNSW\d+|IVF\d+,(Flat|SQ8|SQfp16|PQ\d+(x4)?))$",
    )
    search_parameters: str | None = Field(
        default=None, description="faiss's parameters, such as nprobe=64 (IVF, the default) or efSearch=128 (HNSW)"
    )


class Dense(Retriever):
    """Searches the vectors of a corpus."""

    def __init__(self, passages: Sequence[Passage], vectors: Any, options: Options, corpus: str) -> None:
        self._passages, self._vectors = passages, vectors
        self._encoder = load_encoder(options.encoder)
        self._batcher = Batcher(in_thread(self.search_all), max_batch=_MOST_QUERIES)
        self.corpus_hash = corpus
        self.revision = text_fingerprint(["dense", corpus, options.model_dump_json()])

    async def search(self, query: str, *, k: int, question: Question | None = None) -> list[Hit]:
        """The `k` passages with the highest inner products. Concurrent queries are encoded in one batch."""
        return await self._batcher((query, k))

    def search_all(self, searches: Sequence[tuple[str, int]]) -> list[list[Hit]]:
        """The hits of each (query, k)."""
        if not searches:
            return []
        encoded = self._encoder.queries([query for query, _ in searches])
        scores, positions = self._vectors.search(encoded, max(k for _, k in searches))
        return [
            [Hit(self._passages[int(i)], float(score)) for score, i in zip(row[:k], found[:k], strict=True) if i >= 0]
            for (_, k), row, found in zip(searches, scores, positions, strict=True)
        ]


def build(config: RetrieverConfig, options: Options) -> Dense:
    """A retriever over the configuration's index, or over its passages, which are encoded now and kept in memory."""
    vectors = _vectors_module(options)
    if config.index:
        passages, manifest = open_index(config.index, "dense", options)
        opened = vectors.open_vectors(config.index, options.faiss, options.search_parameters)
        return Dense(passages, opened, options, manifest.corpus_hash)
    import numpy as np

    passages = corpus_in_memory(config)
    encode = load_encoder(options.encoder).passages
    embeddings = np.concatenate(
        [encode([searched_text(passage) for passage in batch]) for batch in batches(passages, most=_at_once(options))]
    )
    if options.faiss == "Flat":
        found = vectors.Vectors(embeddings=embeddings)
    else:
        found = vectors.Vectors(
            index=vectors.tuned(vectors.build_index(embeddings, options.faiss), options.faiss, options.search_parameters)
        )
    return Dense(passages, found, options, corpus_hash(passages))


def build_index(passages: Sequence[Passage], folder: Path, options: Options) -> None:
    """Write the vectors of `passages` into `folder`, continuing where an earlier call stopped."""
    _vectors_module(options).build_vectors(
        Corpus(folder), folder, load_encoder(options.encoder).passages, options.faiss, batch=_at_once(options)
    )


def build_shard(passages: Sequence[Passage], folder: Path, options: Options, number: int, of: int) -> None:
    """Encode every `of`-th batch of the passages in `folder`, from batch `number` on."""
    _vectors_module(options).encode_share(
        Corpus(folder), folder, load_encoder(options.encoder).passages, number, of, batch=_at_once(options)
    )


def reuse_index(passages: Sequence[Passage], folder: Path, options: Options, previous: Path) -> int:
    """Write the same files, but encode only texts that the index in `previous` does not have. Returns how many passages it has."""
    vectors = _vectors_module(options)
    known = vectors.KnownVectors(Corpus(previous), previous, options.faiss, load_encoder(options.encoder).passages)
    vectors.build_vectors(Corpus(folder), folder, known, options.faiss, batch=_at_once(options))
    return known.num_reused


def estimate_bytes(num_passages: int, sample: Iterable[Passage], options: Options) -> tuple[int, int]:
    """The (memory, disk) in bytes that `build_index` takes, without the encoder's own memory."""
    dimensions = load_encoder(options.encoder).passages([searched_text(next(iter(sample)))]).shape[1]
    memory, disk = _vectors_module(options).bytes_per_vector(options.faiss, dimensions)
    return num_passages * memory + (1 << 28), num_passages * disk


RETRIEVER = RetrieverPlugin(build, Options, Indexing(build_index, estimate_bytes, reuse_index, build_shard))


def _at_once(options: Options) -> int:
    return _BATCHES_AT_ONCE * options.encoder.batch_size


def _vectors_module(options: Options) -> Any:
    try:
        from refinery.retrievers.index import vectors
    except ImportError:
        raise options.fault("faiss", f"needs the extra for vectors. Install it: {install_extra('dense')}") from None
    return vectors
