"""A reader from outside: one file, named in a recipe or a command, which reads files and, if it says so, the hub's rows."""

import json
from pathlib import Path

import pytest

from refinery.errors import PluginError, RecordError
from refinery.questions.base import read_named_questions, read_questions

TRIVIA = """
from refinery.contract.records import Question
from refinery.questions.base import DatasetRow, Reader, iter_dataset


class Row(DatasetRow):
    key: str
    ask: str


def read(path):
    return of_rows(path, None)


def of_rows(path, rows):
    return iter_dataset(path, Row, lambda row: [Question(id=row.key, text=row.ask, dataset="trivia")], rows=rows)
"""
DECLARED = f"{TRIVIA}\n\nREADER = Reader(read, of_rows)\n"


@pytest.fixture
def rows(tmp_path, monkeypatch):
    """A file of one row, in a schema of its own; its folder is a dataset as the hub has them."""
    monkeypatch.setenv("HF_DATASETS_CACHE", str(tmp_path / "cache"))
    (tmp_path / "trivia").mkdir()
    path = tmp_path / "trivia" / "test.jsonl"
    path.write_text(json.dumps({"key": "k", "ask": "Who?"}))
    return path


@pytest.mark.parametrize("name", ["my_lab.trivia", "my_lab.trivia:read"])
def test_one_file_outside_is_a_reader(my_lab, rows, name):
    my_lab("trivia", TRIVIA)
    (question,) = read_questions([rows], reader=name)
    assert (question.id, question.text, question.dataset) == ("k", "Who?", "trivia")
    assert read_named_questions([f"{name}={rows}"]) == [question]


def hub_rows(folder, reader):
    """What `reader` makes of a hub's dataset, which is a folder here."""
    return read_questions([Path(f"{folder}:test?reader={reader}")], reader="hub")


def test_what_it_declares_reads_the_hubs_rows_too(my_lab, rows):
    my_lab("trivia", DECLARED)
    (question,) = hub_rows(rows.parent, "my_lab.trivia")
    assert (question.id, question.text, question.split) == ("k", "Who?", "test")


def test_a_command_names_a_dataset_on_the_hub_by_its_address(my_lab, rows):
    my_lab("trivia", DECLARED)
    rows.parent.rename("my_lab/rows")
    (question,) = read_named_questions(["my_lab/rows:test?reader=my_lab.trivia"])
    assert (question.id, question.text) == ("k", "Who?")


def test_a_function_alone_reads_files_only(my_lab, rows):
    my_lab("trivia", TRIVIA)
    with pytest.raises(RecordError, match="reader=my_lab.trivia reads files only. Name the columns"):
        hub_rows(rows.parent, "my_lab.trivia")


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        ("", r"declares neither READER \(a Reader\) nor the function read\(path\)"),
        ("def read(): ...", r"cannot be called as read\(path\) \(too many positional arguments\)"),
        ("READER = 3", r"is an int. It should be a Reader, or a function read\(path\)"),
    ],
)
def test_a_wrong_one_is_told_what_is_missing(my_lab, rows, text, fault):
    my_lab("wrong", text)
    with pytest.raises(PluginError, match=f"reader 'my_lab.wrong': .*{fault}"):
        read_questions([rows], reader="my_lab.wrong")
