import json
import os
import subprocess
import sys
from pathlib import Path

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
    return read_questions([Path(address)], reader="hub")


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


@pytest.fixture
def dataset(tmp_path, monkeypatch):
    """Write rows as a Parquet dataset of one split, as the hub keeps most; gives its address up to the question mark."""

    def write(*rows):
        import pyarrow
        from pyarrow import parquet

        monkeypatch.setenv("HF_DATASETS_CACHE", str(tmp_path / "cache"))
        (tmp_path / "copy").mkdir()
        parquet.write_table(pyarrow.Table.from_pylist(list(rows)), tmp_path / "copy" / "validation.parquet")
        return f"{tmp_path / 'copy'}:validation"

    return write


POPQA = {"id": 7, "s_pop": 99, "question": "What is it?", "possible_answers": '["politician", "pol"]'}


def test_golds_that_are_a_list_in_json_are_that_list(dataset):
    address = dataset(POPQA, POPQA | {"id": 8, "possible_answers": "[sic] a politician [?]"})
    found = read(f"{address}?text=question&answers=possible_answers")
    assert [question.answers for question in found] == [["politician", "pol"], ["[sic] a politician [?]"]]


def test_popqas_own_reader_gives_its_types_too(dataset):
    (question,) = read(f"{dataset(POPQA)}?reader=popqa")
    assert (question.id, question.answers, question.type) == ("7", ["politician", "pol"], "long_tail")
    assert (question.split, question.dataset) == ("validation", "popqa")


def test_golds_in_another_notation_are_refused(dataset):
    with pytest.raises(RecordError, match=r"row 1: field 'answers': \"\['pol'\]\" looks like a list but is not JSON\."):
        read(f"{dataset(POPQA | {'possible_answers': str(['pol'])})}?text=question&answers=possible_answers")


def test_a_column_of_columns_is_no_answer(dataset):
    trivia = {"question": "Who?", "answer": {"value": "Ann", "aliases": ["Ann", "Anne"]}}
    address = dataset(trivia)
    assert read(f"{address}?text=question&answers=answer.aliases")[0].answers == ["Ann", "Anne"]
    with pytest.raises(RecordError, match=r"row 1: field 'answers': .* is not text\. Name a column inside it with a dot\."):
        read(f"{address}?text=question&answers=answer")


HOTPOT = {
    "id": "q",
    "question": "Where was the director of Dune born?",
    "answer": "Lyon",
    "type": "bridge",
    "context": {"title": ["Dune", "Maria Torvel"], "sentences": [["Dune is a film.", " Maria Torvel made it."], ["Born in Lyon."]]},
    "supporting_facts": {"title": ["Maria Torvel", "Dune"], "sent_id": [0, 1]},
}


def test_hotpotqas_nested_columns_are_its_paragraphs_and_facts(dataset):
    (question,) = read(f"{dataset(HOTPOT)}?reader=hotpotqa")
    assert [(p.id, p.title, p.text) for p in question.passages] == [
        ("q:0", "Dune", "Dune is a film. Maria Torvel made it."),
        ("q:1", "Maria Torvel", "Born in Lyon."),
    ]
    assert (question.supporting, question.answers, question.split) == (["q:1", "q:0"], ["Lyon"], "validation")


def test_two_wikis_columns_may_be_json_text(dataset):
    evidences = [["Dune", "director", "Maria Torvel"], ["Maria Torvel", "place of birth", "Lyon"]]
    context = json.dumps(list(zip(*HOTPOT["context"].values(), strict=True)))
    facts = json.dumps([["Dune", 1], ["Maria Torvel", 0]])
    row = HOTPOT | {"type": "compositional", "context": context, "supporting_facts": facts, "evidences": json.dumps(evidences)}
    (question,) = read(f"{dataset(row)}?reader=two_wiki")
    assert [(step.text, step.supporting) for step in question.decomposition] == [
        ("What is the director of Dune?", ["q:0"]),
        ("What is the place of birth of #1?", ["q:1"]),
    ]


def test_musiques_paragraphs_steps_and_aliases_come_along(dataset):
    row = {
        "id": "2hop",
        "question": "Where was Dune's director born?",
        "answer": "Lyon",
        "answer_aliases": ["Lugdunum"],
        "paragraphs": [{"idx": 0, "title": "Dune", "paragraph_text": "By Torvel.", "is_supporting": True}],
        "question_decomposition": [
            {"id": 1, "question": "Who?", "answer": "Torvel", "paragraph_support_idx": 0},
            {"id": 2, "question": "Where was #1 born?", "answer": "Lyon", "paragraph_support_idx": None},
        ],
    }
    (question,) = read(f"{dataset(row)}?reader=musique")
    assert (question.answers, question.supporting, question.type) == (["Lyon", "Lugdunum"], ["2hop:0"], "2hop")
    assert [step.supporting for step in question.decomposition] == [["2hop:0"], None]


def test_strategyqas_answer_is_yes_or_no(dataset):
    row = {"qid": "s", "question": "Is it?", "answer": True, "decomposition": ["What is it?"], "evidence": [[[["Dune-1"]]]]}
    (question,) = read(f"{dataset(row)}?reader=strategyqa")
    assert (question.id, question.answers, question.supporting) == ("s", ["yes"], ["Dune-1"])


def test_asqas_readings_keep_their_short_answers(dataset):
    pair = {"question": "Which one?", "short_answers": ["Ann"], "context": "Ann did.", "wikipage": "Ann"}
    row = {"sample_id": "-7", "ambiguous_question": "Who?", "qa_pairs": [pair], "annotations": [{"long_answer": "Ann.", "knowledge": []}]}
    (question,) = read(f"{dataset(row)}?reader=asqa")
    assert (question.id, question.answers, question.disambiguations[0].answers, question.split) == ("-7", ["Ann."], ["Ann"], "validation")


@pytest.mark.parametrize(
    ("change", "query", "message"),
    [
        ({}, "text=question&answers=answer", "column 'supporting_facts' would not be read. Add reader=hotpotqa after the question mark."),
        ({"question": None}, "reader=hotpotqa", "row 1: field 'question': Field required."),
        (
            {"context": {"title": ["Dune", "Oslo"], "sentences": [["One."]]}},
            "reader=hotpotqa",
            "row 1: field 'context': Value error, expected as many titles as sentences or their numbers, got",
        ),
        ({"context": "[" * 9_999}, "reader=hotpotqa", "row 1: field 'context': "),
        ({}, "reader=hotpotqa&text=question", "reader=hotpotqa knows the columns. Take out text."),
        ({}, "reader=canard", "reader=canard reads files only. Name the columns: field=column."),
    ],
)
def test_thin_rows_are_refused_by_their_row(dataset, change, query, message):
    address = dataset(HOTPOT | change)
    with pytest.raises(RecordError) as raised:
        read(f"{address}?{query}")
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
