"""What comes from outside steers no terminal and is no markup, wherever a command prints it."""

import io
import logging
import sys
import unicodedata

import pytest
import yaml

from refinery.cli import main
from refinery.contract.records import Passage, Question, write_records
from refinery.contract.trace import Cost, Prediction, ScoredPassage, TraceStep
from refinery.errors import RecordError
from refinery.runtime.run.command import configure_logging, guarded
from refinery.runtime.run.progress import Progress

# Sets the window's title, clears the screen, goes back to the start of the line, turns the direction; rich fails at a tag never opened.
EVIL = "Lyon\x1b]0;owned\x07\x1b[2J\x9b1m\u202e\u2066\r[red]bold[/nope]"
SHOWN = r"Lyon\x1b]0;owned\x07\x1b[2J\x9b1m\u202e\u2066\r[red]bold[/nope]"


def steering(text: str) -> set[str]:
    """Characters that are seen by a terminal and not by its reader."""
    return {letter for letter in text if unicodedata.category(letter) in ("Cc", "Cf") and letter not in "\n\t"}


@pytest.fixture
def run_dir(stored_run):
    """A finished run whose question, name, passage and reply are hostile."""
    passage = ScoredPassage(id=EVIL, title=EVIL, text=EVIL, retrieval_score=1.0)
    step = TraceStep(name=EVIL, depth=0, question=EVIL, text=EVIL, passages=[passage], probabilities={EVIL: 1.0})
    cost = Cost(calls=1, retrievals=1, prefill_tokens=1, decode_tokens=1)
    question = Question(id="q", text=EVIL, answers=["Lyon"])
    prediction = Prediction(question_id="q", question=EVIL, answer=EVIL, trace=[step], cost=cost)
    return stored_run("run", [question], [prediction], passages=[Passage(id="p", title=EVIL, text=EVIL)], name=EVIL)


@pytest.mark.parametrize(
    "arguments",
    [
        ["view"],
        ["view", "--question", EVIL],
        ["rescore"],
        ["compare"],
        *(["compare", "--format", name] for name in ("markdown", "csv", "latex")),
        ["view", "--output", "page.html"],
    ],
    ids=lambda arguments: " ".join(arguments[:3]).replace(EVIL, "ID"),
)
def test_a_run_of_hostile_rows_is_shown_as_plain_text(run_dir, capsys, monkeypatch, tmp_path, arguments):
    monkeypatch.chdir(tmp_path)
    main([arguments[0], str(run_dir), *arguments[1:]])
    out, err = capsys.readouterr()
    assert out + err
    assert steering(out + err) == set()


def test_a_trace_shows_what_was_there(run_dir, capsys):
    main(["view", str(run_dir)])
    assert capsys.readouterr().out.replace("\n", "").count(SHOWN) >= 8


def test_a_dry_run_shows_hostile_questions_and_options_as_plain_text(tmp_path, capsys):
    write_records(tmp_path / "questions.jsonl", [Question(id="q", text=EVIL)])
    recipe = {"decoder": "direct", "name": EVIL, "questions": [str(tmp_path / "questions.jsonl")], "output_dir": str(tmp_path / "run")}
    (tmp_path / "recipe.yaml").write_text(yaml.safe_dump(recipe | {"llm": {"base": EVIL}}))
    assert main(["infer", str(tmp_path / "recipe.yaml"), "--dry-run"]) == 0
    out = capsys.readouterr().out
    assert (steering(out), SHOWN in out) == (set(), True)


def test_an_error_line_is_plain_text(capsys):
    def fail():
        raise RecordError(f"questions.jsonl: row 1: id '{EVIL}' is used twice.")

    assert guarded(fail, traceback=False) == 2
    err = capsys.readouterr().err
    assert (steering(err), SHOWN in err) == (set(), True)


def test_a_log_line_is_plain_text(monkeypatch):
    written = io.StringIO()
    monkeypatch.setattr(sys, "stderr", written)
    monkeypatch.setattr(logging.root, "handlers", [])
    configure_logging()
    logging.getLogger("infer.serving.service").warning("%s: failed", EVIL)
    assert written.getvalue() == f"warning: infer.serving.service: {SHOWN}: failed\n"


class Terminal(io.StringIO):
    """What a terminal is sent."""

    def isatty(self):
        return True


def test_a_progress_bar_is_plain_text(monkeypatch):
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("COLUMNS", "200")
    monkeypatch.setattr(sys, "stderr", Terminal())
    with Progress(f"infer {EVIL}", total=1, below=lambda: EVIL) as progress:
        progress.advance()
    assert sys.stderr.getvalue().count(SHOWN) >= 2
    assert not any(part in sys.stderr.getvalue() for part in ("\x1b]0;", "\x1b[2J", "\x9b", "\u202e"))


@pytest.mark.parametrize("text", ["Müller", "北京\n", "क्\u200dष", "a\tb", "👩\u200d🚀 no\u00a0break"])
def test_text_of_every_script_stays_as_it_is(text):
    from refinery.text import printable

    assert printable(text) == text
