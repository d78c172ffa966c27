"""A distill run with its own prompts: the teacher reads them, and the run stays with the text that it was started with."""

import json
import shutil

import pytest
from helpers.scripted_server import chat_reply, prompt_of, scripted

from distill.__main__ import main
from refinery.cli import main as refinery
from refinery.contract.records import Decomposition, Question, read_records, write_records
from refinery.prompts.render import prompt_hash

OWN = "Break it down, please.\nReply with JSON.\nFrage: {{ question }}\n"


@pytest.fixture
def run(mock_recipe, tmp_path, monkeypatch):
    """Run a recipe of four questions, with `text` as the decomposition prompt in `mine`; gives the exit code and the prompts sent."""
    monkeypatch.chdir(tmp_path)

    with scripted(lambda body: (200, chat_reply())) as server:

        def run(*arguments: str, text: str | None = OWN, name: str = "teacher_decomposition", **values) -> tuple[int, list[str]]:
            if text is not None:
                (tmp_path / "mine").mkdir(exist_ok=True)
                (tmp_path / "mine" / f"{name}.jinja").write_text(text)
            server.bodies.clear()
            recipe = mock_recipe(server.address, count=4, **{"prompts": "mine", "output_dir": "run"} | values)
            code = main([str(recipe), *arguments])
            return code, [prompt_of(body) for body in server.bodies]

        yield run


def error_line(capsys) -> str:
    lines = [line for line in capsys.readouterr().err.splitlines() if line.startswith("error: ")]
    assert len(lines) == 1
    return lines[0].removeprefix("error: ")


def test_the_teacher_reads_the_own_text_and_the_rows_say_which_it_was(run, tmp_path):
    code, prompts = run()
    assert code == 0
    assert sorted(prompts) == [f"Break it down, please.\nReply with JSON.\nFrage: Who directed film {i}?" for i in range(4)]
    used = json.loads((tmp_path / "run" / "run.json").read_text())["fingerprints"]["teacher_decomposition"]
    assert used != prompt_hash("teacher_decomposition")
    rows = read_records(tmp_path / "run" / "train.jsonl", Decomposition)
    assert [row.provenance.prompts for row in rows] == [{"teacher_decomposition": used}] * 4
    assert json.loads((tmp_path / "run" / "metrics.json").read_text())["prompts"]["teacher_decomposition"] == used


def test_a_copy_of_the_shipped_text_asks_as_before(run, tmp_path, capsys):
    refinery(["prompts", "teacher_decomposition", "--copy", "mine"])
    assert run(text=None, output_dir="copied")[1]
    assert run("--resume", text=None, prompts=None, output_dir="copied") == (0, [])  # every request has the key that it had
    assert run("--resume", output_dir="copied")[1]


@pytest.mark.parametrize(
    ("text", "error"),
    [
        ("{{ question }}\n{{ ''.__class__.__mro__ }}", "mine/teacher_decomposition.jinja:2: cannot be rendered: access to attribute"),
        ("{{ question }}\n{{ passage }}", "mine/teacher_decomposition.jinja:2: there is no variable 'passage'."),
        ("{{ question }}\n{% for %}", "mine/teacher_decomposition.jinja:2: "),
        ("List three.", "mine/teacher_decomposition.jinja:1: ends without {{ question }}"),
    ],
)
def test_a_text_that_cannot_be_used_stops_the_run_before_a_call(run, tmp_path, capsys, text, error):
    assert run(text=text) == (2, [])
    assert error_line(capsys).startswith(error)
    assert not (tmp_path / "run").exists()


def test_a_fault_that_only_real_text_shows_is_one_line_too(run, tmp_path, capsys):
    code, _ = run(text="{{ question }}{% if 'film 2' in question %}\n{{ question.nothing.at_all }}{% endif %}")
    assert code == 2
    assert error_line(capsys) == "mine/teacher_decomposition.jinja:2: cannot be rendered: 'str object' has no attribute 'nothing'"
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize("limit", [4, 2])
def test_a_run_is_not_resumed_with_another_text(run, capsys, limit):
    run(limit=2)
    assert run("--resume", text="Other. {{ question }}", limit=limit) == (2, [])
    line = error_line(capsys)
    assert line.startswith("run: was started with other prompts (changed: teacher_decomposition). Restore them, ")
    assert "or remove run/prompts to label everything with the new ones." in line
    shutil.rmtree("run/prompts")
    assert sorted(run("--resume", text=None)[1])[0] == "Other. Who directed film 0?"


def test_a_run_is_not_resumed_with_a_text_more(run, capsys):
    run()
    assert run("--resume", text="Again: {{ fault }}", name="teacher_correction") == (2, [])
    assert "(changed: prompts)" in error_line(capsys)


def test_another_folder_is_another_recipe_which_pays_for_what_is_new(run, tmp_path):
    run(limit=2)
    shutil.copytree(tmp_path / "mine", tmp_path / "second")
    assert len(run("--resume", text=None, prompts="second")[1]) == 2
    (tmp_path / "second" / "teacher_decomposition.jinja").write_text("Other. {{ question }}")
    (tmp_path / "second").rename(tmp_path / "third")
    assert len(run("--resume", text=None, prompts="third")[1]) == 4


def test_a_run_whose_folder_has_gone_resumes_with_the_text_that_it_kept(run, tmp_path, capsys):
    run(limit=2)
    shutil.rmtree(tmp_path / "mine")
    code, prompts = run("--resume", text=None, limit=None)
    assert (code, sorted(prompts)) == (0, [f"Break it down, please.\nReply with JSON.\nFrage: Who directed film {i}?" for i in (2, 3)])
    kept = tmp_path / "run" / "prompts" / "teacher_decomposition.jinja"
    kept.write_text("Changed. {{ question }}")
    assert run("--resume", text=None, limit=None) == (2, [])
    assert "(changed: teacher_decomposition)" in error_line(capsys)


def test_a_run_whose_folder_has_gone_shows_its_prompts(run, tmp_path, capsys, read_page):
    run()
    shutil.rmtree(tmp_path / "mine")
    assert refinery(["view", "run", "--output", "page.html"]) == 0
    assert "Frage: Who directed film 3?" in json.dumps(read_page(tmp_path / "page.html"))
    assert "left out" not in capsys.readouterr().err


def test_joined_shards_keep_their_prompts_and_must_have_the_same(run, tmp_path, capsys):
    for number in (0, 1):
        assert run(shard=f"{number}/2", output_dir=f"part{number}")[0] == 0
    assert main(["merge", "whole", "part0", "part1"]) == 0
    assert (tmp_path / "whole" / "prompts" / "teacher_decomposition.jinja").read_text() == OWN
    run(text="Other. {{ question }}", shard="1/2", output_dir="part2")
    capsys.readouterr()
    assert main(["merge", "second", "part0", "part2"]) == 2
    assert "(changed: teacher_decomposition)" in error_line(capsys)


def test_the_preview_shows_the_own_text(run, capsys):
    assert run("--dry-run") == (0, [])
    assert "--- example 1\nBreak it down, please." in capsys.readouterr().out


def test_rows_that_students_learn_from_have_the_shipped_text(run, tmp_path, capsys):
    write_records(tmp_path / "answered.jsonl", [Question(id="q", text="Who?", answers=["Ann"])])
    values = {"task": "answers", "options": {"passages": "none"}, "questions": ["answered.jsonl"], "teacher": None}
    assert run(text="Say: {{ question }}", name="answer_direct", **values)[0] == 2
    assert error_line(capsys).startswith("prompts: students are trained on the text of answer_direct.jinja that ships.")
