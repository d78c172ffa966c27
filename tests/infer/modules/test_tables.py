"""Finished module runs beside each other, in every format, and beside a paper's numbers."""

import pytest
import yaml

from refinery.cli import main


@pytest.fixture
def runs(evaluated, tmp_path, gold):
    """A run of a module that replies with the gold, and one of a module whose reply cannot be read."""
    folders = [tmp_path / name for name in ("good", "bad")]
    for folder, reply in zip(folders, (gold, lambda prompt: "I like tea."), strict=True):
        evaluated("migres", "main", reply, limit=6, output_dir=str(folder))
    return folders


def test_runs_stand_beside_each_other_with_their_cost(runs, capsys):
    assert main(["evaluate-modules", *map(str, runs), "--format", "markdown"]) == 0
    printed = capsys.readouterr().out
    lines = [line for line in printed.splitlines() if "| all information |" in line]
    assert [line.split(" | ")[0] for line in lines] == ["| good", "| bad"]
    assert "100.0 [100.0, 100.0]" in lines[0]
    assert "$ per 1,000 questions" in printed


@pytest.mark.parametrize("table_format", ["terminal", "csv", "latex", "json"])
def test_every_format_has_every_run(runs, capsys, table_format):
    assert main(["evaluate-modules", *map(str, runs), "--format", table_format]) == 0
    printed = capsys.readouterr().out
    assert "good" in printed
    assert "bad" in printed


def test_a_table_of_modules_fits_a_terminal_of_80_columns(runs, capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    assert main(["evaluate-modules", *map(str, runs)]) == 0
    printed = capsys.readouterr().out
    assert max(len(line) for line in printed.splitlines() if line.startswith(tuple("┏┃┡│└"))) <= 80
    assert main(["evaluate-modules", *map(str, runs), "--wide"]) == 0
    assert len(capsys.readouterr().out) > len(printed)


def test_a_report_shows_the_papers_number_beside_ours(runs, tmp_path, capsys):
    columns = [{"name": "Acc", "slug": "good", "measure": "EM", "line": "all information"}]
    table = {"title": "t", "source": "s", "columns": columns, "rows": [{"name": "ours", "run": "{column}", "paper": {"Acc": 91.2}}]}
    (tmp_path / "table.yaml").write_text(yaml.safe_dump(table))
    assert main(["report", str(tmp_path / "table.yaml"), "--runs", str(tmp_path), "--format", "csv"]) == 0
    assert 'ours,"100.0 [100.0, 100.0]",91.2' in capsys.readouterr().out


def test_a_run_of_another_stage_is_refused(runs, capsys):
    (runs[0] / "run.json").write_text('{"stage": "infer", "recipe": {}}')
    assert main(["evaluate-modules", str(runs[0])]) == 2
    assert "is an infer run. Name the output_dir of a run of `refinery evaluate-modules`." in capsys.readouterr().err


def test_a_page_of_module_runs_is_refused_in_one_line(runs, capsys):
    assert main(["view", str(runs[0]), "--output", str(runs[0] / "page.html")]) == 2
    assert "is a run of 'modules', which this command cannot show." in capsys.readouterr().err


def test_a_decomposition_is_judged_and_searched_without_annotated_sub_questions(evaluated, sample):
    def reply(prompt: str) -> str:
        return "Yes." if "semantically consistent" in prompt else "1. Where is it?\n2. Who is it?"

    lines = evaluated("ra_isf", "decomposition", reply, judged=True, questions=[str(sample / "hotpotqa/train.json")], limit=4)
    assert set(lines) == {"meaning of the question", "search: its sub-questions", "search: the question"}
    assert lines["meaning of the question"]["measures"]["judged consistent"]["mean"] == 1.0
