import json
import types
from typing import Annotated, Any, Literal, Union, get_args, get_origin

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyarrow import parquet
from pydantic import BaseModel

from distill.writing.parquet import join_parquet, schema_of, write_parquet
from refinery.contract import records
from refinery.contract.records import Passage, Provenance, Question, Record, Step, Trajectory, write_records
from refinery.errors import RunDirError

RECORDS = sorted(
    (value for value in vars(records).values() if isinstance(value, type) and issubclass(value, Record) and value is not Record),
    key=lambda record: record.__name__,
)
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=5,
)
SIMPLE = {
    str: st.text().filter(lambda text: text.strip()),
    bool: st.booleans(),
    int: st.integers(-(2**63), 2**63 - 1),
    float: st.floats(allow_nan=False, allow_infinity=False),
    Any: JSON,
}

SPLITS = st.sampled_from(["", "train", "dev-small", "v1.0"])  # the one text that is not free


def values_of(annotation: Any) -> st.SearchStrategy:
    """Any value of a field's type."""
    origin, arguments = get_origin(annotation), get_args(annotation)
    if origin is Annotated:
        return values_of(arguments[0])
    if origin in (Union, types.UnionType):
        return st.one_of(st.none() if argument is type(None) else values_of(argument) for argument in arguments)
    if origin is Literal:
        return st.sampled_from(arguments)
    if origin is dict:
        return st.dictionaries(st.text(), values_of(arguments[1]), max_size=3)
    if origin is list:
        return st.lists(values_of(arguments[0]), max_size=3)
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        fields = {name: values_of(field.annotation) for name, field in annotation.model_fields.items()}
        return st.builds(annotation, **fields | ({"split": SPLITS} if "split" in fields else {}))
    return SIMPLE[origin or annotation]


def read_back(path, record):
    return [record.model_validate(with_json_parsed(row, record)) for row in parquet.read_table(path).to_pylist()]


def with_json_parsed(value, annotation):
    """A row of the file with what is kept as JSON text parsed: dicts, and fields of one type or another."""
    arguments = [argument for argument in get_args(annotation) if argument is not type(None)]
    is_union = get_origin(annotation) in (Union, types.UnionType)
    if value is None:
        return None
    if is_union and len(arguments) == 1:
        return with_json_parsed(value, arguments[0])
    if get_origin(annotation) is list:
        return [with_json_parsed(item, arguments[0]) for item in value]
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return {name: with_json_parsed(value[name], field.annotation) for name, field in annotation.model_fields.items()}
    return json.loads(value) if is_union or get_origin(annotation) is dict else value


@pytest.mark.parametrize("record", RECORDS, ids=lambda record: record.__name__)
def test_what_is_read_back_equals_what_was_written(record, tmp_path_factory):
    folder = tmp_path_factory.mktemp("rows")

    @given(st.lists(values_of(record), min_size=1, max_size=4))
    def check(rows):
        write_records(folder / "train.jsonl", rows)
        assert read_back(write_parquet(folder / "train.jsonl", record), record) == rows

    check()


def test_a_column_without_any_value_keeps_its_declared_type(tmp_path):
    write_records(tmp_path / "train.jsonl", [Question(id="a", text="Who?"), Question(id="b", text="Where?")])
    columns = parquet.read_schema(write_parquet(tmp_path / "train.jsonl", Question))
    assert str(columns.field("choices").type) == "list<element: string>"
    assert str(columns.field("type").type) == "string"
    assert columns.field("decomposition").type.value_type.field("supporting").type.value_type == "string"


def test_a_file_without_rows_has_all_columns(tmp_path):
    write_records(tmp_path / "train.jsonl", [])
    table = parquet.read_table(write_parquet(tmp_path / "train.jsonl", Trajectory))
    assert (table.num_rows, table.column_names) == (0, list(Trajectory.model_fields))


def test_more_rows_than_a_batch_keep_their_order(tmp_path):
    write_records(tmp_path / "train.jsonl", (Passage(id=str(number), text="\u2028 \r\n") for number in range(5_000)))
    rows = read_back(write_parquet(tmp_path / "train.jsonl", Passage), Passage)
    assert [row.id for row in rows] == [str(number) for number in range(5_000)]
    assert {row.text for row in rows} == {"\u2028 \r\n"}


def test_rows_are_written_in_large_groups(tmp_path):
    write_records(tmp_path / "train.jsonl", (Passage(id=str(number), text="x") for number in range(4_100)))
    written = parquet.ParquetFile(write_parquet(tmp_path / "train.jsonl", Passage)).metadata
    assert [written.row_group(number).num_rows for number in range(written.num_row_groups)] == [2_000, 2_000, 100]


def test_a_dictionary_is_kept_as_json_text(tmp_path):
    made = Provenance(task="t", recipe_hash="h", parameters={"temperature": 0.5, "stop": None})
    write_records(tmp_path / "train.jsonl", [made])
    table = parquet.read_table(write_parquet(tmp_path / "train.jsonl", Provenance))
    assert json.loads(table["parameters"][0].as_py()) == {"temperature": 0.5, "stop": None}


def test_joined_files_hold_all_rows_in_order(tmp_path):
    parts = []
    for name in "ab":
        write_records(tmp_path / f"{name}.jsonl", [Step(action="answer", text=f"{name}{number}") for number in range(3)])
        parts.append(write_parquet(tmp_path / f"{name}.jsonl", Step))
    joined = join_parquet(parts, tmp_path / "joined.parquet")
    assert [row.text for row in read_back(joined, Step)] == ["a0", "a1", "a2", "b0", "b1", "b2"]


def test_files_of_different_records_are_not_joined(tmp_path):
    write_records(tmp_path / "a.jsonl", [Passage(id="1", text="x")])
    write_records(tmp_path / "b.jsonl", [Step(action="answer", text="x")])
    parts = [write_parquet(tmp_path / "a.jsonl", Passage), write_parquet(tmp_path / "b.jsonl", Step)]
    with pytest.raises(RunDirError, match=r"b\.parquet: has other columns than .*a\.parquet\."):
        join_parquet(parts, tmp_path / "joined.parquet")


def test_a_field_of_a_type_without_a_column_is_refused():
    class Odd(Record):
        when: complex

    with pytest.raises(TypeError, match="no Parquet column for the type <class 'complex'>"):
        schema_of(Odd)
