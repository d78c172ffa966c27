"""What a paper's table shows."""

from pathlib import Path

from infer.evaluation.tables.paper import PaperTable
from refinery.runtime.recipe import load_recipe


def runs_of(path: Path) -> set[Path]:
    """The run folders that a table shows."""
    table = load_recipe(path, PaperTable)
    columns = [column.slug or column.name.lower() for column in table.columns if not column.mean_of]
    return {Path("runs", row.run.format(column=column)) for row in table.rows if row.run for column in columns}
