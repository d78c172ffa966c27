"""The parts of pipelines, local models and retrievers, which pipelines with equal configurations share."""

from collections.abc import Callable
from typing import TypeVar

from refinery.llms.base import LLM
from refinery.llms.build import ModelConfig, build_llm
from refinery.llms.served.endpoint import ServedModelConfig
from refinery.retrievers.base import Retriever, RetrieverConfig
from refinery.retrievers.search.build import build_retriever

T = TypeVar("T")


class Parts:
    """Loads each model and opens each corpus once, for all pipelines that it is passed to. Equal means that every key is equal."""

    def __init__(self) -> None:
        self._models: dict[str, LLM] = {}
        self._retrievers: dict[str, Retriever] = {}

    def model(self, config: ModelConfig | ServedModelConfig) -> LLM:
        """The loaded model; an endpoint's client is not shared, because each pipeline closes its own."""
        if isinstance(config, ServedModelConfig):
            return build_llm(config)
        return _kept(self._models, config.model_dump_json(), lambda: build_llm(config))

    def retriever(self, config: RetrieverConfig) -> Retriever:
        """The retriever over its corpus."""
        return _kept(self._retrievers, config.model_dump_json(), lambda: build_retriever(config))


def _kept(built: dict[str, T], key: str, build: Callable[[], T]) -> T:
    if key not in built:
        built[key] = build()
    return built[key]
