"""An infer run with its own prompts: the model reads them, the run says which they were, and it stays with them."""

import json
import shutil
import sys

import pytest
import yaml

import refinery
from infer.__main__ import main
from refinery.contract.records import Question, write_records
from refinery.demo.teacher.server import serving
from refinery.prompts.files import SHIPPED

OWN = "Only the name, please.\nFrage: {{ question }}\n"
QUESTIONS = [Question(id=f"q{i}", text=f"Who directed film {i}?", answers=["Maria"]) for i in range(3)]


@pytest.fixture
def run(tmp_path, monkeypatch):
    """Run `direct` with `text` in `mine`; gives the exit code and the prompts that the model read."""
    monkeypatch.chdir(tmp_path)
    write_records("questions.jsonl", QUESTIONS)

    read = list[str]()
    with serving(lambda prompt: read.append(prompt) or "Maria") as server:

        def run(*arguments: str, text: str | None = OWN) -> tuple[int, list[str]]:
            if text is not None:
                (tmp_path / "mine").mkdir(exist_ok=True)
                (tmp_path / "mine" / "answer_direct.jinja").write_text(text)
            read.clear()
            recipe = {"decoder": "direct", "endpoint": {"base_url": server.base_url, "model": "m"}, "prompts": "mine"}
            (tmp_path / "recipe.yaml").write_text(yaml.safe_dump(recipe | {"questions": ["questions.jsonl"], "output_dir": "run"}))
            return main(["recipe.yaml", *arguments]), list(read)

        yield run


def test_the_model_reads_the_own_text_and_the_run_says_which_it_was(run, tmp_path):
    code, read = run()
    assert (code, sorted(read)) == (0, [f"Only the name, please.\nFrage: {question.text}" for question in QUESTIONS])
    used = json.loads((tmp_path / "run" / "run.json").read_text())["fingerprints"]["answer_direct"]
    assert json.loads((tmp_path / "run" / "metrics.json").read_text())["prompts"]["answer_direct"] == used


def test_a_run_is_not_resumed_with_another_text(run, tmp_path, capsys):
    run()
    capsys.readouterr()
    assert run("--resume", text="Other. {{ question }}") == (2, [])
    assert "over other content (changed: answer_direct)" in capsys.readouterr().err


def test_a_run_whose_folder_has_gone_is_resumed_and_loaded_with_what_it_kept(run, tmp_path):
    run()
    shutil.rmtree("mine")
    (tmp_path / "run" / "metrics.json").unlink()
    code, read = run("--resume", text=None)
    assert (code, read) == (0, [])  # replies are kept by what was asked, which is the same again
    read = list[str]()
    with (
        serving(lambda prompt: read.append(prompt) or "Ann") as server,
        refinery.load("run", **{"endpoint.base_url": server.base_url}) as loaded,
    ):
        assert loaded.ask("Who?").answer == "Ann"
    assert read == ["Only the name, please.\nFrage: Who?"]


def test_a_text_that_cannot_be_used_is_one_line_before_a_model_is_asked(run, capsys):
    assert run(text="{{ question }}\n{{ ''.__class__.__mro__ }}") == (2, [])
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("error: mine/answer_direct.jinja:2: cannot be rendered: access to attribute '__class__'")


PLUGIN = """
from infer.decoders.base import Decoder
from infer.steps.reasoning import answered
from refinery.prompts.render import render_prompt
from refinery.runtime.recipe import Recipe


async def decode(question, session, options):
    prompt = render_prompt("PROMPT", question=question.text)
    return session.prediction(await answered("answer", prompt, question.text, session))


DECODER = Decoder(decode, Recipe)
"""


@pytest.fixture
def plugin(run, tmp_path, monkeypatch):
    """Run a decoder of one's own, in a module of this name, that renders this prompt; gives the exit code and what the model read."""
    monkeypatch.setattr(sys, "path", [*sys.path])

    def plugin(name: str, prompt: str, *arguments: str) -> tuple[int, list[str]]:
        (tmp_path / f"{name}.py").write_text(PLUGIN.replace("PROMPT", prompt))
        return run(f"decoder={name}:DECODER", "prompts=null", *arguments)

    return plugin


def test_a_prompt_beside_an_own_decoder_is_read_recorded_and_resumed_only_as_it_was(plugin, tmp_path, capsys):
    (tmp_path / "question_of_mine.jinja").write_text("Mine: {{ question }}\n")
    code, read = plugin("decoder_of_mine", "question_of_mine")
    assert (code, sorted(read)) == (0, [f"Mine: {question.text}" for question in QUESTIONS])
    assert set(json.loads((tmp_path / "run" / "metrics.json").read_text())["prompts"]) >= {"question_of_mine"}
    assert plugin("decoder_of_mine", "question_of_mine", "--resume") == (0, [])


def test_a_prompt_that_is_not_beside_an_own_decoder_is_a_line_that_says_where_it_is_looked_for(plugin, tmp_path, capsys):
    plugin("decoder_without_prompt", "no_such_prompt")
    (line,) = capsys.readouterr().err.splitlines()
    assert "prompt 'no_such_prompt': there is no no_such_prompt.jinja among those that ship" in line
    assert f", nor in {tmp_path}" in line


def test_a_prompt_beside_an_own_decoder_that_has_a_shipped_name_is_refused(plugin, tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(SHIPPED, "_templates", {})
    (tmp_path / "answer_direct.jinja").write_text("Mine: {{ question }}\n")
    plugin("decoder_of_a_shipped_name", "answer_direct")
    assert f"{tmp_path}/answer_direct.jinja: a prompt of this name ships, and is used in its place" in capsys.readouterr().err
