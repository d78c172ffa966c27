import json

import pytest

from refinery.contract.records import KnowledgeLabel, read_records
from refinery.errors import RecordError
from refinery.questions.base import read_questions
from refinery.runtime.run.bad_rows import BadRowKeys, bad_rows_report, skipping_bad_rows

GOOD = {"question": "Who?", "answer": ["Ann"]}
SKIP = BadRowKeys(on_bad_row="skip")


@pytest.fixture
def rows(tmp_path):
    def write(*lines):
        (tmp_path / "dev.jsonl").write_text("\n".join(line if isinstance(line, str) else json.dumps(line) for line in lines))
        return [tmp_path / "dev.jsonl"]

    return write


@pytest.mark.parametrize("odd", [{"question": "Who?"}, {"question": " ", "answer": []}, "{not json", "[1]"])
def test_an_odd_row_is_counted_named_and_left_out(rows, odd):
    paths = rows(GOOD, odd, GOOD)
    with skipping_bad_rows(SKIP):
        questions = read_questions(paths, reader="nq_open")
        report = bad_rows_report()["bad_rows"]
    assert [question.id for question in questions] == ["dev_0", "dev_2"]  # the ids do not depend on what is skipped
    assert report["skipped"] == 1
    assert report["first"][0].startswith(f"{paths[0]}:2: ")


def test_without_the_key_it_ends_the_run(rows):
    with pytest.raises(RecordError, match="dev.jsonl:2: field 'answer': Field required."), skipping_bad_rows(BadRowKeys()):
        read_questions(rows(GOOD, {"question": "Who?"}), reader="nq_open")


def test_a_row_that_is_read_twice_is_counted_once(rows):
    paths = rows(GOOD, "{", GOOD)
    with skipping_bad_rows(SKIP):
        read_questions(paths, reader="nq_open")
        read_questions(paths, reader="nq_open")
        assert bad_rows_report()["bad_rows"]["skipped"] == 1


@pytest.mark.parametrize(("most", "num_bad"), [(0.01, 1), (0.05, 5), (3, 3)])
def test_so_many_of_a_hundred_rows_are_skipped_and_no_more(rows, most, num_bad):
    keys = BadRowKeys(on_bad_row="skip", max_bad_rows=most)
    with skipping_bad_rows(keys):
        assert len(read_questions(rows(*["{"] * num_bad, *[GOOD] * (100 - num_bad)), reader="nq_open")) == 100 - num_bad
    with pytest.raises(RecordError, match=rf"max_bad_rows={most:g} allows\. The first: .*dev.jsonl:1: "), skipping_bad_rows(keys):
        read_questions(rows(*["{"] * (num_bad + 1), *[GOOD] * (99 - num_bad)), reader="nq_open")


def test_a_file_of_another_schema_stops_early(rows):
    paths = rows(*[{"text": "Who?"}] * 5_000)
    with pytest.raises(RecordError, match=r"11 of 11 rows cannot be read"), skipping_bad_rows(SKIP):
        read_questions(paths, reader="nq_open")


def test_labels_to_train_on_are_read_alike(rows):
    label = {"question_id": "q", "question": "Who?", "label": "know"}
    with skipping_bad_rows(SKIP):
        assert len(read_records(rows(label, label | {"label": "perhaps"})[0], KnowledgeLabel)) == 1
