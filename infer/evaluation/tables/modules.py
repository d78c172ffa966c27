"""The tables of `refinery evaluate-modules`: one for each kind of module, a line for each run and each thing that is measured."""

import json
from collections.abc import Sequence
from typing import Any

from infer.evaluation.module_scores import ModuleQuality, ModuleRun
from refinery.metrics.bootstrap import Measure
from refinery.metrics.graded import shown_measure
from refinery.reporting.markdown import without_secrets
from refinery.reporting.tables import TableFormat, render_table
from refinery.runtime.recipe import flat_values
from refinery.text import printable

_NOTE = (
    "Percent with 95 % bootstrap intervals over questions; searches are counts. A reply that cannot be read is unparsed and counts as "
    "wrong. What a single question decides has no interval. Failed questions are left out. Cost is the module's own, without the judge's."
)
_NOT_SHOWN = ("module", "output_dir", "questions", "reader", "limit", "questions_in_flight", "endpoint.", "llm.", "sub_models.", "name")
_BOUNDS = ("mean", "low", "high")


def module_text(found: Sequence[ModuleQuality], table_format: TableFormat, *, wide: bool = True) -> str:
    """The tables in a format; as CSV a single one, in fractions of 1. Those that are not `wide` have means without intervals, and calls."""
    if table_format == "csv":
        return render_table(*_numbers(found), "csv")
    kinds = list(dict.fromkeys(line.run.module.kind.name for line in found))
    of_kind = _of_kind if wide or table_format != "terminal" else _narrow
    tables = [of_kind(kind, [line for line in found if line.run.module.kind.name == kind], table_format) for kind in kinds]
    return "\n".join([*tables, f"{'% ' if table_format == 'latex' else ''}{_NOTE}\n"])


def module_json(found: Sequence[ModuleQuality]) -> str:
    """One object for each line, in fractions of 1."""
    return json.dumps([_object(line) for line in found], indent=2, ensure_ascii=False) + "\n"


def _of_kind(kind: str, found: Sequence[ModuleQuality], table_format: TableFormat) -> str:
    names = list(dict.fromkeys(name for line in found for name in line.measures))
    settings = _settings(found)
    header = ["run", "module", "model", "settings", "measured on", "questions", "failed", *names, *_cost(found[0].run)]
    rows = [
        [*_identity(line), settings[id(line.run)], line.on, str(line.questions), str(line.run.metrics["failed"])]
        + [_cell(name, line.measures.get(name)) for name in names]
        + list(_cost(line.run).values())
        for line in found
    ]
    return f"{'% ' if table_format == 'latex' else ''}{printable(kind)}\n\n{render_table(header, rows, table_format)}"


def _narrow(kind: str, found: Sequence[ModuleQuality], table_format: TableFormat) -> str:
    """One cell for all measures, because each kind of line has others."""
    rows = [
        [line.run.path.resolve().name, line.on, _means(line), str(line.questions), f"{_costs(line.run)['calls']:.1f}"] for line in found
    ]
    table = render_table(["run", "on", "measured", "questions", "calls"], rows, table_format)
    return f"{printable(kind)}\n\n{table}--wide shows models, settings, intervals and costs.\n"


def _identity(line: ModuleQuality) -> list[str]:
    recipe = line.run.recipe
    return [line.run.path.resolve().name, f"{recipe.decoder}: {recipe.module}", line.run.model_name]


def _settings(found: Sequence[ModuleQuality]) -> dict[int, str]:
    """The options of each run, and the other keys in which the runs differ."""
    flat = {id(line.run): flat_values(line.run.recipe) for line in found}
    keys = sorted({key for of_run in flat.values() for key in of_run if not key.startswith(_NOT_SHOWN)})
    wanted = [key for key in keys if key.startswith("options.") or len({of_run.get(key) for of_run in flat.values()}) > 1]
    shown = {run: [f"{key.removeprefix('options.')}={of_run[key]}" for key in wanted if key in of_run] for run, of_run in flat.items()}
    return {run: without_secrets(" ".join(parts)) for run, parts in shown.items()}


def _means(line: ModuleQuality) -> str:
    return ", ".join(f"{name} {_cell(name, found).partition(' ')[0]}" for name, found in line.measures.items())


def _cell(name: str, found: Measure | None) -> str:
    return shown_measure(name, found.mean, found.low, found.high) if found else "-"


def _cost(run: ModuleRun) -> dict[str, str]:
    costs = _costs(run)
    dollars = costs["dollars"]
    return {
        "calls a question": f"{costs['calls']:.1f}",
        "tokens a question": f"{costs['tokens']:,.0f}",
        "$ per 1,000 questions": "-" if dollars is None else f"${dollars * 1000:,.3f}",
    }


def _costs(run: ModuleRun) -> dict[str, float | None]:
    """The mean cost of one question, in tokens and US dollars."""
    cost, questions = run.metrics["cost"], run.metrics["questions"]
    tokens = (cost["prefill_tokens"] + cost["decode_tokens"]) / questions
    return {"calls": cost["calls"] / questions, "tokens": tokens, "dollars": None if run.dollars is None else run.dollars / questions}


def _object(line: ModuleQuality) -> dict[str, Any]:
    recipe, metrics = line.run.recipe, line.run.metrics
    return {
        "run": str(line.run.path),
        "kind": line.run.module.kind.name,
        "decoder": recipe.decoder,
        "module": recipe.module,
        "model": line.run.model_name,
        "measured_on": line.on,
        "questions": line.questions,
        "failed": metrics["failed"],
        "measures": {name: {bound: getattr(found, bound) for bound in _BOUNDS} for name, found in line.measures.items()},
        "cost_per_question": _costs(line.run),
    }


def _numbers(found: Sequence[ModuleQuality]) -> tuple[list[str], list[list[str]]]:
    """A table for programs: one number per cell; a cell without a number is empty."""
    names = list(dict.fromkeys(name for line in found for name in line.measures))
    objects = [_object(line) for line in found]
    plain = [name for name in objects[0] if name not in ("measures", "cost_per_question")]
    costs = list(objects[0]["cost_per_question"])
    header = [*plain, *(f"{name} {bound}" for name in names for bound in _BOUNDS), *(f"{name}_per_question" for name in costs)]
    rows = [
        [str(one[name]) for name in plain]
        + [_number(one["measures"].get(name, {}).get(bound)) for name in names for bound in _BOUNDS]
        + [_number(one["cost_per_question"][name]) for name in costs]
        for one in objects
    ]
    return header, rows


def _number(value: float | None) -> str:
    return "" if value is None else f"{value:.6g}"
