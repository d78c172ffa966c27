import json
from pathlib import Path

import pytest

from refinery.errors import RecordError
from refinery.questions.two_wiki import read

DATA = Path(__file__).parents[3] / "recipes" / "sample" / "data" / "two_wiki"
SHARED = Path(__file__).parents[4] / "shared" / "data" / "2wikimultihopqa"

ROW = {
    "_id": "q",
    "question": "Where was the director of Dune born?",
    "answer": "Lyon",
    "type": "compositional",
    "context": [["Oslo", ["A city."]], ["Dune (film)", ["Maria Torvel made it."]], ["Maria Torvel", ["Born in Lyon."]]],
    "supporting_facts": [["Dune (film)", 0], ["Maria Torvel", 0]],
    "evidences": [["Dune", "director", "Maria Torvel"], ["Maria Torvel", "place of birth", "Lyon"]],
}
COMPARISON = {
    "type": "bridge_comparison",
    "evidences": [["Dune", "director", "Hall"], ["Velorum", "director", "Webb"], ["Hall (actor)", "age", "61"], ["Webb", "age", "54"]],
}


def read_row(tmp_path, row):
    (tmp_path / "rows.json").write_text(json.dumps([row]))
    return read(tmp_path / "rows.json")[0]


def test_triples_become_sub_questions_that_refer_to_earlier_answers(tmp_path):
    steps = read_row(tmp_path, ROW).decomposition
    assert [(step.text, step.answer) for step in steps] == [
        ("What is the director of Dune?", "Maria Torvel"),
        ("What is the place of birth of #1?", "Lyon"),
    ]


def test_each_step_has_the_paragraph_of_its_subject_though_title_and_subject_differ(tmp_path):
    assert [step.supporting for step in read_row(tmp_path, ROW).decomposition] == [["q:1"], ["q:2"]]


def test_a_bridge_is_seen_where_the_triples_spell_it_differently(tmp_path):
    steps = read_row(tmp_path, ROW | COMPARISON).decomposition
    assert [step.text for step in steps][2:] == ["What is the age of #1?", "What is the age of #2?"]


def test_steps_name_no_paragraph_where_subjects_and_titles_cannot_be_paired(tmp_path):
    steps = read_row(tmp_path, ROW | COMPARISON).decomposition
    assert [step.supporting for step in steps] == [None] * 4


def test_the_answers_other_names_are_read_from_the_aliases_beside(tmp_path):
    entities = [{"Q_id": "Q1", "aliases": ["Lugdunum", "Lyon"], "demonyms": ["Lyonnais"]}, {"Q_id": "Q2", "aliases": ["x"], "demonyms": []}]
    (tmp_path / "id_aliases.json").write_text("\n".join(json.dumps(entity) for entity in entities))
    assert read_row(tmp_path, ROW | {"answer_id": "Q1"}).answers == ["Lyon", "Lugdunum", "Lyonnais"]
    assert read_row(tmp_path, ROW | {"answer_id": None}).answers == ["Lyon"]


def test_questions_without_aliases_say_once_that_their_em_is_plain(tmp_path, caplog):
    with caplog.at_level("INFO", logger="refinery"):
        for _ in range(2):
            read_row(tmp_path, ROW)
    said = [record.message for record in caplog.records]
    assert len(said) == 1
    assert "id_aliases.json" in said[0]
    assert said[0].endswith("em.2wiki is plain EM")


def test_a_malformed_alias_is_named_by_its_line(tmp_path):
    (tmp_path / "id_aliases.json").write_text('{"Q_id": "Q1", "aliases": []}')
    with pytest.raises(RecordError, match="id_aliases.json:1: field 'demonyms': Field required"):
        read_row(tmp_path, ROW)


def test_a_row_without_triples_has_no_decomposition(tmp_path):
    assert read_row(tmp_path, ROW | {"evidences": []}).decomposition is None


def test_a_malformed_triple_is_named(tmp_path):
    with pytest.raises(RecordError, match=r"rows.json: row 1: field 'evidences\.0\.2': Field required"):
        read_row(tmp_path, ROW | {"evidences": [["Dune", "director"]]})


def test_the_sample_keeps_the_row_whose_support_is_not_in_its_context():
    questions = {question.id: question for question in read(DATA / "train.json")}
    odd = questions["307d502e0bdb11eba7f7acde48001122"]
    assert set(odd.supporting) - {passage.id for passage in odd.passages} == {f"{odd.id}:Perdonami!:1"}


@pytest.mark.parametrize(("split", "rows"), [("train", 82), ("dev", 98)])
def test_the_release_reads_whole(split, rows):
    path = SHARED / f"{split}.json"
    if not path.exists():
        pytest.skip(f"{path} is not here")
    questions = read(path)
    assert (len(questions), {question.split for question in questions}) == (rows, {split})
    assert all(step.supporting for question in questions for step in question.decomposition)
    chains = [question for question in questions if question.type in ("compositional", "inference")]
    assert all("#1" in question.decomposition[1].text and question.decomposition[1].answer == question.answers[0] for question in chains)
