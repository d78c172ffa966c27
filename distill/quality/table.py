"""The tables of `refinery evaluate-labels`: one per task, a line for each run, kind of annotation and group of questions."""

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from distill.quality.evaluate import LabeledRun, Quality
from refinery.metrics.bootstrap import Measure
from refinery.metrics.graded import shown_measure
from refinery.reporting.markdown import without_secrets
from refinery.reporting.question_groups import ALL
from refinery.reporting.tables import TableFormat, render_table
from refinery.text import printable

_NOTE = (
    "Percent with 95 % bootstrap intervals over questions. A rejected question counts as missed in recall and F1 and as 0 in the scores of "
    "trajectories; precision and accuracy are of the labels that were given. What a single question decides has no interval. Cost includes "
    "rejected questions."
)
_BOUNDS = ("mean", "low", "high")
_PER = ("tokens_per_row", "tokens_per_correct", "dollars_per_row", "dollars_per_correct")
# Keys that do not change what a label is, or that a line shows anyway.
_NOT_SHOWN = frozenset(
    {"task", "output_dir", "store", "store_kind", "limit", "max_cost_usd", "max_failure_share", "rows_in_flight", "reader"}
)
_NOT_SHOWN_IN = (
    "questions",
    "batch.",
    "hub.",
    "evaluation_sets",
    "teacher.model",
    "teacher.base_url",
    "teacher.price",
    "teacher.calls_in_flight",
)
# Keys of an endpoint that say how it is reached and how long it may take, not what it is asked.
_HOW_IT_IS_REACHED = (
    ".api_key_env",
    ".deadline_seconds",
    ".max_tokens_name",
    ".max_tries",
    ".outage_patience_seconds",
    ".requests_per_minute",
    ".timeout_seconds",
    ".tokens_per_minute",
)


def quality_text(found: Sequence[Quality], table_format: TableFormat) -> str:
    """The tables in a format; as CSV a single one, in fractions of 1."""
    if table_format == "csv":
        return render_table(*_numbers(found), "csv")
    tasks = list(dict.fromkeys(one.run.recipe.task for one in found))
    tables = [_task_text(task, [one for one in found if one.run.recipe.task == task], table_format) for task in tasks]
    return "\n".join([*tables, f"{'% ' if table_format == 'latex' else ''}{_NOTE}\n"])


def quality_json(found: Sequence[Quality]) -> str:
    """One object for each line, in fractions of 1."""
    return json.dumps(_objects(found), indent=2, ensure_ascii=False) + "\n"


def _task_text(task: str, found: Sequence[Quality], table_format: TableFormat) -> str:
    measures = list(dict.fromkeys(name for one in found for name in one.measures))
    names, settings = _names(found), _settings(found)
    costs = {name: cell for name, cell in _COSTS.items() if any(cell(one) != "-" for one in found)}
    has_groups = any(one.group != ALL for one in found)
    header = ["run", "labeled by", "settings", *(["group"] * has_groups), "against", "questions", "rejected", *measures, *costs]
    rows = [
        [names[id(one.run)], one.run.labeled_by, settings[id(one.run)], *([one.group] * has_groups)]
        + [one.against, str(one.questions), str(one.rejected)]
        + [_cell(name, one.measures.get(name)) for name in measures]
        + [cell(one) for cell in costs.values()]
        for one in found
    ]
    return f"{'% ' if table_format == 'latex' else ''}{printable(task)}\n\n{render_table(header, rows, table_format)}"


def _names(found: Sequence[Quality]) -> dict[int, str]:
    """The name of each run's folder, with its parent's where two are the same."""
    paths = {id(one.run): one.run.path.resolve() for one in found}
    names = [path.name for path in paths.values()]
    return {key: path.name if names.count(path.name) == 1 else str(Path(path.parent.name, path.name)) for key, path in paths.items()}


def _settings(found: Sequence[Quality]) -> dict[int, str]:
    """The task's options as each recipe gives them, the other keys in which the runs differ, and the further models that only some ask."""
    runs = {id(one.run): one.run for one in found}
    keys = sorted({key for run in runs.values() for key in run.settings if _is_shown(key)})
    differing = [
        key for key in keys if len({run.settings.get(key) for run in runs.values() if key.endswith(".model") or _has_part(run, key)}) > 1
    ]
    return {number: _shown(run, keys, differing) for number, run in runs.items()}


def _has_part(run: LabeledRun, key: str) -> bool:
    """Whether the run's recipe has the part that a nested key is in, such as a teacher."""
    part = key.rpartition(".")[0]
    return not part or any(name.startswith(f"{part}.") for name in run.settings)


def _is_shown(key: str) -> bool:
    return key not in _NOT_SHOWN and not key.startswith(_NOT_SHOWN_IN) and not key.endswith(_HOW_IT_IS_REACHED)


def _shown(run: LabeledRun, keys: Sequence[str], differing: Sequence[str]) -> str:
    wanted = [key for key in keys if key in differing or key.startswith("options.")]
    return without_secrets(" ".join(f"{key.removeprefix('options.')}={run.settings[key]}" for key in wanted if key in run.settings))


def _cell(name: str, found: Measure | None) -> str:
    return shown_measure(name, found.mean, found.low, found.high) if found else "-"


def _tokens(count: float | None) -> str:
    return f"{count:,.0f}" if count else "-"


def _per_thousand(dollars: float | None) -> str:
    return f"${dollars * 1000:,.3f}" if dollars else "-"


_COSTS: dict[str, Callable[[Quality], str]] = {
    "tokens a row": lambda one: _tokens(one.tokens_per_row),
    "tokens a correct label": lambda one: _tokens(one.tokens_per_correct),
    "$ per 1,000 rows": lambda one: _per_thousand(one.dollars_per_row),
    "$ per 1,000 correct labels": lambda one: _per_thousand(one.dollars_per_correct),
}


def _objects(found: Sequence[Quality]) -> list[dict[str, Any]]:
    settings = _settings(found)
    return [
        {
            "run": str(one.run.path),
            "task": one.run.recipe.task,
            "labeled_by": one.run.labeled_by,
            "settings": settings[id(one.run)],
            "group": one.group,
            "against": one.against,
            "questions": one.questions,
            "rejected": one.rejected,
            "measures": {name: {bound: getattr(value, bound) for bound in _BOUNDS} for name, value in one.measures.items()},
            "cost": {name: getattr(one, name) for name in _PER},
        }
        for one in found
    ]


def _numbers(found: Sequence[Quality]) -> tuple[list[str], list[list[str]]]:
    """A table for programs: one number per cell; a cell without a number is empty."""
    measures, objects = list(dict.fromkeys(name for one in found for name in one.measures)), _objects(found)
    plain = [name for name in objects[0] if name not in ("measures", "cost")]
    header = [*plain, *(f"{name} {bound}" for name in measures for bound in _BOUNDS), *_PER]
    rows = [
        [str(one[name]) for name in plain]
        + [_number(one["measures"].get(name, {}).get(bound)) for name in measures for bound in _BOUNDS]
        + [_number(one["cost"][name]) for name in _PER]
        for one in objects
    ]
    return header, rows


def _number(value: float | None) -> str:
    return "" if value is None else f"{value:.6g}"
