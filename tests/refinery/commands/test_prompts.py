"""`refinery prompts`: what it lists, prints and copies."""

import pytest

from refinery.cli import main
from refinery.prompts.custom import may_replace, own_prompts
from refinery.prompts.files import SHIPPED, shipped_files


def test_every_prompt_is_listed_with_its_variables(capsys):
    assert main(["prompts"]) == 0
    lines = [line.split(maxsplit=1) for line in capsys.readouterr().out.splitlines() if line.startswith("  ")]
    assert [line[0] for line in lines] == list(shipped_files())
    about = dict(lines)["teacher_relevance"]
    assert about.startswith("passages, [rationale], [examples], question - RA-ISF App. D, one call for all passages of a question")
    assert dict(lines)["relevance"].endswith("(cannot be replaced)")


def test_a_folder_lists_its_prompts_alone(capsys):
    main(["prompts", "teacher"])
    out = capsys.readouterr().out
    assert out.startswith("teacher:\n  teacher_answer_ambiguous ")
    assert "decoders:" not in out


def test_a_prompt_is_printed_as_a_prompt_with_what_fills_it_in(tmp_path, capsys):
    main(["prompts", "teacher_correction"])
    shown = capsys.readouterr().out
    assert "{# fault: why the last reply could not be used, such as " in shown
    (tmp_path / "teacher_correction.jinja").write_text(shown)
    assert own_prompts(tmp_path).render("teacher_correction", {"fault": "!"}) == SHIPPED.render("teacher_correction", {"fault": "!"})


def test_what_is_copied_can_be_named_in_a_recipe_and_changes_nothing(tmp_path, capsys):
    assert main(["prompts", "--copy", str(tmp_path / "mine")]) == 0
    assert f"set `prompts: {tmp_path / 'mine'}` in a recipe" in capsys.readouterr().out
    prompts = own_prompts(tmp_path / "mine")
    assert set(prompts.own) == set(filter(may_replace, shipped_files()))
    assert all(prompts.hash(name) == SHIPPED.hash(name) for name in prompts.own)


@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        (["teacher_relevence"], "no prompt or folder of prompts is called 'teacher_relevence'. Did you mean 'teacher_relevance'?"),
        (["relevance", "--copy", "mine"], "relevance.jinja: cannot be replaced, because models are trained on the text that ships."),
        (["teacher_correction", "--copy", "."], "teacher_correction.jinja: exists already."),
    ],
)
def test_what_cannot_be_shown_or_copied_is_one_line(tmp_path, monkeypatch, capsys, arguments, error):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "teacher_correction.jinja").write_text("mine")
    assert main(["prompts", *arguments]) == 2
    said = capsys.readouterr().err
    assert len(said.splitlines()) == 1
    assert error in said
    assert (tmp_path / "teacher_correction.jinja").read_text() == "mine"
