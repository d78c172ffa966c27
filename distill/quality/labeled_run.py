"""A finished distill run, as it is compared with annotations: what went in, and the labels or the rejection of each question."""

from collections.abc import Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

from distill.recipe import DistillRecipe
from distill.task_grades import Grader, Outcome
from distill.writing.rows import rejected_rows
from refinery.contract.records import Record, iter_records
from refinery.contract.split_name import INPUTS_FILE, is_split
from refinery.errors import RunDirError
from refinery.runtime.recipes.recipe import build_recipe, flat_values
from refinery.runtime.run.run_dir import read_metrics, read_run


class LabeledRun:
    """Raises RunDirError for a folder that is not a finished distill run, and for a task whose labels nothing can be compared with."""

    def __init__(self, path: Path) -> None:
        record = read_run(path)
        if record["stage"] != "distill":
            raise RunDirError(f"{path}: is not a distill run, so it has no labels. Name the output_dir of a distill run.")
        self.path, self.name, self.metrics = path, path.resolve().name, read_metrics(path)
        self.recipe = build_recipe(record["recipe"], DistillRecipe, where=str(path / "run.json"))

    @cached_property
    def grader(self) -> Grader:
        """What compares its labels with annotations."""
        grader = self.recipe.label_task.grader
        if grader is None:
            raise RunDirError(f"{self.path}: labels of task '{self.recipe.task}' cannot be compared with annotations. Leave the run out.")
        return grader

    @cached_property
    def inputs(self) -> list[Any]:
        """The questions, or other rows, that were to be labeled, in order."""
        if not (self.path / INPUTS_FILE).exists():
            raise RunDirError(f"{self.path}: has no {INPUTS_FILE}, because an older version made it. Label these questions again.")
        return list(iter_records(self.path / INPUTS_FILE, self.recipe.label_task.row_type))

    @cached_property
    def outcomes(self) -> Mapping[str, Outcome]:
        """The labels of each question, or why it was rejected. A question without either is missing."""
        found: dict[str, list[Record]] = {}
        for label in self._labels():
            found.setdefault(getattr(label, "question_id", "") or getattr(label, "id", ""), []).append(label)
        return found | rejected_rows(self.path)

    def _labels(self) -> Sequence[Record]:
        files = [self.path / f"{split}.jsonl" for split in self.metrics["rows_by_split"] if is_split(split)]
        return [row for file in files for row in iter_records(file, self.grader.record)]

    @property
    def labeled_by(self) -> str:
        """The model that labeled, or the annotations."""
        endpoint = self.recipe.teacher or self.recipe.target_endpoint
        if getattr(self.recipe.task_options(), "by", None) == "annotations":
            return "annotations"
        return endpoint.model if endpoint else self.recipe.target.base if self.recipe.target else "annotations"

    @property
    def spent(self) -> tuple[int, float | None]:
        """Tokens of all prompts and replies that its labels took, and the dollars of all attempts, None where a price is unknown."""
        asked = [values for values in self.metrics.values() if isinstance(values, dict) and "num_prompt_tokens" in values]
        tokens = sum(one["num_prompt_tokens"] + one["num_completion_tokens"] + one.get("num_stored_tokens", 0) for one in asked)
        dollars = [one["cost_usd"] for one in asked]
        return tokens, None if None in dollars else sum(dollars)

    @cached_property
    def settings(self) -> dict[str, str]:
        """Every key of the recipe that has a value, nested ones with dots."""
        return flat_values(self.recipe)
