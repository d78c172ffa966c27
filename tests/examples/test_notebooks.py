"""The notebooks: each cell, run in order from an empty folder, prints what the notebook shows below it."""

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


async def run_cells(cells: list[dict[str, Any]]) -> list[str]:
    """What each cell prints, on an event loop, as Jupyter runs them."""
    namespace: dict[str, Any] = {}
    return [printed("".join(cell["source"]), namespace) for cell in cells]


def printed(source: str, namespace: dict[str, Any]) -> str:
    with contextlib.redirect_stdout(io.StringIO()) as output:
        exec(source, namespace)
    return output.getvalue()


def shown(cell: dict[str, Any]) -> str:
    return "".join(line for output in cell["outputs"] if output.get("name") == "stdout" for line in output["text"])
