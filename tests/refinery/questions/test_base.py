from pathlib import Path

import pytest

from refinery.contract.records import Question
from refinery.errors import RecordError
from refinery.questions.base import READERS, DatasetRow, find_reader, read_dataset, read_questions, split_of

DATA = Path(__file__).parents[3] / "recipes" / "sample" / "data"


class Row(DatasetRow):
    id: str
    text: str


def read(path):
    return read_dataset(path, Row, lambda row: Question(id=row.id, text=row.text))


@pytest.mark.parametrize("name", READERS.shipped())
def test_every_file_of_the_folder_declares_a_reader(name):
    assert callable(find_reader(name).read)


@pytest.mark.parametrize(
    "layout",
    ['[{"id": "a", "text": "Who?"},\n{"id": "b", "text": "Where?"}]', '{"id": "a", "text": "Who?"}\n{"id": "b", "text": "Where?"}'],
)
def test_a_json_list_and_json_lines_read_alike(tmp_path, layout):
    (tmp_path / "rows.json").write_text(layout)
    assert [question.id for question in read(tmp_path / "rows.json")] == ["a", "b"]


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ('[{"id": "a", "text": "Who?"}, {"id": "b"}]', ": row 2: field 'text': Field required."),
        ('{"id": "a", "text": "Who?"}\n{"id": 7, "text": "Who?"}', ":2: field 'id': Input should be a valid string."),
        ('[{"id": "a", "text": " "}]', ": row 1: field 'text': Value error, the question is empty."),
        ('[{"id": "a", "text": "Who?"}, 7]', ": row 2: field 'row': Input should be a valid dictionary"),
        ('[{"id": "a",\n "text": }]', ":2: not valid JSON at column 10 (Expecting value)."),
        ('{"id": "a", "text": "Who?"}\n\n{"id":', ":3: not valid JSON at column 7 (Expecting value)."),
        ("[]", ": has no rows."),
        ("", ": has no rows."),
    ],
)
def test_a_malformed_row_is_named_by_file_and_row(tmp_path, content, message):
    path = tmp_path / "rows.json"
    path.write_text(content)
    with pytest.raises(RecordError) as raised:
        read(path)
    assert str(raised.value).startswith(f"{path}{message}")
    assert "\n" not in str(raised.value)


def test_a_missing_file_is_named(tmp_path):
    with pytest.raises(RecordError, match="nowhere.json: cannot be read"):
        read(tmp_path / "nowhere.json")


def test_a_file_that_is_not_utf8_is_named(tmp_path):
    (tmp_path / "rows.json").write_bytes(b'[{"id": "\xff"}]')
    with pytest.raises(RecordError, match="not UTF-8 at byte 9"):
        read(tmp_path / "rows.json")


@pytest.mark.parametrize(
    ("name", "split"),
    [
        ("hotpot_dev_distractor_v1.json", "dev"),
        ("musique_ans_v1.0_train.jsonl", "train"),
        ("test.json", "test"),
        ("graphquestions.testing.json", "test"),
        ("val.json", "validation"),
        ("my_questions.json", "train"),
    ],
)
def test_the_split_is_the_one_the_file_is_named_after(name, split):
    assert split_of(Path(name)) == split


def test_datasets_are_mixed_by_their_folders():
    paths = [DATA / "hotpotqa" / "test.json", DATA / "musique" / "test.jsonl"]
    assert {question.dataset for question in read_questions(paths, reader="by_folder")} == {"hotpotqa", "musique"}


def test_a_folder_that_names_no_reader_says_which_there_are(tmp_path):
    with pytest.raises(RecordError, match="is not named after a reader. Available: aqua_rat, arc, asqa"):
        read_questions([tmp_path / "rows.json"], reader="by_folder")
