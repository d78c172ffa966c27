import pytest
from pyarrow import Table, parquet

from refinery.contract.records import Passage, Question, SubQuestion
from refinery.errors import RecordError
from refinery.questions.parquet import read

QUESTIONS = [
    Question(id="a", text="Who?", answers=["Torvel"], passages=[Passage(id="p", text="Torvel.")], dataset="own", split="dev"),
    Question(id="b", text="Where?", decomposition=[SubQuestion(text="Where is it?")]),
]


@pytest.fixture
def write(tmp_path):
    def written(rows):
        parquet.write_table(Table.from_pylist(rows), tmp_path / "questions.parquet")
        return tmp_path / "questions.parquet"

    return written


def test_questions_come_back_as_they_were_though_a_table_fills_gaps_with_nulls(write):
    assert list(read(write([question.model_dump() for question in QUESTIONS]))) == QUESTIONS


def test_a_malformed_row_is_named(write):
    with pytest.raises(RecordError, match="questions.parquet: row 2: field 'text': Field required."):
        list(read(write([{"id": "a", "text": "Who?"}, {"id": "b"}])))


@pytest.mark.parametrize("content", [None, b"id,text"])
def test_a_file_that_is_not_parquet_is_named(tmp_path, content):
    if content is not None:
        (tmp_path / "questions.parquet").write_bytes(content)
    with pytest.raises(RecordError, match="questions.parquet: cannot be read as Parquet"):
        list(read(tmp_path / "questions.parquet"))
