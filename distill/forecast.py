"""What a labeling run will probably ask and cost. `refinery distill RECIPE --dry-run` estimates it better once some rows are paid for."""

from pathlib import Path

from distill.recipe import DistillRecipe
from distill.teacher.budget import known_price
from refinery.llms.served.endpoint import EndpointConfig
from refinery.questions.base import split_of
from refinery.runtime.forecast import Forecast, Range, RowsOf

# Tokens of a prompt without and with worked examples, of a passage in it, and of a reply; seconds that an endpoint takes to reply.
_PROMPT, _PASSAGE, _REPLY, _REPLY_SECONDS = (150, 700), (60, 250), (8, 150), (0.5, 8.0)
_PER_MILLION = 1e-6
_SHARES = {"train": 0.8, "validation": 0.1, "test": 0.1}


def forecast(recipe: DistillRecipe, rows_of: RowsOf) -> Forecast:
    """The forecast of a run whose inputs may not exist yet."""
    task = recipe.label_task
    options = recipe.task_options()
    rows = task.num_rows(recipe, rows_of) if task.num_rows else _sum(recipe.questions, rows_of)
    if rows is None:
        return Forecast(dollars=None)
    rows = min(rows, recipe.limit or rows)
    per_row = task.calls(recipe, options) if recipe.teacher else (0.0, 0.0)
    calls = (rows * per_row[0], rows * per_row[1])
    writes = {recipe.output_dir / name: count for name, count in _written(recipe, rows, rows_of).items()}
    if recipe.teacher is None:
        return Forecast(rows=rows, writes=writes)
    seconds = tuple(count * each / recipe.teacher.calls_in_flight for count, each in zip(calls, _REPLY_SECONDS, strict=True))
    return Forecast(rows, writes, calls, _dollars(calls, recipe.teacher, recipe.passages_per_query), (seconds[0], seconds[1]))


def _written(recipe: DistillRecipe, rows: int, rows_of: RowsOf) -> dict[str, int]:
    """How many rows each file will have at most: as its questions, or where the task itself provides the rows, by the usual shares."""
    if recipe.questions:
        return {f"{split_of(path)}.jsonl": rows_of(path) or 0 for path in recipe.questions}
    return {f"{split}.jsonl": round(rows * share) for split, share in _SHARES.items()}


def _dollars(calls: Range, teacher: EndpointConfig, passages: int) -> Range | None:
    price, _ = known_price(teacher)
    if price is None:
        return None
    prompt = _PROMPT[0] + _PASSAGE[0], _PROMPT[1] + passages * _PASSAGE[1]
    reply = _REPLY[0], min(_REPLY[1], teacher.max_tokens) + teacher.reasoning_tokens
    low, high = (
        count * (read * price.prompt + written * price.completion) * _PER_MILLION
        for count, read, written in zip(calls, prompt, reply, strict=True)
    )
    return low, high


def _sum(paths: list[Path], rows_of: RowsOf) -> int | None:
    counts = [rows_of(path) for path in paths]
    known = [count for count in counts if count is not None]
    return sum(known) if counts and len(known) == len(counts) else None
