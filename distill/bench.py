"""What a labelling task works with: the teacher, the target model, the retriever, and the recipe."""

from dataclasses import dataclass
from typing import Any

from distill.recipe import DistillRecipe
from distill.teacher import Asked, Teacher
from refinery.prompts.render import prompt_hash
from refinery.recipe import recipe_hash
from refinery.records import Passage, Provenance, Question
from refinery.retrievers.base import Retriever


@dataclass(frozen=True, slots=True)
class Bench:
    """The parts that the recipe configured; a task's `NEEDS` says which it uses, and `run` has checked that they are there."""

    recipe: DistillRecipe
    teacher: Teacher | None
    target: Any | None
    retriever: Retriever | None

    async def search(self, query: str, question: Question) -> list[Passage]:
        """Passages for a query, best first."""
        assert self.retriever is not None
        hits = await self.retriever.search(query, k=self.recipe.passages_per_query, question=question)
        return [hit.passage for hit in hits]

    def provenance(self, *, prompt: str | None = None, asked: Asked | None = None) -> Provenance:
        """Where a row comes from."""
        recipe, asked = self.recipe, asked or Asked()
        model = recipe.teacher.model if prompt and recipe.teacher else recipe.target.base if recipe.target else None
        return Provenance(
            task=recipe.task,
            recipe_hash=recipe_hash(recipe),
            prompt=prompt,
            prompt_hash=prompt_hash(prompt) if prompt else None,
            model=model,
            parameters=recipe.teacher.model_dump(include={"temperature", "max_tokens"}) if prompt and recipe.teacher else {},
            request_ids=asked.request_ids,
            num_prompt_tokens=asked.num_prompt_tokens,
            num_completion_tokens=asked.num_completion_tokens,
        )
