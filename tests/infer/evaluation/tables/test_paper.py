"""A paper's table beside our runs."""

from pathlib import Path

import pytest
import yaml

from infer.evaluation.tables.paper import PaperTable
from refinery.cli import main
from refinery.contract.records import Question
from refinery.runtime.recipe import load_recipe

RECIPES = Path(__file__).parents[4] / "recipes"
TABLES = sorted(RECIPES.glob("*/tables/*.yaml"))
QUESTIONS = [Question(id=f"q{number}", text=f"Who made film {number}?", answers=["Maria Torvel"]) for number in range(4)]


@pytest.fixture
def report(stored_run, tmp_path, capsys):
    """Print the table of one finished run `rag`, given its columns and rows: exit code, stdout, stderr."""
    stored_run("rag", QUESTIONS, ["Maria Torvel", "Oslo", "Oslo", "maria torvel."])

    def run(columns, rows, *arguments):
        values = {"title": "Table 1", "source": "here", "columns": columns, "rows": rows}
        (tmp_path / "table.yaml").write_text(yaml.safe_dump(values))
        code = main(["report", str(tmp_path / "table.yaml"), "--runs", str(tmp_path), "--format", "csv", *arguments])
        printed = capsys.readouterr()
        return code, printed.out.splitlines(), printed.err

    return run


def test_our_number_stands_beside_the_papers(report):
    columns = [{"name": "NQ", "metric": "em.squad"}, {"name": "calls", "cost": "calls"}]
    code, lines, _ = report(columns, [{"name": "RAG", "run": "rag/run", "paper": {"NQ": 31.7}}])
    assert code == 0
    assert lines[1] == ",NQ,NQ (paper),calls,calls (paper)"
    assert lines[2].startswith('RAG,"50.0 [')
    assert lines[2].endswith(",31.7,2.0,")


def test_a_mean_is_shown_once_every_column_is_there(report):
    columns = [{"name": "EM", "metric": "em.squad"}, {"name": "F1", "metric": "f1.squad"}, {"name": "Avg.", "mean_of": ["EM", "F1"]}]
    assert report(columns, [{"name": "RAG", "run": "rag/run"}])[1][2].split(",")[-2] == "50.0"


def test_a_run_that_is_not_there_is_a_dash_and_is_named(report):
    _, lines, told = report([{"name": "NQ", "metric": "em.squad"}], [{"name": "RA-ISF", "run": "ra_isf_{column}", "paper": {"NQ": 40.2}}])
    assert lines[2] == "RA-ISF,-,40.2"
    assert "runs that do not exist yet: " in told
    assert "ra_isf_nq" in told


@pytest.mark.parametrize(
    ("columns", "row", "message"),
    [
        ([{"name": "NQ"}], {"name": "RAG"}, "column 'NQ' needs one of metric, cost, measure and mean_of"),
        ([{"name": "NQ", "metric": "em.squat"}], {"name": "RAG"}, "no metric 'em.squat'. Did you mean 'em.squad'?"),
        ([{"name": "NQ", "metric": "em.squad"}], {"name": "RAG", "paper": {"NW": 1}}, "'NW' is not a column"),
        ([{"name": "NQ", "metric": "em.squad"}], {"name": "RAG", "run": "rag/run", "system": "rog"}, "has no system 'rog'"),
        ([{"name": "NQ", "metric": "em.retrieval"}], {"name": "RAG", "run": "rag/run"}, "has no metric 'em.retrieval' for group 'all'"),
    ],
)
def test_a_fault_is_one_line_that_says_which(report, columns, row, message):
    code, _, told = report(columns, [row])
    assert code == 2
    assert message in told


@pytest.mark.parametrize("path", TABLES, ids=lambda path: f"{path.parents[1].name}/{path.stem}")
def test_every_table_that_ships_can_be_filled(path):
    table = load_recipe(path, PaperTable)
    assert any(row.run for row in table.rows)
    assert f"refinery report {path.relative_to(RECIPES.parent)}" in path.read_text()
