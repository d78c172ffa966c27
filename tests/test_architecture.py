"""docs/explanation/architecture.md: the files of its walks are entered in the order that it tells."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

PROJECT = Path(__file__).parents[1]
PAGE = PROJECT / "docs/explanation/architecture.md"
QUESTION = '{"id": "q", "text": "Who directed Young Ladder?", "answers": ["Toro Grilow"]}\n'
PASSAGE = '{"id": "p", "title": "Young Ladder", "text": "Young Ladder is a film directed by Toro Grilow."}\n'

# Prints each file of the project when one of its functions is first called.
TRACED = f"""
import inspect, sys, threading
import torch, transformers.generation, transformers.models.llama.modeling_llama  # not watched, which would take longer than the rest
entered = {{}}
def note(frame, event, _):
    if event == "call" and frame.f_code.co_flags & inspect.CO_OPTIMIZED:
        entered.setdefault(frame.f_code.co_filename)
threading.setprofile(note); sys.setprofile(note)
from refinery.cli import main
code = main(sys.argv[1:])
sys.setprofile(None)
print(*(name[{len(str(PROJECT)) + 1}:] for name in entered if name.startswith({str(PROJECT)!r})), sep="\\n")
sys.exit(code)
"""


@pytest.fixture(scope="module")
def entered(tmp_path_factory):
    """The files that answering one question enters, in order."""
    folder = tmp_path_factory.mktemp("walk")
    (folder / "questions.jsonl").write_text(QUESTION)
    (folder / "passages.jsonl").write_text(PASSAGE)
    changes = [f"questions=[{folder}/questions.jsonl]", f"retriever.passages={folder}/passages.jsonl", f"output_dir={folder}/run"]
    command = [sys.executable, "-c", TRACED, "infer", "recipes/demo/infer/rag.yaml", *changes]
    done = subprocess.run(command, capture_output=True, text=True, cwd=PROJECT, check=True)
    return [line for line in done.stdout.splitlines() if (PROJECT / line).is_file()]


PAGE_TEXT = PAGE.read_text(encoding="utf-8")
NAMED = list(dict.fromkeys(re.findall(r"`((?:refinery|infer)/[\w/]+\.(?:py|jinja))`", PAGE_TEXT)))


def test_every_file_of_the_walks_is_entered(entered):
    assert [file for file in NAMED if file not in entered] == []


def test_the_files_of_infer_are_entered_in_the_order_of_the_page(entered):
    named = [file for file in NAMED if file.startswith("infer/")]
    of_a_question = named[: named.index("infer/evaluation/evaluate.py") + 1]
    assert of_a_question == sorted(of_a_question, key=entered.index)
