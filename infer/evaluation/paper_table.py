"""A table of a paper, filled from finished runs: the paper's number beside ours wherever there is a run (`refinery report`)."""

import sys
from pathlib import Path
from typing import Any, Self

import numpy as np
from pydantic import Field, model_validator

from infer.evaluation.finished_runs import open_stored
from refinery.errors import RunDirError
from refinery.metrics.registry import find_metric
from refinery.reporting.tables import TableFormat, render_table
from refinery.runtime.recipe import Recipe, load_recipe
from refinery.runtime.run_dir import RunDir
from refinery.text import printable

_NOT_RUN = "-"


class Column(Recipe):
    """What is compared: a metric in percent, a cost per question, or the mean of other columns."""

    name: str
    slug: str | None = Field(default=None, description="what {column} stands for in a run's folder; by default the name in lower case")
    metric: str | None = Field(default=None, description="a metric of refinery/metrics")
    group: str = Field(default="all", description="the kind of question: all, single_hop, multi_hop, or a dataset's own type")
    cost: str | None = Field(
        default=None,
        description="per question: calls, retrievals, prefill_tokens, decode_tokens, seconds, iterations, passages_per_iteration,"
        " passages_per_call, knowledge_tokens",
    )
    mean_of: list[str] = Field(default=[], description="columns whose mean it is, once all of them are there")

    @model_validator(mode="after")
    def _one_kind(self) -> Self:
        if sum(map(bool, (self.metric, self.cost, self.mean_of))) != 1:
            raise ValueError(f"column '{self.name}' needs one of metric, cost and mean_of")
        if self.metric:
            find_metric(self.metric)
        return self


class Row(Recipe):
    """One system of the table, or with nothing but a name a heading."""

    name: str
    paper: dict[str, float | str] = Field(default={}, description="the paper's numbers by column, as printed")
    run: str | None = Field(default=None, description="output_dir of our runs; {column} stands for the column's slug")
    system: str | None = Field(default=None, description="which system of the run; by default its only one, or a tree's ensemble")


class PaperTable(Recipe):
    """A table (or the points of a figure) as a paper prints it."""

    title: str
    source: str = Field(description="paper, table, page or arXiv version that the numbers were read from")
    columns: list[Column] = Field(min_length=1)
    rows: list[Row] = Field(min_length=1)

    @model_validator(mode="after")
    def _known_columns(self) -> Self:
        names = {column.name for column in self.columns}
        named = {name for row in self.rows for name in row.paper} | {name for column in self.columns for name in column.mean_of}
        if unknown := sorted(named - names):
            raise ValueError(f"'{unknown[0]}' is not a column; columns are {', '.join(column.name for column in self.columns)}")
        return self


def print_paper_table(path: Path, *, runs: Path, table_format: TableFormat) -> None:
    """Write the table of `path` to stdout, and to stderr which runs it lacks. `runs` is the folder that its runs are under."""
    table = load_recipe(path, PaperTable)
    header = ["", *(name for column in table.columns for name in (column.name, f"{column.name} (paper)"))]
    missing: list[Path] = []
    rows = [_cells(row, table, runs, missing) for row in table.rows]
    sys.stdout.write(f"{printable(table.title)}\n{render_table(header, rows, table_format)}")
    if missing:
        sys.stderr.write(printable(f"runs that are not there yet: {', '.join(map(str, dict.fromkeys(missing)))}\n"))


def _cells(row: Row, table: PaperTable, runs: Path, missing: list[Path]) -> list[str]:
    ours: dict[str, float] = {}
    shown: dict[str, str] = {}
    for column in table.columns:
        if column.mean_of or row.run is None:
            continue
        folder = runs / row.run.format(column=column.slug or column.name.lower())
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
    """Our number, and how it is shown."""
    results = open_stored(folder).metrics["results"]
    scores = results[_system(folder, row, results)]
    if column.cost:
        value = scores["cost_per_question"][column.cost]
        return value, f"{value:.1f}"
    found = scores.get(column.group, {}).get("metrics", {}).get(column.metric)
    if found is None:
        raise RunDirError(f"{folder}: has no {column.metric} for '{column.group}', which column '{column.name}' shows.")
    return found["mean"], f"{found['mean']:.1f} [{found['low']:.1f}, {found['high']:.1f}]"


def _system(folder: Path, row: Row, results: dict[str, Any]) -> str:
    name = row.system or next((name for name in results if name.endswith("_ensemble")), next(iter(results)))
    if name not in results:
        raise RunDirError(f"{folder}: has no system '{name}', which row '{row.name}' shows. It has: {', '.join(results)}.")
    return name
