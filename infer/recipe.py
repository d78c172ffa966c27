"""What an inference recipe may say."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from pydantic import Field, ValidationInfo, field_validator

from infer.decoders.base import find_decoder
from infer.session import AnswerStyle
from refinery.llms.build import ModelConfig, Role
from refinery.llms.served.endpoint import ServedModelConfig
from refinery.llms.served.protocols.base import check_protocol
from refinery.questions.base import find_reader
from refinery.retrievers.base import RetrieverConfig
from refinery.runtime.recipe import Recipe, build_recipe, read_values


class PipelineRecipe(Recipe):
    """One decoder with its models and retriever: all that a `Pipeline` loads."""

    decoder: str = Field(description="a file of infer/decoders, or module:attribute")
    options: dict[str, Any] = Field(default={}, description="the decoder's own switches")
    name: str | None = Field(default=None, description="what tables and clients call it; the decoder's name by default")
    llm: ModelConfig | None = Field(default=None, description="a causal model on this machine")
    endpoint: ServedModelConfig | None = Field(
        default=None,
        description="in its place an endpoint: by chat for decoders that only prompt, with `tokenizer` for all",
        validate_default=True,
    )
    sub_models: dict[Role, ModelConfig | ServedModelConfig] = Field(
        default={}, description="models of their own by role (RA-ISF's self_knowledge, relevance, decomposition), of any family or served"
    )
    retriever: RetrieverConfig | None = None
    passages_per_query: int = Field(default=5, description="RA-ISF retrieves 5 (Fig. 3), RQ-RAG 3 (Sec. 3.3)", ge=1)
    max_new_tokens: int = Field(default=100, description="tokens of an answer; RQ-RAG's scripts use 100", ge=1)
    answer_style: AnswerStyle = Field(
        default="paper",
        description="paper: prompts as printed, and the whole reply is the answer; short: asks for a few words, and reads it out of a "
        "sentence that states it. Compare systems under one style",
    )
    questions_in_flight: int = Field(default=64, description="questions decoded at once; bounds the keys and values kept", ge=1)
    keep_prompts: bool = Field(
        default=False, description="keep in the trace what each call read, of which `distill` (task traces) makes rows"
    )

    @field_validator("endpoint")
    @classmethod
    def _one_model(cls, endpoint: ServedModelConfig | None, info: ValidationInfo) -> ServedModelConfig | None:
        # An `llm` that is itself wrong is missing from `info.data`, and has a line of its own.
        if "llm" in info.data and (info.data["llm"] is None) == (endpoint is None):
            raise ValueError("name the model by `llm` (on this machine) or by `endpoint` (a server), one of the two")
        return endpoint

    @property
    def model(self) -> ModelConfig | ServedModelConfig:
        """Whichever of `llm` and `endpoint` is given."""
        model = self.llm or self.endpoint
        assert model is not None, "the validator asks for one"
        return model

    @property
    def tokenizer(self) -> str | None:
        """Where the model's tokenizer is; a chat has none."""
        return self.llm.base if self.llm else self.endpoint and self.endpoint.tokenizer

    def check(self, where: str) -> None:
        """The decoder's options, and the endpoints' protocols."""
        self.decoder_options(where)
        for model in (self.model, *self.sub_models.values()):
            if isinstance(model, ServedModelConfig):
                check_protocol(model)

    def decoder_options(self, where: str) -> Any:
        """The decoder's options, validated. Raises RecipeError for an unknown or wrong one, PluginError for an unknown decoder."""
        with self.at("decoder"):
            decoder = find_decoder(self.decoder)
        return build_recipe(self.options, decoder.options, where=where, part="options")


class InferRecipe(PipelineRecipe):
    """A pipeline over a set of questions."""

    questions: list[Path] = Field(min_length=1, description="questions.jsonl files, or other datasets with `reader`")
    reader: str = Field(default="jsonl", description="a file of refinery/questions: the schema the questions are in")
    output_dir: Path
    limit: int | None = Field(default=None, description="answer only the first questions", ge=1)
    metrics: list[str] = Field(default=[], description="metrics of your own, such as my_lab.metrics:mine, beside all that ship")

    def check(self, where: str) -> None:
        """The decoder's options, the reader and the metrics."""
        super().check(where)
        with self.at("reader"):
            find_reader(self.reader)
        if self.metrics:
            from refinery.metrics.registry import find_metric

            for metric in self.metrics:
                find_metric(metric)


RUN_KEYS = frozenset(InferRecipe.model_fields.keys() - PipelineRecipe.model_fields.keys())


def load_pipeline_recipe(path: str | Path, overrides: Sequence[str] = ()) -> PipelineRecipe:
    """The pipeline of a recipe file. The keys of a run (`questions`, `output_dir`) may be there and are not read."""
    return pipeline_recipe(read_values(path, overrides), where=str(path))


def pipeline_recipe(values: Mapping[str, Any], *, where: str) -> PipelineRecipe:
    """The pipeline among the values of an inference recipe. Raises RecipeError with one line per fault."""
    return build_recipe({key: value for key, value in values.items() if key not in RUN_KEYS}, PipelineRecipe, where=where)
