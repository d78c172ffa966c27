"""Fill a paper's table from finished runs: each cell shows the paper's number, and ours if there is a run (`refinery report`)."""

import sys
from pathlib import Path
from typing import Any, Self

import numpy as np
from pydantic import Field, model_validator

from infer.evaluation.finished_runs import open_stored
from infer.evaluation.module_scores import open_module_run
from infer.evaluation.tables.comparability import differences
from refinery.errors import RunDirError
from refinery.metrics.graded import measure_scale, shown_measure
from refinery.metrics.registry import find_metric
from refinery.reporting.tables import TableFormat, render_table
from refinery.runtime.recipe import Recipe, load_recipe
from refinery.runtime.run.run_dir import RunDir, read_run
from refinery.text import printable

_NOT_RUN = "-"


class Column(Recipe):
    """A compared quantity: a metric or a module's measure, in percent if it is a fraction, a cost per question, or a mean of columns."""

    name: str = Field(description="the column's head")
    slug: str | None = Field(default=None, description="the value of {column} in a run's folder; by default the name in lower case")
    metric: str | None = Field(default=None, description="the name of a metric in refinery/metrics")
    group: str = Field(default="all", description="the kind of question: all, single_hop, multi_hop, or a dataset's own type")
    cost: str | None = Field(
        default=None,
        description="a cost per question: calls, retrievals, prefill_tokens, decode_tokens, seconds, iterations, passages_per_iteration,"
        " passages_per_call, knowledge_tokens",
    )
    measure: str | None = Field(default=None, description="what `refinery evaluate-modules` measured, such as precision")
    line: str | None = Field(default=None, description="the line of its table that `measure` is read from, such as questions")
    mean_of: list[str] = Field(default=[], description="columns to average; shown once all of them have a value")

    @model_validator(mode="after")
    def _one_kind(self) -> Self:
        if sum(map(bool, (self.metric, self.cost, self.measure, self.mean_of))) != 1:
            raise ValueError(f"column '{self.name}' needs one of metric, cost, measure and mean_of")
        if bool(self.measure) != bool(self.line):
            raise ValueError(f"column '{self.name}': measure and line need each other")
        if self.metric:
            find_metric(self.metric)
        return self


class Row(Recipe):
    """One system of the table; a row that has only a name is a heading."""

    name: str = Field(description="the row's head")
    paper: dict[str, float | str] = Field(default={}, description="the paper's numbers by column, as printed")
    run: str | None = Field(default=None, description="output_dir of our runs; {column} is replaced by the column's slug")
    system: str | None = Field(default=None, description="which system of the run; by default the only one, or the ensemble of a tree")


class PaperTable(Recipe):
    """A table, or the points of a figure, as printed in a paper."""

    title: str = Field(description="printed above the table")
    source: str = Field(description="where the numbers were read: paper, table, page or arXiv version")
    columns: list[Column] = Field(min_length=1, description="what is compared")
    rows: list[Row] = Field(min_length=1, description="the systems")

    @model_validator(mode="after")
    def _known_columns(self) -> Self:
        names = {column.name for column in self.columns}
        named = {name for row in self.rows for name in row.paper} | {name for column in self.columns for name in column.mean_of}
        if unknown := sorted(named - names):
            raise ValueError(f"'{unknown[0]}' is not a column; columns are {', '.join(column.name for column in self.columns)}")
        return self


def print_paper_table(path: Path, *, runs: Path, table_format: TableFormat) -> None:
    """Write the table of `path` to stdout, and the runs that are missing to stderr. `runs` is the folder that contains the runs."""
    table = load_recipe(path, PaperTable)
    header = ["", *(name for column in table.columns for name in (column.name, f"{column.name} (paper)"))]
    missing: list[Path] = []
    rows = [_cells(row, table, runs, missing) for row in table.rows]
    sys.stdout.write(f"{printable(table.title)}\n{render_table(header, rows, table_format)}")
    sys.stderr.writelines(printable(f"not the same in all rows: {line}\n") for line in _differences(table, runs))
    if missing:
        sys.stderr.write(printable(f"runs that do not exist yet: {', '.join(map(str, dict.fromkeys(missing)))}\n"))


def _differences(table: PaperTable, runs: Path) -> list[str]:
    """Differences between the runs of a column besides their methods; a line that holds for several columns is stated once."""
    found: dict[str, list[str]] = {}
    for column in table.columns:
        folders = {row.name: _folder(row, column, runs) for row in table.rows if row.run and not column.mean_of}
        for line in differences({name: open_stored(folder) for name, folder in folders.items() if _answers(folder)}):
            found.setdefault(line, []).append(column.name)
    return [f"{line} in {', '.join(columns)}" for line, columns in found.items()]


def _answers(folder: Path) -> bool:
    """Whether the folder holds a finished infer run of a whole decoder, not of a single module."""
    return RunDir(folder).finished and read_run(folder)["stage"] == "infer"


def _folder(row: Row, column: Column, runs: Path) -> Path:
    assert row.run is not None
    return runs / row.run.format(column=column.slug or column.name.lower())


def _cells(row: Row, table: PaperTable, runs: Path, missing: list[Path]) -> list[str]:
    ours: dict[str, float] = {}
    shown: dict[str, str] = {}
    for column in table.columns:
        if column.mean_of or row.run is None:
            continue
        folder = _folder(row, column, runs)
        if not RunDir(folder).finished:
            missing.append(folder)
            continue
        ours[column.name], shown[column.name] = _measured(folder, row, column)
    for column in table.columns:
        if column.mean_of and all(name in ours for name in column.mean_of):
            shown[column.name] = f"{np.mean([ours[name] for name in column.mean_of]):.1f}"
    cells = ((shown.get(column.name, _NOT_RUN if row.run else ""), str(row.paper.get(column.name, ""))) for column in table.columns)
    return [row.name, *(cell for pair in cells for cell in pair)]


def _measured(folder: Path, row: Row, column: Column) -> tuple[float, str]:
    """Our number, and the text that shows it."""
    if column.measure:
        return _of_module(folder, column, column.measure)
    results = open_stored(folder).metrics["results"]
    scores = results[_system(folder, row, results)]
    if column.cost:
        value = scores["cost_per_question"][column.cost]
        return value, f"{value:.1f}"
    found = scores.get(column.group, {}).get("metrics", {}).get(column.metric)
    if found is None:
        raise RunDirError(f"{folder}: has no metric '{column.metric}' for group '{column.group}', which column '{column.name}' shows.")
    return found["mean"], f"{found['mean']:.1f} [{found['low']:.1f}, {found['high']:.1f}]"


def _of_module(folder: Path, column: Column, measure: str) -> tuple[float, str]:
    lines = open_module_run(folder).metrics["lines"]
    found = lines.get(column.line or "", {}).get("measures", {}).get(measure)
    if found is None:
        raise RunDirError(f"{folder}: has no measure '{measure}' on '{column.line}', which column '{column.name}' shows.")
    return measure_scale(measure) * found["mean"], shown_measure(measure, **found)


def _system(folder: Path, row: Row, results: dict[str, Any]) -> str:
    name = row.system or next((name for name in results if name.endswith("_ensemble")), next(iter(results)))
    if name not in results:
        raise RunDirError(f"{folder}: has no system '{name}', which row '{row.name}' shows. It has: {', '.join(results)}.")
    return name
