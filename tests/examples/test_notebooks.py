"""The notebooks: each cell, run in order from an empty folder, prints and shows what the notebook has below it."""

import ast
import asyncio
import contextlib
import io
import json
import sys
from pathlib import Path
from typing import Any

import pytest

NOTEBOOKS = sorted((Path(__file__).parents[2] / "examples").glob("*.ipynb"))


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_notebook_prints_what_it_shows(path, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path])
    cells = [cell for cell in json.loads(path.read_text(encoding="utf-8"))["cells"] if cell["cell_type"] == "code"]
    assert asyncio.run(run_cells(cells)) == [shown(cell) for cell in cells]


async def run_cells(cells: list[dict[str, Any]]) -> list[tuple[str, str]]:
    """What each cell prints, and the HTML of its last value, on an event loop, as Jupyter runs them."""
    namespace: dict[str, Any] = {}
    return [run_cell("".join(cell["source"]), namespace) for cell in cells]


def run_cell(source: str, namespace: dict[str, Any]) -> tuple[str, str]:
    body = ast.parse(source).body
    last = ast.Expression(body.pop().value) if isinstance(body[-1], ast.Expr) else ast.Expression(ast.Constant(None))
    with contextlib.redirect_stdout(io.StringIO()) as output:
        exec(compile(ast.Module(body, []), "cell", "exec"), namespace)
        value = eval(compile(ast.fix_missing_locations(last), "cell", "eval"), namespace)
    return output.getvalue(), value._repr_html_() if hasattr(value, "_repr_html_") else ""


def shown(cell: dict[str, Any]) -> tuple[str, str]:
    printed = "".join(line for output in cell["outputs"] if output.get("name") == "stdout" for line in output["text"])
    return printed, "".join(line for output in cell["outputs"] for line in output.get("data", {}).get("text/html", []))
