"""What the readers' tests share: rows written to a file and read back, and the real releases where they are."""

import json
from pathlib import Path

import pytest

from refinery.errors import RecordError
from refinery.questions.base import find_reader, read_questions

SHARED = Path(__file__).parents[4] / "shared" / "data"


@pytest.fixture
def read_rows(tmp_path):
    """The questions that a reader makes of rows, written as JSON Lines (or of `text`, written as it is)."""

    def read(reader, *rows, name="rows.jsonl", text=None):
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("\n".join(json.dumps(row) for row in rows) if text is None else text, encoding="utf-8")
        return list(find_reader(reader).read(path))

    return read


@pytest.fixture
def fault(read_rows):
    """What a reader says of rows that it cannot read, without the folder."""

    def said(reader, *rows, **file):
        with pytest.raises(RecordError) as raised:
            read_rows(reader, *rows, **file)
        assert "\n" not in str(raised.value)
        return str(raised.value).rpartition("/")[2]

    return said


@pytest.fixture
def release():
    """The questions of a real file, by id; skips where it is not here."""

    def read(reader, name):
        path = SHARED / name
        if not path.exists():
            pytest.skip(f"{path} is not here")
        return {question.id: question for question in read_questions([path], reader=reader)}

    return read
