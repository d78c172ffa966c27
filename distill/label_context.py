"""What a labeling task works with: the teacher, the target model, the retriever, and the recipe."""

from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from distill.label_task import Pair
from distill.recipe import DistillRecipe
from distill.teacher.agreement import Tally
from distill.teacher.fallback import Fallback
from distill.teacher.teacher import AnyTeacher, RejectedRow, RequestLog, Teacher
from refinery.contract.records import KnowledgeLabel, Passage, Provenance, Question, read_records
from refinery.errors import RetrievalError
from refinery.llms.base import LLM
from refinery.llms.served.endpoint import EndpointConfig
from refinery.prompts.render import Prompt, prompt_hash
from refinery.retrievers.base import Hit, Retriever
from refinery.runtime.recipe import recipe_hash
from refinery.stores.base import ReplyStore

if TYPE_CHECKING:
    from distill.inputs.predictions import Predictions


@dataclass
class LabelContext:
    """The parts that the recipe configures. A task's `needs` names the ones it uses, and `run` has checked that they exist.

    `target` is a local model, or a Teacher over `target_endpoint`.
    """

    recipe: DistillRecipe
    teacher: AnyTeacher | None
    target: LLM | Teacher | None
    retriever: Retriever | None
    store: ReplyStore | None = None
    options: Any = None
    examples: Callable[..., tuple[Pair, ...]] | None = None
    strong: Teacher | None = None
    judge: Teacher | None = None
    tally: Tally = field(default_factory=Tally)
    _files: dict[str, Any] = field(default_factory=dict)  # read once for all samples' contexts
    _rows_of_group: Counter[str] = field(default_factory=Counter)
    _sources: dict[tuple[tuple[str, ...], str], dict[str, Any]] = field(default_factory=dict)

    @classmethod
    def of(
        cls,
        recipe: DistillRecipe,
        teachers: Mapping[str, Teacher],
        target: LLM | Teacher | None,
        retriever: Retriever | None,
        store: ReplyStore | None,
        examples: Callable[..., tuple[Pair, ...]] | None = None,
    ) -> "LabelContext":
        """The context of a run whose endpoints are `teachers`, by role; `target` is a local model."""
        chain = [teacher for role, teacher in teachers.items() if role == "teacher" or role.startswith("fallback_")]
        first = Fallback(chain) if len(chain) > 1 else teachers.get("teacher")
        target = teachers.get("target_endpoint") or target
        strong, judge = teachers.get("strong"), teachers.get("judge")
        return cls(recipe, first, target, retriever, store, recipe.task_options(), examples, strong, judge)

    async def search(self, query: str, question: Question, *, k: int | None = None) -> list[Passage]:
        """The `k` passages (by default `passages_per_query`) for a query, best first; stored like a paid reply.

        Raises RejectedRow if the search fails.
        """
        assert self.retriever is not None
        k = k or self.recipe.passages_per_query
        # A retriever without a revision searches the question's own passages, so there is nothing outside that could change.
        revision = self.retriever.revision if self.store else None
        if revision is None or self.store is None:
            return [hit.passage for hit in await self._hits(query, question, k)]
        from refinery.retrievers.search.cache import search_key

        key = search_key(revision, query, k)
        found = self.store.get(key)
        if found is None:
            found = [hit.passage.model_dump() for hit in await self._hits(query, question, k)]
            await self.store.put(key, found)
        return [Passage.model_construct(**values) for values in found]

    async def _hits(self, query: str, question: Question, k: int) -> list[Hit]:
        assert self.retriever is not None
        try:
            return await self.retriever.search(query, k=k, question=question)
        except RetrievalError as error:
            raise RejectedRow("search_failed", str(error)) from None

    @property
    def predictions(self) -> "Predictions":
        """The predictions of the recipe's infer runs."""
        if "predictions" not in self._files:
            from distill.inputs.predictions import Predictions

            self._files["predictions"] = Predictions(self.recipe.runs)
        return self._files["predictions"]

    @property
    def knowledge(self) -> dict[str, str]:
        """`know` or `unknow` by question id, from the labels of task self_knowledge that the option `knowledge` names."""
        if "knowledge" not in self._files:
            labels = (label for path in self.options.knowledge for label in read_records(path, KnowledgeLabel))
            self._files["knowledge"] = {label.question_id: label.label for label in labels}
        return self._files["knowledge"]

    def with_examples(self, prompt: Prompt, id: str, *texts: str) -> Prompt:
        """The prompt after the recipe's examples of it, if there are any, for the row of this id that is about these texts."""
        if self.examples is None:
            return prompt
        return prompt.after(tuple(pair for pair in self.examples(id, *texts) if pair[0].name == prompt.name))

    def take_quota(self, group: str) -> bool:
        """Whether a group of rows may have one more, by the option `most_per_group`; it also counts the row."""
        most = self.options.most_per_group
        self._rows_of_group[group] += 1
        return most is None or self._rows_of_group[group] <= most

    def provenance(self, *prompts: str, asked: RequestLog | None = None, target: bool = False) -> Provenance:
        """The provenance of a row: its prompts, and its requests to the teacher or to the `target`."""
        asked = asked or RequestLog()
        role = next(reversed(asked.made_by), "target_endpoint" if target else "teacher")
        source = self._sources.get((prompts, role))
        if source is None:
            source = self._sources[prompts, role] = self._source(prompts, role)
        if asked.examples:
            source = source | {"parameters": source["parameters"] | {"examples": asked.examples}}
        return Provenance(
            **source,
            made_by=asked.made_by or None,
            request_ids=asked.request_ids,
            num_prompt_tokens=asked.num_prompt_tokens,
            num_completion_tokens=asked.num_completion_tokens,
            cost_usd=asked.cost_usd,
        )

    def _source(self, prompts: tuple[str, ...], role: str) -> dict[str, Any]:
        """The provenance that all rows made with these prompts by this role share."""
        recipe = self.recipe
        endpoint = recipe.endpoints.get(role)
        local = recipe.target.base if role == "target_endpoint" and recipe.target else None
        model = endpoint.model if endpoint and prompts else local
        return {
            "task": recipe.task,
            "recipe_hash": recipe_hash(recipe),
            "prompts": {prompt: prompt_hash(prompt) for prompt in prompts},
            "model": model,
            "parameters": _sampling(endpoint) if endpoint and prompts else {},
        }


def _sampling(endpoint: EndpointConfig) -> dict[str, Any]:
    reasoning = {"reasoning_tokens": endpoint.reasoning_tokens} if endpoint.reasoning_tokens else {}
    return {"temperature": endpoint.temperature, "max_tokens": endpoint.max_tokens, **reasoning, **endpoint.optional()}
