"""The keys of a distillation recipe."""

from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from pydantic import Field

from distill.label_task import TASKS, LabelTask
from distill.teacher.config import BatchConfig, TeacherConfig
from refinery.hub.config import HubConfig
from refinery.llms.build import ModelConfig
from refinery.llms.served.protocols.base import check_protocol, protocol_of
from refinery.questions.base import find_reader
from refinery.retrievers.base import RetrieverConfig
from refinery.runtime.recipe import Recipe, build_recipe
from refinery.runtime.recipes import plugins
from refinery.runtime.run.bad_rows import BadRowKeys
from refinery.runtime.run.shards import ShardKeys
from refinery.sample import SampleKeys
from refinery.stores.base import MAX_COST_USD, STORE, STORE_KIND, StoresReplies

if TYPE_CHECKING:
    from refinery.prompts.custom import OwnPrompts


class ExamplesConfig(Recipe):
    """Which labeled rows are shown before each prompt."""

    rows: Path = Field(description="labels of the same task, such as the train.jsonl of another run")
    count: int = Field(default=3, description="how many of its questions, or for task questions of its passages, are shown", ge=1)
    choose: Literal["similar", "first"] = Field(
        default="similar", description="similar: those whose question, or passage, is most like the row's (BM25); first: always the same"
    )


class Escalation(Recipe):
    """A stronger teacher that labels what the first one is unsure of: a cascade, as in FrugalGPT (Chen et al., 2023).

    It is always asked for a row that the first teacher's reply got rejected.
    """

    teacher: TeacherConfig = Field(description="the stronger teacher, whose labels replace those of the first")
    min_agreement: float = Field(
        default=1.0, description="it labels a row if a smaller share of the first teacher's `samples` agrees on it", ge=0, le=1
    )
    min_probability: float | None = Field(
        default=None,
        description="it labels a row with a label that the first teacher finds less probable than this, by its log-probabilities; only for "
        "tasks with labels and protocols that have log-probabilities",
        gt=0,
        le=1,
    )


class LabelHubConfig(HubConfig):
    """A dataset repository that receives labels while they are made."""

    questions_per_part: int = Field(default=1000, description="questions whose rows are one Parquet file for each split", ge=1)
    minutes: float = Field(default=10.0, description="an unfinished part is pushed too after this time, and replaced later", gt=0)


class DistillRecipe(StoresReplies, ShardKeys, SampleKeys, BadRowKeys):
    """One labeling task over a set of questions."""

    task: str = Field(description="the name of a file in distill/tasks, or module:attribute")
    options: dict[str, Any] = Field(default={}, description="the task's options")
    questions: list[Path] = Field(default=[], description="questions.jsonl files, or files of another dataset together with `reader`")
    reader: str = Field(default="jsonl", description="the schema of the questions: the name of a file in refinery/questions")
    runs: list[Path] = Field(default=[], description="finished infer runs over these questions; the task reads their predictions")
    output_dir: Path = Field(description="folder of the run: a new one, or one that --resume continues")
    teacher: TeacherConfig | None = Field(default=None, description="the endpoint that labels")
    fallbacks: list[TeacherConfig] = Field(
        default=[], description="teachers for each request that those before them refuse, truncate or cannot answer, in this order"
    )
    samples: int = Field(
        default=1, description="how often the teacher labels each row; labels are chosen by majority, and texts as `best_of` says", ge=1
    )
    best_of: Literal["agreement", "judge"] = Field(
        default="agreement",
        description="agreement: the text most like the row's other samples, by its answer first; judge: the one that the judge prefers",
    )
    escalate: Escalation | None = Field(default=None, description="a stronger teacher for rows that the first one is unsure of")
    judge: TeacherConfig | None = Field(
        default=None, description="a model that checks labeled rows; those that it finds wrong are rejected as `judged_bad`"
    )
    target: ModelConfig | None = Field(default=None, description="the model whose own knowledge is judged (RA-ISF App. A.1)")
    target_endpoint: TeacherConfig | None = Field(default=None, description="the same model behind an endpoint")
    prompts: Path | None = Field(
        default=None, description="a folder of your own prompts, named like those that `refinery prompts` lists, which they replace"
    )
    examples: ExamplesConfig | None = Field(
        default=None, description="labeled rows that the teacher is shown as earlier turns, with the replies that they stand for"
    )
    transport: Literal["live", "batch"] = Field(default="live", description="batch: OpenAI's Batch jobs, cheaper and within a day")
    batch: BatchConfig = Field(default=BatchConfig(), description="how `transport: batch` groups requests into jobs")
    store: str | None = STORE
    store_kind: str = STORE_KIND
    max_cost_usd: float | None = MAX_COST_USD
    retriever: RetrieverConfig | None = Field(default=None, description="what searches, over which passages, for tasks that search")
    passages_per_query: int = Field(default=5, description="RA-ISF retrieves 5 (Fig. 3), RQ-RAG 3 (Sec. 3.3)", ge=1)
    max_steps: int = Field(default=5, description="maximum searches in one trajectory", ge=1)
    max_new_tokens: int = Field(default=32, description="maximum tokens of a closed-book answer", ge=1)
    rows_in_flight: int = Field(default=256, description="rows labeled concurrently", ge=1)
    limit: int | None = Field(
        default=None,
        description="label only the first questions; task questions asks for this many, sampled evenly over the documents",
        ge=1,
    )
    max_failure_share: float = Field(default=0.2, description="the run fails if a larger share of its rows is rejected", ge=0, le=1)
    evaluation_sets: list[Path] = Field(default=[], description="questions that must not be trained on; the run reports any overlap")
    repeats: Literal["kept", "same_rejected", "similar_rejected"] = Field(
        default="kept",
        description="questions that an earlier row, a held-out row or one of evaluation_sets asks already: kept and only reported; or"
        " rejected before they are paid for if they are the same after normalization; or also if they are nearly the same (a Jaccard"
        " similarity of words of at least 0.8, with the same names and numbers). They do not count toward max_failure_share",
    )
    student: str | None = Field(default=None, description="the model to be trained; if set, the run reports row lengths in its tokens")
    max_length: int = Field(default=4096, description="maximum tokens per row in training (RQ-RAG's script: 4096)", ge=1)
    hub: LabelHubConfig | None = Field(
        default=None, description="where labels are pushed while they are made; the hub's client finds its own token"
    )
    licence: str | None = Field(default=None, description="license of the questions and passages, for the dataset card (an SPDX name)")

    def check(self, where: str) -> None:
        """Check the task's options, the prompts, the endpoints' protocols, the store and the reader."""
        self.task_options(where)
        self.own_prompts()
        self.store_place(self.output_dir)
        if self.hub and self.shard:
            raise self.fault("hub", "cannot receive one shard of several. Leave it out, and push the merged run with `refinery push`.")
        for endpoint in self.endpoints.values():
            check_protocol(endpoint)
            if self.transport == "batch" and endpoint.transport == "vllm":
                raise self.fault("transport", "Batch jobs are for endpoints, and vLLM runs the teacher in this process. Set it to live.")
            if self.transport == "batch" and not protocol_of(endpoint).openai_routes:
                raise self.fault("transport", f"protocol '{endpoint.protocol}' does not support OpenAI's Batch jobs. Set it to live.")
        self._check_teachers()
        if self.sample and self.label_task.rows:
            raise self.fault("sample", f"task '{self.task}' chooses its own rows. Set `limit`, which samples them evenly.")
        with self.at("reader"):
            find_reader(self.reader)

    def own_prompts(self) -> "OwnPrompts | None":
        """The recipe's own prompts, or the run's copy if their folder has gone. Raises RecipeError for a text that cannot be used."""
        if self.prompts is None:
            return None
        from refinery.prompts.custom import own_prompts

        return own_prompts(self.prompts, self.output_dir)

    def _check_teachers(self) -> None:
        """Check the keys that go with `teacher`."""
        with_teacher = [key for key in ("fallbacks", "escalate") if getattr(self, key)] + ["samples"] * (self.samples > 1)
        if with_teacher and "teacher" not in self.label_task.needs(self.task_options()):
            raise self.fault(with_teacher[0], f"task '{self.task}' asks no teacher with these options. Leave it out.")
        if self.has_several_teachers and self.transport == "batch":
            raise self.fault("transport", "Batch jobs support one teacher. Set it to live, or leave out fallbacks, escalate and judge.")
        if self.best_of == "judge" and not self.judge:
            raise self.fault("best_of", "is `judge`, and the recipe has no `judge`. Add one, or set it to agreement.")
        self._check_probabilities()
        for config in (self.teacher, *self.fallbacks):
            if config and self.samples > 1 and config.temperature == 0:
                key = config.key_of("temperature")
                raise self.fault("samples", f"{self.samples} greedy samples are all the same. Set {key} above 0, or samples to 1.")

    def _check_probabilities(self) -> None:
        for config in (self.teacher, *self.fallbacks) if self.reads_probabilities else ():
            if config and self.escalate and not protocol_of(config).token_logprobs:
                raise self.escalate.fault(
                    "min_probability", f"protocol '{config.protocol}' has no log-probabilities. Use `samples` instead."
                )

    @property
    def reads_probabilities(self) -> bool:
        """Whether the probabilities of the teacher's labels decide which rows are escalated."""
        return self.escalate is not None and self.escalate.min_probability is not None

    @property
    def endpoints(self) -> dict[str, TeacherConfig]:
        """Every endpoint by its role: teacher, fallback_1, ..., strong, judge, target_endpoint."""
        found = {
            "teacher": self.teacher,
            **{f"fallback_{number}": config for number, config in enumerate(self.fallbacks, 1)},
            "strong": self.escalate and self.escalate.teacher,
            "judge": self.judge,
            "target_endpoint": self.target_endpoint,
        }
        return {role: config for role, config in found.items() if config}

    def teacher_options(self, role: str) -> dict[str, Any]:
        """The options of the Teacher with this role, which its requests' keys depend on."""
        labels = role == "teacher" or role.startswith("fallback_")
        return {"role": role if self.has_several_teachers else "", "reads_probabilities": labels and self.reads_probabilities}

    @property
    def has_several_teachers(self) -> bool:
        """Whether more endpoints than `teacher` and the target take part."""
        return bool(self.fallbacks or self.escalate or self.judge)

    def task_options(self, where: str | None = None) -> Any:
        """The task's options, validated. Raises RecipeError for an unknown or wrong one, PluginError for an unknown task."""
        return build_recipe(self.options, self.label_task.options, where=where or self.where, part="options")

    @property
    def label_task(self) -> LabelTask[Any]:
        """The label task that `task` names. Raises PluginError."""
        with self.at("task"):
            return plugins.find(TASKS, self.task)
