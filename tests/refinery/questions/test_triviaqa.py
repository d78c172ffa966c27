import json

import pytest

ROW = {
    "QuestionId": "tc_1",
    "Question": "Who directed Dune?",
    "Answer": {"Value": "Torvel", "Aliases": ["Maria Torvel", "Torvel"], "HumanAnswers": ["M. Torvel"]},
    "EntityPages": [{"Title": "Dune", "Filename": "Dune.txt"}, {"Title": "Oslo", "Filename": "Oslo.txt"}],
    "SearchResults": [{"Title": "Film pages", "Filename": "61/61_97.txt", "Rank": 1}, {"Title": "No file"}],
}


@pytest.fixture
def read_release(read_rows):
    return lambda *rows: read_rows("triviaqa", name="qa/web-dev.json", text=json.dumps({"Data": rows}, indent=2))


def test_the_value_comes_first_and_aliases_and_human_answers_follow_once_each(read_release):
    (question,) = read_release(ROW)
    assert (question.id, question.split) == ("tc_1", "dev")
    assert question.answers == ["Torvel", "Maria Torvel", "M. Torvel"]


def test_the_documents_that_lie_beside_are_the_passages(read_release, tmp_path):
    for name in ("wikipedia/Dune.txt", "web/61/61_97.txt"):
        (tmp_path / "evidence" / name).parent.mkdir(parents=True)
        (tmp_path / "evidence" / name).write_text(f"About {name}.")
    (question,) = read_release(ROW)
    assert [(passage.id, passage.title) for passage in question.passages] == [
        ("wikipedia/Dune.txt", "Dune"),
        ("web/61/61_97.txt", "Film pages"),
    ]
    assert question.supporting is None


def test_without_evidence_and_answer_there_are_none(read_release):
    (question,) = read_release({key: ROW[key] for key in ("QuestionId", "Question")})
    assert (question.answers, question.passages) == ([], None)


def test_a_file_name_that_leads_elsewhere_is_refused(fault):
    row = ROW | {"EntityPages": [{"Filename": "../../secret.txt"}]}
    said = fault("triviaqa", name="qa/web-dev.json", text=json.dumps({"Data": [row]}))
    assert said.endswith("evidence.")


@pytest.mark.parametrize(
    ("release", "said"),
    [
        ({"Data": [{**ROW, "Answer": {"Value": 7, "Aliases": []}}]}, "row 1: field 'Answer.Value': Input should be a valid string."),
        ({"Rows": []}, "field 'Data': Field required."),
        ({"Data": []}, "has no rows."),
    ],
)
def test_a_malformed_release_is_named(fault, release, said):
    assert fault("triviaqa", text=json.dumps(release), name="web-dev.json") == f"web-dev.json: {said}"


@pytest.mark.parametrize(
    ("name", "rows", "passages"), [("web-dev", 2, 1), ("web-train", 3, 2), ("wikipedia-dev", 2, 3), ("wikipedia-train", 4, 7)]
)
def test_the_original_layout_reads_whole(release, name, rows, passages):
    questions = release("triviaqa", f"schema_fixtures/triviaqa_rc/qa/{name}.json").values()
    assert (len(questions), sum(len(question.passages or []) for question in questions)) == (rows, passages)


def test_a_row_of_the_original_layout(release):
    question = release("triviaqa", "schema_fixtures/triviaqa_rc/qa/wikipedia-train.json")["tc_9"]
    assert question.text == "Which city does David Soul come from?"
    assert question.answers[:2] == ["Chicago", "Chi-Beria"]
    assert question.passages[0].text.startswith("David Soul (born August 28, 1943)")
