"""`refinery split`: files of several datasets become one set of questions with splits."""

import json
from pathlib import Path

import pytest

from refinery.cli import main
from refinery.contract.records import Question, read_records, write_records


@pytest.fixture
def own(tmp_path: Path) -> Path:
    """Four questions in Refinery's own schema."""
    write_records(tmp_path / "own.jsonl", [Question(id=name, text=f"Who directed {name}?", answers=["Maria"]) for name in "ABCD"])
    return tmp_path / "own.jsonl"


@pytest.fixture
def nq(tmp_path: Path) -> Path:
    """Three rows as NQ-open has them, the first of which asks what a question of `own` asks."""
    asked = ("who directed A", "where is Lyon", "when was Dune released")
    (tmp_path / "NQ-open.train.jsonl").write_text("".join(json.dumps({"question": text, "answer": ["x"]}) + "\n" for text in asked))
    return tmp_path / "NQ-open.train.jsonl"


def test_each_file_is_read_in_its_own_schema_and_what_two_ask_is_kept_once(own, nq, tmp_path, capsys):
    assert main(["split", str(own), f"nq_open={nq}", "--test", "0", "--validation", "0.2", "--output", str(tmp_path / "q")]) == 0
    kept = [q for name in ("train", "validation") for q in read_records(tmp_path / "q" / f"{name}.jsonl", Question)]
    assert sorted(question.text for question in kept if question.dataset == "nq_open") == ["when was Dune released", "where is Lyon"]
    assert len(kept) == 6
    assert "left out: 1 with the same text as another" in capsys.readouterr().out


def test_the_reader_is_that_of_files_that_name_none(nq, tmp_path):
    assert main(["split", str(nq), "--reader", "nq_open", "--output", str(tmp_path / "q")]) == 0


def test_an_id_in_two_files_is_refused(nq, tmp_path, capsys):
    assert main(["split", f"nq_open={nq}", f"nq_open={nq}", "--output", str(tmp_path / "q")]) == 2
    assert capsys.readouterr().err == f"error: nq_open={nq}: question id 'train_0' is used twice. Ids must be unique.\n"
    assert not (tmp_path / "q").exists()
