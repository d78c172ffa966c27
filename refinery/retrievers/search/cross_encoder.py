"""A cross-encoder on this machine: it reads a query and a text together and gives one logit for the text's relevance."""

from collections.abc import Sequence
from functools import cache
from importlib.util import find_spec
from typing import Any, Literal

from pydantic import Field

from refinery.contract.plain_text import hide_added_tokens
from refinery.errors import CheckpointError, conversion_remedy
from refinery.installed import install_extra
from refinery.runtime.concurrency.batching import Batcher, in_thread
from refinery.runtime.recipe import Recipe

_MOST_CHARACTERS = 20_000  # of a text; no cross-encoder reads more
_MOST_QUERIES = 16  # scored at once, each with all its texts


class CrossEncoderConfig(Recipe):
    """The cross-encoder and how it runs."""

    model: str = Field(description="a cross-encoder with one label, such as BAAI/bge-reranker-base")
    max_length: int | None = Field(default=None, description="tokens read of a query and a text; by default the model's limit", ge=1)
    dtype: Literal["float32", "bfloat16", "float16"] = Field(default="float32", description="of weights and computation")
    device: str | None = Field(default=None, description="cpu, cuda or cuda:1; by default a GPU if there is one")
    batch_size: int = Field(default=32, description="pairs scored at once", ge=1)


def load_cross_encoder(config: CrossEncoderConfig) -> "CrossEncoder":
    """The cross-encoder of a configuration, loaded once.

    Raises CheckpointError for a model that cannot be loaded or does not rerank, RecipeError without its extra.
    """
    if find_spec("sentence_transformers") is None:
        raise config.fault("model", f"a cross-encoder needs an extra. Install it: {install_extra('dense')}")
    return _loaded(config.model_dump_json(include=set(CrossEncoderConfig.model_fields)))


@cache
def _loaded(config: str) -> "CrossEncoder":
    return CrossEncoder(CrossEncoderConfig.model_validate_json(config))


class CrossEncoder:
    """Scores are raw logits, without a sigmoid. Requests that arrive while a batch runs form the next batch."""

    def __init__(self, config: CrossEncoderConfig) -> None:
        self._model, self._batch_size = _load(config), config.batch_size
        self._scores: Batcher[tuple[str, tuple[str, ...]], list[float]] = Batcher(in_thread(self._score_all), max_batch=_MOST_QUERIES)

    async def score(self, query: str, texts: Sequence[str]) -> list[float]:
        """One logit per text."""
        return await self._scores((query, tuple(text[:_MOST_CHARACTERS] for text in texts)))

    def _score_all(self, searches: Sequence[tuple[str, tuple[str, ...]]]) -> list[list[float]]:
        """One logit per text of each (query, texts), in one pass."""
        pairs = [(query, text) for query, texts in searches for text in texts]
        scores = iter(self._model.predict(pairs, batch_size=self._batch_size, show_progress_bar=False).tolist())
        return [[next(scores) for _ in texts] for _, texts in searches]


def _load(config: CrossEncoderConfig) -> Any:
    import sentence_transformers
    import torch

    try:
        model = sentence_transformers.CrossEncoder(
            config.model,
            max_length=config.max_length,
            device=config.device,
            model_kwargs={"dtype": getattr(torch, config.dtype), "use_safetensors": True},
            processor_kwargs={"split_special_tokens": True},
            activation_fn=torch.nn.Identity(),
            trust_remote_code=False,
        )
    except (OSError, ValueError) as error:
        reason, remedy = str(error).splitlines()[0], conversion_remedy(error, config.model)
        raise CheckpointError(f"cross-encoder '{config.model}': cannot be loaded ({reason}).{remedy}") from None
    if model.num_labels != 1:
        raise CheckpointError(f"cross-encoder '{config.model}': gives {model.num_labels} labels, but a reranker gives one score.")
    hide_added_tokens(model.tokenizer)
    return model
