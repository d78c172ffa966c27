"""What a labeling run will probably ask and cost. `refinery distill RECIPE --dry-run` estimates it better once some rows are paid for."""

from pathlib import Path
from typing import Any

from distill.examples import examples_of
from distill.recipe import DistillRecipe
from distill.steps.held_out import HELD_OUT, TRAIN, Shares
from refinery.llms.served.endpoint import EndpointConfig
from refinery.llms.served.prices import EXAMPLE_TOKENS, probable_dollars, probable_seconds
from refinery.questions.base import split_of
from refinery.runtime.forecast import Forecast, Range, RowsOf, total


def forecast(recipe: DistillRecipe, rows_of: RowsOf) -> Forecast:
    """The forecast of a run whose inputs may not exist yet."""
    task = recipe.label_task
    rows = task.num_rows(recipe, rows_of) if task.num_rows else _sum(recipe.questions, rows_of)
    if rows is None:
        return Forecast(dollars=None, seconds=None)
    rows = min(rows, recipe.limit or rows)
    writes = {recipe.output_dir / name: count for name, count in _written(recipe, recipe.task_options(), rows, rows_of).items()}
    costs = cost_by_role(recipe, rows)
    if not costs:
        return Forecast(rows, writes, seconds=None if recipe.target else (0, 0))
    known = [dollars for _, dollars in costs.values() if dollars is not None]
    seconds = total([probable_seconds(recipe.endpoints[role], calls) for role, (calls, _) in costs.items()])
    calls = total([calls for calls, _ in costs.values()])
    return Forecast(rows, writes, calls, total(known) if len(known) == len(costs) else None, seconds)


def cost_by_role(recipe: DistillRecipe, rows: int) -> dict[str, tuple[Range, Range | None]]:
    """Calls and dollars of each endpoint but the target's."""
    low, high = recipe.label_task.calls(recipe, recipe.task_options()) if recipe.teacher else (0.0, 0.0)
    first = rows * low * recipe.samples, rows * high * recipe.samples
    judged = rows * (1 + (recipe.best_of == "judge" and recipe.samples > 1))
    per_role = {"teacher": first, "strong": (0.0, rows * high), "judge": (0.0, float(judged))}
    found = {role: per_role.get(role, (0.0, first[1])) for role in recipe.endpoints if role != "target_endpoint"}
    return {role: (calls, _dollars(recipe.endpoints[role], calls, recipe)) for role, calls in found.items()}


def _dollars(endpoint: EndpointConfig, calls: Range, recipe: DistillRecipe) -> Range | None:
    sizes = {"passages": recipe.passages_per_query, "max_tokens": endpoint.max_tokens}
    return probable_dollars(endpoint, calls, **sizes, examples=(0, 0) if endpoint is recipe.judge else _examples(recipe))


def _written(recipe: DistillRecipe, options: Any, rows: int, rows_of: RowsOf) -> dict[str, int]:
    """How many rows each file will have at most: as its questions, or by the shares of a task that provides and splits its rows."""
    if recipe.questions:
        return {f"{split_of(path)}.jsonl": rows_of(path) or 0 for path in recipe.questions}
    shares = options.split if isinstance(getattr(options, "split", None), Shares) else Shares()
    held_out = {split: round(rows * getattr(shares, split)) for split in HELD_OUT}
    return {f"{split}.jsonl": count for split, count in {TRAIN: rows - sum(held_out.values()), **held_out}.items()}


def _examples(recipe: DistillRecipe) -> Range:
    """Tokens of the examples before each prompt; those of a file that is not made yet are guessed."""
    if recipe.examples is None:
        return 0, 0
    if recipe.examples.rows.exists() and (examples := examples_of(recipe)):
        return examples.tokens
    return recipe.examples.count * EXAMPLE_TOKENS[0], recipe.examples.count * EXAMPLE_TOKENS[1]


def _sum(paths: list[Path], rows_of: RowsOf) -> int | None:
    counts = [rows_of(path) for path in paths]
    known = [count for count in counts if count is not None]
    return sum(known) if counts and len(known) == len(counts) else None
