"""Records to training rows of ids and labels. Torch is not imported here, so that rows can be inspected without loading a model."""

import logging
import random
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from itertools import accumulate, groupby, pairwise
from pathlib import Path
from typing import Any

from refinery.contract.chat_template import reply_end, reply_text, user_turn
from refinery.contract.conversation import ChatRow, chat_segments_of
from refinery.contract.formats import train_evidence
from refinery.contract.path_format import path_format
from refinery.contract.records import Question, Trajectory
from refinery.contract.segments import IGNORED_LABEL, Segment, encode
from refinery.contract.tokenizer import Tokenizer
from refinery.errors import RecordError
from refinery.prompts.render import render_prompt
from refinery.runtime.files.hub_dataset import hub_dataset
from refinery.runtime.files.text_file import read_text
from refinery.tasks.base import Judge, PromptedTask
from train.method import method_of
from train.recipe import TrainRecipe
from train.rows.encoded_rows import CompactRow, EncodedRows
from train.rows.length_filter import fit_rows

_log = logging.getLogger(__name__)


def read_rows(paths: Sequence[Path], recipe: TrainRecipe) -> list[list[Any]]:
    """Every record of each file, as read by the task or by the method itself. Raises RecordError naming file and line."""
    read = method_of(recipe).read_file or recipe.learned.read
    return [list(read(path)) for path in paths]


def training_records(recipe: TrainRecipe) -> list[Any]:
    """The training records in the order they are given to the trainer, mixed and balanced by label if the recipe says so."""
    records = _first_of_each(_mixed(recipe), recipe.limit, recipe.data, key="limit")
    return _balanced(records, random.Random(recipe.seed)) if recipe.label_balance else records


def _mixed(recipe: TrainRecipe) -> list[list[Any]]:
    """Each file's rows, repeated by its weight: in full for its whole part, and as a random sample for the fraction."""
    files = read_rows(recipe.data, recipe)
    if not recipe.data_weights:
        return files
    rng = random.Random(recipe.seed)
    mixed = [_weighted(rows, weight, rng) for rows, weight in zip(files, recipe.data_weights, strict=True)]
    if not any(mixed):
        raise recipe.fault("data_weights", "leave no row to train on. Raise them.")
    return mixed


def _weighted(rows: list[Any], weight: float, rng: random.Random) -> list[Any]:
    times, rest = int(weight), weight - int(weight)
    chosen = set(rng.sample(range(len(rows)), round(rest * len(rows))))
    return [*rows * times, *(row for number, row in enumerate(rows) if number in chosen)]


def _first_of_each(files: Sequence[list[Any]], most: int | None, paths: Sequence[Path], *, key: str) -> list[Any]:
    """At most `most` rows: the first of each file, in proportion to the files' sizes. A warning names files with no rows left."""
    total = sum(map(len, files))
    if most is None or most >= total:
        return [row for rows in files for row in rows]
    ends = [most * end // total for end in accumulate(map(len, files))]
    counts = [end - start for start, end in pairwise([0, *ends])]
    if left_out := [str(path) for path, rows, count in zip(paths, files, counts, strict=True) if rows and not count]:
        _log.warning("%s: %d takes no row of %s", key, most, ", ".join(left_out))
    return [row for rows, count in zip(files, counts, strict=True) for row in rows[:count]]


def check_labels(records: Sequence[Any], recipe: TrainRecipe) -> None:
    """Raise RecordError for a judge's rows that all have one label: it would learn to give that label to any input, with a low loss."""
    task = recipe.learned
    if not isinstance(task, Judge):
        return
    labels, found = {label.strip() for label in task.labels}, {record.label for record in records}
    if len(found) == 1:
        (only,), (missing,) = found, labels - found
        raise RecordError(
            f"{recipe.data[0]}: all {len(records):,} rows are labeled {only!r}, so there is nothing to tell apart. Distill questions that "
            f"give {missing!r} too (harder or easier ones, or other passages), or name their file in `data`."
        )


def labels_of(recipe: TrainRecipe) -> tuple[str, ...]:
    """The classes of a classifier's head; none in the other families, which write their labels."""
    task = recipe.learned
    return tuple(label.strip() for label in task.labels) if recipe.family == "classifier" and isinstance(task, Judge) else ()


def evaluated_recipe(recipe: TrainRecipe) -> TrainRecipe:
    """The recipe without empty validation files, such as distill writes if it rejects all rows of a split; a warning names them.

    If none is left, nothing is evaluated. Raises RecordError for a file that is missing or has a wrong row, before anything is trained.
    """
    empty = [path for path in recipe.validation if not hub_dataset(path, split="train") and not read_text(path).strip()]
    filled = [path for path in recipe.validation if path not in empty]
    read_rows(filled, recipe)
    if not empty:
        return recipe
    _warn_of_empty(empty, recipe, is_evaluated=bool(filled))
    unevaluated = {} if filled else {"eval_steps": None, "metric_for_best_model": None}
    return recipe.model_copy(update={"validation": filled, **unevaluated})


def _warn_of_empty(empty: Sequence[Path], recipe: TrainRecipe, *, is_evaluated: bool) -> None:
    why = f"{', '.join(map(str, empty))}: has no rows"
    if is_evaluated:
        _log.warning("%s. Only the other validation files are evaluated.", why)
    elif recipe.metric_for_best_model:
        message = "%s, so the model is not evaluated, and metric_for_best_model cannot choose a checkpoint: the last one is kept."
        _log.warning(message, why)
    else:
        _log.warning("%s, so the model is not evaluated.", why)


def held_out_records(recipe: TrainRecipe) -> list[Any]:
    """The validation records that are answered during training; empty if nothing is evaluated before the end."""
    if not recipe.eval_steps:
        return []
    return _first_of_each(read_rows(recipe.validation, recipe), recipe.eval_rows, recipe.validation, key="eval_rows")


def encode_rows(records: Sequence[Any], recipe: TrainRecipe, tokenizer: Tokenizer) -> tuple[EncodedRows, dict[str, Any]]:
    """Rows that can be trained on, and the treatment of the others. Raises as `fit_rows`, and RecipeError if nothing would be trained."""
    rows = EncodedRows()
    counts = fit_rows(
        records, recipe, lambda record: CompactRow.of(encode(row_segments(record, recipe, tokenizer), tokenizer)), rows.append
    )
    if (rows.columns["labels"] == IGNORED_LABEL).all():
        raise recipe.fault("loss_weights", "masks every token of every row. Leave out a kind that is to be trained.")
    return rows, counts


def row_segments(record: Any, recipe: TrainRecipe, tokenizer: Tokenizer) -> list[Segment]:
    """One record as segments: the prompt that inference will render, then the text that the model must write."""
    masked = {kind for kind, weight in recipe.loss_weights.items() if weight == 0}
    return [replace(segment, trained=segment.trained and segment.kind not in masked) for segment in _segments(record, recipe, tokenizer)]


def row_steps(record: Trajectory | ChatRow, recipe: TrainRecipe, tokenizer: Tokenizer) -> list[tuple[list[Segment], list[Segment]]]:
    """(text since the last step, step) for each step of a path's row, whatever of it is trained; of a conversation, each turn."""
    if isinstance(record, ChatRow):
        runs = [list(run) for _, run in groupby(chat_segments_of(record, tokenizer), key=lambda segment: segment.trained)]
        return [*zip(runs[::2], runs[1::2], strict=True)]
    return split_steps(_segments(record, recipe, tokenizer), recipe, tokenizer)


def split_steps(row: Sequence[Segment], recipe: TrainRecipe, tokenizer: Tokenizer) -> list[tuple[list[Segment], list[Segment]]]:
    """(text since the last step, step) for each step of a row."""
    return path_format(tokenizer, recipe.format).split_steps(row)


def _segments(record: Any, recipe: TrainRecipe, tokenizer: Tokenizer) -> list[Segment]:
    task = recipe.learned
    if isinstance(record, ChatRow):
        return chat_segments_of(record, tokenizer)
    if isinstance(record, Question):
        from train.rollouts.roles import role_of

        return role_of(recipe).prompt(record.text, recipe, tokenizer)  # after which the model in training writes
    if isinstance(task, PromptedTask):
        prompt, reply = task.prompt_and_reply(record)
        return [
            *user_turn(prompt, tokenizer),
            Segment(reply_text(reply, tokenizer), task.reply_kind, trained=True),
            Segment(reply_end(tokenizer), "control_token", trained=True),
        ]
    system_prompt = render_prompt(recipe.system_prompt) if record.system_prompt is None else record.system_prompt
    return train_evidence(path_format(tokenizer, recipe.format).row(record, system_prompt), recipe.evidence_loss)


def _balanced(records: list[Any], rng: random.Random) -> list[Any]:
    counts = Counter(getattr(record, "label", None) for record in records)
    most = max(counts.values())
    extra = [
        chosen
        for label, count in counts.items()
        for chosen in rng.choices([record for record in records if getattr(record, "label", None) == label], k=most - count)
    ]
    return records + extra
