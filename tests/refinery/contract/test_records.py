import gzip
import json

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from refinery.contract.records import Passage, Question, Step, Trajectory, read_records, write_records
from refinery.errors import RecordError
from refinery.runtime.files.text_file import read_text

PASSAGE = Passage(id="p1", title="Lyon", text="Lyon is in France.")
passages = st.lists(st.builds(Passage, id=st.text(), title=st.text(), text=st.text()), min_size=1, max_size=4)


def test_a_missing_file_is_named(tmp_path):
    with pytest.raises(RecordError, match=r"absent\.jsonl: cannot be read \(No such file or directory\)"):
        read_records(tmp_path / "absent.jsonl", Passage)


@pytest.mark.parametrize(
    ("row", "message"),
    [
        ('{"id": "p2", "text": ', "not valid JSON at column"),
        ('{"id": "p2"}', "field 'text': is missing. The row has 'id'"),
        ('{"id": "p2", "text": "x", "body": "y"}', "field 'body': Extra inputs are not permitted"),
        ('{"id": [7], "text": "x"}', "field 'id': Input should be a valid string"),
        ('["p2", "x"]', "field 'row'"),
    ],
)
def test_a_malformed_row_is_named_by_file_and_line(tmp_path, row, message):
    path = tmp_path / "passages.jsonl"
    path.write_text(PASSAGE.model_dump_json() + "\n\n" + row + "\n")
    with pytest.raises(RecordError) as caught:
        read_records(path, Passage)
    assert str(caught.value).startswith(f"{path}:3: ")
    assert message in str(caught.value)


def test_an_empty_file_says_what_it_should_hold(tmp_path):
    path = tmp_path / "passages.jsonl"
    path.write_text("\n")
    with pytest.raises(RecordError, match="has no rows. It should hold one Passage per line"):
        read_records(path, Passage)


def test_a_file_in_another_encoding_is_named(tmp_path):
    path = tmp_path / "passages.jsonl"
    path.write_bytes('{"id": "1", "text": "Besançon"}'.encode("latin-1"))
    with pytest.raises(RecordError, match="not UTF-8 at byte"):
        read_records(path, Passage)


def test_a_byte_order_mark_is_not_part_of_the_first_row(tmp_path):
    path = tmp_path / "passages.jsonl"
    path.write_text(PASSAGE.model_dump_json() + "\n", encoding="utf-8-sig")
    assert read_records(path, Passage) == [PASSAGE]
    assert read_text(path).startswith("{")


@pytest.mark.parametrize("encoding", ["utf-16", "utf-16-be"])
def test_utf16_is_named(tmp_path, encoding):
    path = tmp_path / "passages.jsonl"
    path.write_bytes(("\ufeff" if encoding == "utf-16-be" else "").encode(encoding) + PASSAGE.model_dump_json().encode(encoding))
    with pytest.raises(RecordError, match=r":1: is UTF-16\. Save the file as UTF-8\."):
        read_records(path, Passage)


@pytest.mark.parametrize("indent", [None, 2])
def test_a_json_array_is_named_whether_on_one_line_or_many(tmp_path, indent):
    path = tmp_path / "passages.jsonl"
    path.write_text(json.dumps([PASSAGE.model_dump()], indent=indent))
    with pytest.raises(RecordError, match=r":1: begins a JSON array\. Write one object per line"):
        read_records(path, Passage)


def test_a_blank_question_is_refused(tmp_path):
    path = tmp_path / "questions.jsonl"
    path.write_text('{"id": "q1", "text": "  "}\n')
    with pytest.raises(RecordError, match=r":1: field 'text': .*the question is empty"):
        read_records(path, Question)


@given(rows=passages)
def test_what_is_written_is_read_back(tmp_path_factory, rows):
    path = tmp_path_factory.getbasetemp() / "passages.jsonl"
    assert write_records(path, rows) == len(rows)
    assert read_records(path, Passage) == rows


@pytest.mark.parametrize("separator", ["\u2028", "\u2029", "\x85", "\x1c", "\r", "\n"])
def test_a_line_separator_inside_a_text_does_not_split_the_row(tmp_path, separator):
    rows = [Passage(id="p", text=f"one{separator}two")]
    write_records(tmp_path / "passages.jsonl", rows)
    assert read_records(tmp_path / "passages.jsonl", Passage) == rows


def test_a_half_written_file_never_has_the_final_name(tmp_path):
    def rows():
        yield PASSAGE
        raise RuntimeError("the process dies here")

    with pytest.raises(RuntimeError):
        write_records(tmp_path / "passages.jsonl", rows())
    assert not (tmp_path / "passages.jsonl").exists()


def test_a_failed_write_leaves_the_earlier_file_whole(tmp_path):
    path = tmp_path / "passages.jsonl"
    write_records(path, [PASSAGE])
    with pytest.raises(TypeError):
        write_records(path, (int("7") + row for row in ["not a record"]))  # type: ignore[operator]
    assert read_records(path, Passage) == [PASSAGE]


def test_a_trajectory_has_an_answer_once_it_is_closed():
    steps = [Step(action="rewrite", text="Lyon country", passages=[PASSAGE]), Step(action="answer", text="France")]
    assert Trajectory(question_id="q", question="Where is Lyon?", steps=steps[:1]).answer is None
    assert Trajectory(question_id="q", question="Where is Lyon?", steps=steps).answer == "France"


QUESTION = Question(id="7", text="Who directed Dune?", answers=["1984"])
ROW = {"id": 7, "text": "Who directed Dune?", "answers": [1984]}


def packed(path):
    path.write_bytes(gzip.compress(json.dumps(ROW).encode()))


def parquet(path):
    pq.write_table(pa.Table.from_pylist([ROW | {"__index_level_0__": 0}]), path)


@pytest.mark.parametrize(("name", "write"), [("rows.jsonl.gz", packed), ("rows.parquet", parquet)])
def test_packed_rows_and_tables_are_read_by_their_names_and_numbers_become_texts(tmp_path, name, write):
    write(tmp_path / name)
    assert read_records(tmp_path / name, Question) == [QUESTION]


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("rows.csv", b"id,text,answers\nq1,Who?,blue\n", r"rows\.csv:1: is a table, not JSON\. Save it as \.jsonl or \.parquet"),
        ("rows.jsonl", b'{"id": ' + b"[" * 3_000 + b"]" * 3_000 + b"}\n", r"rows\.jsonl:1: nests too deeply to be read"),
        (
            "rows.jsonl",
            b'{"id": "q", "text": "Who?", "answers": ["x", " "]}\n',
            r"rows\.jsonl:1: field 'answers': .*answer is blank",
        ),
        ("rows.jsonl.gz", b'{"id": "q"}', r"rows\.jsonl\.gz: is damaged, or no gzip file"),
    ],
)
def test_a_file_of_another_kind_says_what_to_do(tmp_path, name, content, message):
    (tmp_path / name).write_bytes(content)
    with pytest.raises(RecordError, match=message):
        read_records(tmp_path / name, Question)
