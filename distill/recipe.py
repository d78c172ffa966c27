"""What a distillation recipe may say."""

from pathlib import Path
from typing import Any, Literal

from pydantic import Field, field_validator

from distill.label_task import TASKS, LabelTask
from distill.stores.base import STORES, ReplyStore, StorePlugin, opened
from distill.teacher.batch import BatchConfig
from refinery.llms.build import ModelConfig
from refinery.llms.served.endpoint import EndpointConfig
from refinery.llms.served.protocols.base import check_protocol, protocol_of
from refinery.questions.base import find_reader
from refinery.retrievers.base import RetrieverConfig
from refinery.runtime import plugins
from refinery.runtime.recipe import Recipe, build_recipe


class DistillRecipe(Recipe):
    """One labelling task over a set of questions."""

    task: str = Field(description="a file of distill/tasks, or module:attribute")
    options: dict[str, Any] = Field(default={}, description="the task's own switches")
    questions: list[Path] = Field(default=[], description="questions.jsonl files, or other datasets with `reader`")
    reader: str = Field(default="jsonl", description="a file of refinery/questions: the schema the questions are in")
    runs: list[Path] = Field(default=[], description="finished infer runs over the questions, whose predictions the task reads")
    output_dir: Path
    teacher: EndpointConfig | None = Field(default=None, description="the endpoint that labels")
    target: ModelConfig | None = Field(default=None, description="the model whose own knowledge is judged (RA-ISF App. A.1)")
    target_endpoint: EndpointConfig | None = Field(default=None, description="the same, behind an endpoint")
    transport: Literal["live", "batch"] = Field(default="live", description="batch: waves of Batch jobs, cheaper and within a day")
    batch: BatchConfig = BatchConfig()
    store: str | None = Field(default=None, description="where replies and searches are kept; effects.sqlite in output_dir by default")
    store_kind: str = Field(default="sqlite", description="a file of distill/stores, an entry point, or a module of your own")
    max_cost_usd: float | None = Field(default=None, description="hard cap; the run stops before a request that could pass it", gt=0)
    retriever: RetrieverConfig | None = None
    passages_per_query: int = Field(default=5, description="RA-ISF retrieves 5 (Fig. 3), RQ-RAG 3 (Sec. 3.3)", ge=1)
    max_steps: int = Field(default=5, description="searches of one trajectory", ge=1)
    max_new_tokens: int = Field(default=32, description="tokens of a closed-book answer", ge=1)
    rows_in_flight: int = Field(default=256, description="rows worked on at once", ge=1)
    shard: str | None = Field(
        default=None, description="i/n: label only part i (from 0) of n; `refinery distill merge` joins them", pattern=r"^\d+/\d+$"
    )
    limit: int | None = Field(default=None, description="label only the first questions", ge=1)
    max_failure_share: float = Field(default=0.2, description="the run fails when more of its rows are rejected", ge=0, le=1)
    evaluation_sets: list[Path] = Field(default=[], description="questions that must not be trained on; overlap is reported")
    student: str | None = Field(default=None, description="the model to be trained; with it, row lengths in its tokens are reported")
    max_length: int = Field(default=4096, description="tokens that training will allow (RQ-RAG's script: 4096)", ge=1)
    licence: str | None = Field(default=None, description="of the questions and passages, for the dataset card (an SPDX name)")

    @field_validator("shard")
    @classmethod
    def _shard_exists(cls, shard: str | None) -> str | None:
        if shard and int(shard.split("/")[0]) >= int(shard.split("/")[1]):
            raise ValueError("i/n counts from 0: the last of 4 shards is 3/4")
        return shard

    @property
    def shard_of(self) -> tuple[int, int]:
        """(i, n); (0, 1) for the whole."""
        number, _, count = (self.shard or "0/1").partition("/")
        return int(number), int(count)

    def check(self, where: str) -> None:
        """The task's options, the endpoints' protocols, the store, and the reader."""
        self.task_options(where)
        self.store_place(self.output_dir)
        for endpoint in filter(None, (self.teacher, self.target_endpoint)):
            check_protocol(endpoint)
            if self.transport == "batch" and not protocol_of(endpoint).openai_routes:
                raise self.fault("transport", f"OpenAI's Batch jobs are not for protocol '{endpoint.protocol}'. Set it to live.")
        with self.at("reader"):
            find_reader(self.reader)

    def store_place(self, folder: Path) -> str:
        """Where the replies of the run in `folder` are kept. Raises RecipeError where the recipe must say it."""
        own = self.store_plugin.file_name
        if self.store or own:
            return self.store or f"{folder}/{own}"
        raise self.fault("store", f"is missing, and store_kind '{self.store_kind}' needs it.")

    def open_store(self, folder: Path) -> ReplyStore:
        """The store of the run in `folder`. Raises RunDirError when it cannot be used."""
        return opened(self.store_plugin, self.store_kind, self.store_place(folder))

    @property
    def store_plugin(self) -> StorePlugin:
        """What `store_kind` names. Raises PluginError."""
        with self.at("store_kind"):
            return plugins.find(STORES, self.store_kind)

    def task_options(self, where: str | None = None) -> Any:
        """The task's options, validated. Raises RecipeError for an unknown or wrong one, PluginError for an unknown task."""
        return build_recipe(self.options, self.label_task.options, where=where or self.where, part="options")

    @property
    def label_task(self) -> LabelTask[Any]:
        """What `task` names. Raises PluginError."""
        with self.at("task"):
            return plugins.find(TASKS, self.task)
