import json
import os
import subprocess
import sys

import pytest

from refinery.errors import RecordError
from refinery.questions.base import read_questions

ROWS = [
    {"question_stem": "Dune is a", "choices": {"text": ["film", "city"], "label": ["A", "B"]}, "answerKey": "A", "number": 1},
    {"question_stem": "Oslo is a", "choices": {"text": ["film", "city"], "label": ["A", "B"]}, "answerKey": "B", "number": 2},
]
CHOICE = "text=question_stem&choices=choices.text&answers=answerKey"


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """A dataset folder, which the `datasets` library reads as it reads a repository of the hub."""
    monkeypatch.setenv("HF_DATASETS_CACHE", str(tmp_path / "cache"))
    (tmp_path / "films").mkdir()
    (tmp_path / "films" / "test.jsonl").write_text("\n".join(map(json.dumps, ROWS)))
    return tmp_path / "films"


def read(address):
    return read_questions([address], reader="hub")


def test_fields_are_read_from_the_columns_that_are_named(folder):
    first, second = read(f"{folder}:test?{CHOICE}")
    assert (first.text, first.choices, first.answers) == ("Dune is a", ["film", "city"], ["A"])
    assert (second.id, second.dataset, second.split) == ("test_1", "films", "test")


@pytest.mark.parametrize("part", ["test[:1]", "test[1:]+test[:1]", "test[:50%]"])
def test_a_part_of_a_split_is_of_that_split(folder, part):
    first = read(f"{folder}:{part}?{CHOICE}")[0]
    assert (first.id, first.split) == (f"{part}_0", "test")


def test_numbers_become_text(folder):
    assert [question.answers for question in read(f"{folder}:test?text=question_stem&id=number&choices=choices.text&answers=number")] == [
        ["1"],
        ["2"],
    ]


@pytest.mark.parametrize(
    ("address", "message"),
    [
        ("{folder}", "is not of the form owner/name:split?field=column"),
        ("{folder}:test?question=question_stem", "is not of the form owner/name:split?field=column. Fields: id, text"),
        ("{folder}:test?text=stem", "row 1: has no column 'stem'. Name another"),
        ("{folder}:test?text=question_stem&answers=choices.right", "row 1: has no column 'choices.right'"),
        ("{folder}:dev?text=question_stem", "cannot be loaded from the hub (Unknown split"),
        ("{folder}/none:test", "cannot be loaded from the hub"),
        ("{folder}:test?text=choices&choices=choices.text", "row 1: field 'text': Input should be a valid string."),
    ],
)
def test_what_cannot_be_read_is_one_line(folder, address, message):
    with pytest.raises(RecordError) as raised:
        read(address.format(folder=folder))
    assert message in str(raised.value)
    assert "\n" not in str(raised.value)


@pytest.mark.network
def test_a_dataset_of_the_hub():
    script = (
        "from pathlib import Path; from refinery.questions.hub import read; "
        "print(next(read(Path('allenai/openbookqa:test?config=main&text=question_stem&choices=choices.text&answers=answerKey'))).answers)"
    )
    online = {**os.environ, "HF_HUB_OFFLINE": "0"}  # the tests' own process is offline from its start
    found = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True, env=online)
    assert found.stdout.strip() in [f"['{letter}']" for letter in "ABCD"]
